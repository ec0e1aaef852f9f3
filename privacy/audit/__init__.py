"""Statistics of an audit: from counts to a lower bound on ε, at a confidence. Pure functions."""
