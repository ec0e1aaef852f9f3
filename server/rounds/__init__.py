"""The rounds: cohorts, transports, and the loop that reserves, sums and commits."""
