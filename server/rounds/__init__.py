"""The rounds of a run: cohorts, transports, and the loop that reserves, sums and commits."""
