"""Certified local optima of strongly convex objectives."""
