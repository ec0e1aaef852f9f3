"""Audits: simulate many trials of one job through its own code, and attack their releases."""
