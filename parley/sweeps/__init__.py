"""Sweeps: one job over a grid of its keys, as simulations that share prepared data."""
