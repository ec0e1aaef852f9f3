"""Bounds on what one record adds to a sum, and on how far it moves the sum."""
