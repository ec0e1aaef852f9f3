"""The job file: sections, checks, reading and writing."""
