"""Synthetic rows from a noisy release: fitting, saving, drawing."""
