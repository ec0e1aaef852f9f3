"""Events, how they compose, and the epsilon they come to."""
