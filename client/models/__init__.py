"""Models that are learned: losses, linear models, networks."""
