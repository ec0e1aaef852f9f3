"""Reading ledgers for the command line: by file, run folder or URL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from privacy.ledger import Head, Ledger

__all__ = ["read_ledger", "verify_ledger"]


def _locate(where: str) -> str | Path:
    if "://" in where:
        return where
    path = Path(where)
    return path / "ledger.sqlite" if path.is_dir() else path


def _anchor(where: str) -> Head | None:
    """The end of the log as the run's summary knew it: a rewritten log does not contain it."""
    summary = Path(where) / "summary.json"
    if "://" in where or not summary.is_file():
        return None
    head = json.loads(summary.read_text(encoding="utf-8")).get("ledger_head")
    return Head(records=head["records"], hash=head["hash"]) if head else None


def read_ledger(where: str) -> dict[str, Any]:
    """A ledger's data sets and entries as plain values.

    Raises:
        NotALedger: there is none at `where`.
    """
    with Ledger.open(_locate(where), create=False, read_only=True) as ledger:
        return {
            "datasets": [totals.to_json() for totals in ledger.totals()],
            "entries": [entry.to_json() for entry in ledger.entries()],
        }


def verify_ledger(where: str) -> tuple[list[str], int]:
    """What is wrong with a ledger, and how many entries it has.

    Raises:
        NotALedger: there is none at `where`.
    """
    with Ledger.open(_locate(where), create=False, read_only=True) as ledger:
        found = ledger.verify(anchor=_anchor(where))
        problems = [f"record {p.position}: {p.message}" for p in found]
        return problems, 0 if problems else len(ledger.entries())
