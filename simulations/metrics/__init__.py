"""Metrics that only a simulation may know."""
