"""Versions of a ledger's schema: a file for each, which Alembic runs where an older one is opened.

`migration` calls `upgrade` with the tables of the version before, inside its one transaction and
behind its checks. There is no way back. What a file says of tables is how they were then.
"""
