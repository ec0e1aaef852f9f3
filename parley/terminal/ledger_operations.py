"""Show, verify and free ledgers at the command line, by file, run folder or URL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from parley.privacy.accounting.rounding import format_rounded_down, format_rounded_up, round_up
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger import ledger_copy
from parley.privacy.ledger.account import BudgetAccount
from parley.privacy.ledger.budget import BudgetKey, DatasetBudget
from parley.privacy.ledger.hash_chain import ChainHead
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_copy import LedgerUpgrade
from parley.privacy.ledger.ledger_errors import LedgerConflict, LedgerCorrupt, LedgerError
from parley.privacy.ledger.recorded_entries import RecordedEntry
from parley.safe_io.plurals import format_noun
from parley.safe_io.printable_text import to_one_line
from parley.server.records.guarantee_facts import AdversaryAccount
from parley.server.records.run_folder import RunFolderError
from parley.server.records.run_folder_opening import load_run_job, locate_ledger
from parley.server.records.run_reader import read_summary
from parley.server.statements.data_account_text import format_block
from parley.server.statements.guarantee_text import (
    FIXED_RELEASES_NOTE,
    format_account,
    format_allowed,
    format_scope,
)
from parley.server.statements.number_format import format_epsilon
from parley.terminal.rich_output import Screen, build_plain_table

_LAST_ENTRIES = 200


@dataclass(frozen=True, kw_only=True)
class LedgerContent:
    """Content of a ledger."""

    datasets: tuple[BudgetAccount, ...]
    entries: tuple[RecordedEntry, ...]
    raises: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "datasets": [totals.to_json() for totals in self.datasets],
            "entries": [entry.to_json() for entry in self.entries],
            "raises": list(self.raises),
        }


def _locate(location: str, ledger_url: str | None = None) -> str | Path:
    path = Path(location)
    if ledger_url is not None or "://" in location or not path.is_dir():
        return ledger_url or location
    # A run names the ledger it shares in its job; without one it has its own.
    known = (path / "job.toml").exists()
    return locate_ledger(path, load_run_job(path)) if known else path / "ledger.sqlite"


def _load_expected_head(location: str) -> ChainHead | None:
    """Return the head of the log in the run's summary. A rewritten log does not contain it."""
    if "://" in location:
        return None
    try:
        summary = read_summary(Path(location))
    except RunFolderError as error:
        # Not left out in silence: without it a log that was rewritten would pass.
        raise LedgerError(
            f"Expected the ledger's head, which shows a log that was rewritten: {error}"
        ) from error
    head = None if summary is None else summary.ledger_head
    return None if head is None else ChainHead(records=head.records, hash=head.hash)


