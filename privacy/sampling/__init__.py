"""Streams of randomness and exact samplers."""
