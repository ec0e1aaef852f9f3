"""The ledger on disk: budgets, reservations, an append-only hash chain."""
