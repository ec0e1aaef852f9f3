"""Compute the noise from a budget and a sensitivity."""
