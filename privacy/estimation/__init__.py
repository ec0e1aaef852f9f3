"""Estimates from noisy integers: intervals, and post-processing that costs no privacy."""
