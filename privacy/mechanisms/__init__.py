"""Noise laws on integer sums."""
