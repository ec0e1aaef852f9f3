"""Reading ledgers for the command line: by file, run folder or URL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parley.privacy.ledger.ledger import Head, Ledger, LedgerConflict, LedgerError
from parley.server.records.reading import read_summary
from parley.server.records.run_folder import RunFolderError

__all__ = ["free_ledger", "read_ledger", "verify_ledger"]


def _locate(where: str) -> str | Path:
    if "://" in where:
        return where
    path = Path(where)
    return path / "ledger.sqlite" if path.is_dir() else path


def _anchor(where: str) -> Head | None:
    """The end of the log as the run's summary knew it: a rewritten log does not contain it."""
    if "://" in where:
        return None
    try:
        summary = read_summary(Path(where))
    except RunFolderError as error:
        # Not left out in silence: without it a log that was rewritten would pass.
        raise LedgerError(
            f"Expected the ledger's head, which shows a log that was rewritten: {error}"
        ) from error
    head = None if summary is None else summary.ledger_head
    return None if head is None else Head(records=head.records, hash=head.hash)


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


def free_ledger(where: str, run_id: str) -> dict[str, int]:
    """Gives back what a run that is gone still holds: data set → releases.

    It is safe for one that isn't: its further releases are checked against the budget one by one.

    Raises:
        NotALedger: there is none at `where`.
        LedgerConflict: the run holds nothing.
    """
    with Ledger.open(_locate(where), create=False) as ledger:
        totals = ledger.totals()
        held = {t.budget.name: t.holders[run_id] for t in totals if run_id in t.holders}
        if not held:
            runs = sorted({run for t in totals for run in t.holders})
            raise LedgerConflict(
                f"Expected a run that holds something of a budget "
                f"({', '.join(runs) or 'none does'}), got {run_id!r}."
            )
        ledger.give_back(run_id)
    return held
