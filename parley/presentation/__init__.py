"""Documents and what shows them: HTML pages, the terminal, JSON."""
