"""Mechanisms, calibration, accounting and the ledger. No torch, no Flower."""
