"""Output of the command line."""
