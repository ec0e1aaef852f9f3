"""Advice after a simulated run: what would make its model better, and at what settings."""
