"""The report of a run: one page that opens offline."""
