"""Job keys that have a keyword in `parley.run` and an option in `parley run`."""

from __future__ import annotations

KEYWORD_KEYS = {
    "epsilon": "privacy.epsilon",
    "delta": "privacy.delta",
    "parties": "parties.count",
    "unit": "privacy.unit",
    "model": "model.kind",
    "algorithm": "algorithm.kind",
    "rounds": "algorithm.rounds",
    "seed": "run.seed",
    "engine": "run.engine",
    "baseline": "run.baseline",
    "data": "data.source",
    "schema": "data.schema",
}
"""Keyword → dotted key of the job."""
