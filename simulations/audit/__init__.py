"""Audits: many worlds of one job through its own code, and what an attacker makes of them."""
