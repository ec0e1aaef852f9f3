"""What is learned: losses, linear models, networks."""
