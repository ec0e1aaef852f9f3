"""The report: one page that opens offline."""