def read_ledger(location: str) -> LedgerContent:
    """Return a ledger's data sets and entries."""
    with Ledger.open(_locate(location), create=False, read_only=True) as ledger:
        try:
            return LedgerContent(
                datasets=tuple(ledger.list_accounts()),
                entries=tuple(ledger.list_entries()),
                raises=ledger.list_raises(),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise LedgerCorrupt(
                f"Expected records that can be read in {location}, got {type(error).__name__}: "
                "`parley ledger verify` says where."
            ) from error


def print_ledger(content: LedgerContent) -> None:
    """Print a ledger: data sets with what is left, then the entries."""
    console = Screen()
    for totals in content.datasets:
        budget, spent = totals.budget, totals.spent
        console.print(
            Text(to_one_line(budget.name), style="bold"),
            f": {spent.releases} {format_noun(spent.releases, 'release')}, "
            f"spent ε = {format_epsilon(totals.epsilon)} of "
            f"{format_allowed(budget.epsilon, budget.delta)}, "
            f"{format_scope(budget)}; "
            f"left ε = {format_rounded_down(totals.remaining)}",
            sep="",
        )
        console.print(f"  The budget holds {budget.certificate.description}.")
        for name, (used, left) in totals.compute_by_block().items():
            cost = format_epsilon(budget.compute_epsilon(used))
            said = (
                f"{used.releases} releases, spent ε = {cost}, left ε = {format_rounded_down(left)}"
            )
            console.print(to_one_line(f"  {format_block(name)}: {said}"))
        for run, releases in totals.held_counts.items():
            said = f"{run} holds {releases} releases to come; they are not left to others"
            console.print(to_one_line(f"  {said}"))
        for raised in content.raises:
            if (raised["dataset"], raised["unit"]) == (budget.name, str(budget.unit)):
                to = format_allowed(raised["epsilon"], raised["delta"])
                said = f"raised to {to} at {raised['at']}: {raised['reason']}"
                console.print(to_one_line(f"  {said}"))
    if len(content.entries) > _LAST_ENTRIES:
        console.print(
            f"The last {_LAST_ENTRIES} of {len(content.entries)} entries; --json shows all of them."
        )
    for run, entries in groupby(content.entries[-_LAST_ENTRIES:], lambda each: each.entry.run_id):
        # A whole line: it is there to be copied.
        console.print(to_one_line(run), soft_wrap=True)
        console.print(_build_release_table(entries))
    if content.datasets:
        console.print(f"Spent: {FIXED_RELEASES_NOTE}.")
    _print_accounts(console, content.entries[-_LAST_ENTRIES:])


def _build_release_table(entries: Iterable[RecordedEntry]) -> Table:
    """Return one run's releases as a table."""
    table = build_plain_table("party", "release", "unit", "state", "law", "ρ", "survivors")
    for recorded in entries:
        entry = recorded.entry
        table.add_row(
            to_one_line(entry.party),
            str(entry.index),
            to_one_line(str(entry.facts["unit"])),
            str(recorded.state),
            to_one_line(str(entry.facts["noise_law"])),
            format_rounded_up(round_up(entry.event.exact_rho), 4),
            to_one_line(str((recorded.outcome or {}).get("survivors", "–"))),
        )
    return table


def _print_accounts(console: Screen, entries: Sequence[RecordedEntry]) -> None:
    """Print the cost of a release with noise in shares per adversary; equal costs once."""
    texts: dict[str, None] = {}
    for entry in (recorded.entry for recorded in entries):
        rows = entry.facts.get("accounts", ())
        accounts = [AdversaryAccount.model_validate(row) for row in rows]
        lines = [f"  against {each.adversary.words}: {format_account(each)}" for each in accounts]
        if lines:
            honest = int(entry.facts["honest_shares"])
            others = int(entry.facts["summed_shares"]) - honest
            split = f"the noise of {honest} honest {format_noun(honest, 'party')}"
            split += f" ({others} more may collude with the server)" if others else ""
            head = f"one release of {entry.run_id}, per {entry.facts['unit']}, charged for {split}:"
            texts["\n".join(map(to_one_line, [head, *lines]))] = None
    for text in texts:
        console.print(text)
    said = {
        (to_one_line(entry.run_id), to_one_line("; ".join(map(str, own))))
        for entry in (recorded.entry for recorded in entries)
        if (own := entry.facts.get("assumptions"))
    }
    for run, assumed in sorted(said):
        console.print(f"{run} assuming: {assumed}", soft_wrap=True)


def verify_ledger(
    location: str, *, ledger_url: str | None = None
) -> tuple[list[str], int, ChainHead]:
    """Return the faults of a ledger, its number of entries, and the end of its log.

    Args:
        location: its location, or the folder of a run with a summary that has the log's head.
        ledger_url: the location of a folder's ledger, if its user gives it.
    """
    with Ledger.open(_locate(location, ledger_url), create=False, read_only=True) as ledger:
        found = ledger.verify(anchor=_load_expected_head(location))
        problems = [f"record {p.position}: {p.message}" for p in found]
        return problems, 0 if problems else len(ledger.list_entries()), ledger.get_head()


def copy_ledger(location: str, target: str) -> ChainHead:
    """Copy a ledger to a place without one; return the end of its log."""
    return ledger_copy.copy_ledger(_locate(location), target)


def upgrade_ledger(location: str, copy: str | None) -> LedgerUpgrade | None:
    """Upgrade a ledger to the current version; return None if it has that version."""
    return ledger_copy.upgrade_ledger(_locate(location), copy)


def raise_budget(
    location: str,
    dataset: str,
    *,
    unit: Unit,
    reason: str,
    epsilon: float | None,
    delta: float | None,
) -> tuple[DatasetBudget, DatasetBudget, int]:
    """Raise a data set's budget, and return the old and new total and the number of raises.

    Raises:
        LedgerConflict: no such budget, one that would shrink, or no reason.
    """
    with Ledger.open(_locate(location), create=False) as ledger:
        ledger.check()
        key = BudgetKey(dataset, unit)
        known = {totals.budget.key: totals.budget for totals in ledger.list_accounts()}
        if key not in known:
            names = ", ".join(str(each) for each in known) or "none"
            raise LedgerConflict(f"Expected a budget of the ledger ({names}), got {key}.")
        raised = ledger.raise_budget(key, epsilon=epsilon, delta=delta, reason=reason)
        made = [(each["dataset"], each["unit"]) for each in ledger.list_raises()]
    return known[key], raised, made.count((dataset, str(unit)))


def free_ledger(location: str, run_id: str) -> dict[str, int]:
    """Return the reserved releases of an ended run to its budgets: budget → releases.

    This is safe for a run that has not ended: each of its further releases is checked against the
    budget.
    """
    with Ledger.open(_locate(location), create=False) as ledger:
        totals = ledger.list_accounts()
        held = {str(t.budget.key): t.held_counts[run_id] for t in totals if run_id in t.held_counts}
        if not held:
            runs = sorted({run for t in totals for run in t.held_counts})
            raise LedgerConflict(
                f"Expected a run that holds something of a budget "
                f"({', '.join(runs) or 'none does'}), got {run_id!r}."
            )
        ledger.end_hold(run_id)
    return held
