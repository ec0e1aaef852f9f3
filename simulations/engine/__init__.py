"""The fast engine: all parties of a job in one process."""
