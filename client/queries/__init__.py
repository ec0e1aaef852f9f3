"""Queries: statistics that become integer vectors, one file and one row of `QUERIES` each."""
