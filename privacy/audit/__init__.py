"""Audit statistics: from counts to a lower bound on ε with a confidence. Pure functions."""
