"""Ledgers at the command line, by file, run folder or URL: shown, checked, freed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from parley.privacy.accounting.rounding import round_up, shown_down, shown_up
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.account import Account
from parley.privacy.ledger.budget import BudgetKey, DatasetBudget
from parley.privacy.ledger.hash_chain import Head
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import LedgerConflict, LedgerCorrupt, LedgerError
from parley.privacy.ledger.recorded_entries import RecordedEntry
from parley.safe_io.plurals import noun
from parley.safe_io.printable_text import one_line
from parley.server.jobs.job_file import load_job
from parley.server.records import guarantee_text
from parley.server.records.guarantee_facts import AdversaryAccount
from parley.server.records.number_format import epsilon_text
from parley.server.records.run_folder import RunFolderError, ledger_of
from parley.server.records.run_reader import read_summary
from parley.terminal.terminal_screen import Screen, plain_table

_LAST_ENTRIES = 200


@dataclass(frozen=True, kw_only=True)
class LedgerContent:
    """What a ledger holds."""

    datasets: tuple[Account, ...]
    entries: tuple[RecordedEntry, ...]
    raises: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "datasets": [totals.to_json() for totals in self.datasets],
            "entries": [entry.to_json() for entry in self.entries],
            "raises": list(self.raises),
        }


def _locate(where: str, named: str | None = None) -> str | Path:
    path = Path(where)
    if named is not None or "://" in where or not path.is_dir():
        return named or where
    # A run names the ledger it shares in its job; without one it has its own.
    known = (path / "job.toml").exists()
    return ledger_of(path, load_job(path / "job.toml")) if known else path / "ledger.sqlite"


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


def read_ledger(where: str) -> LedgerContent:
    """A ledger's data sets and entries."""
    with Ledger.open(_locate(where), create=False, read_only=True) as ledger:
        try:
            return LedgerContent(
                datasets=tuple(ledger.totals()),
                entries=tuple(ledger.entries()),
                raises=ledger.raises(),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise LedgerCorrupt(
                f"Expected records that can be read in {where}, got {type(error).__name__}: "
                "`parley ledger verify` says where."
            ) from error


def print_ledger(content: LedgerContent) -> None:
    """A ledger: data sets with what is left, then the entries."""
    console = Screen()
    for totals in content.datasets:
        budget, spent = totals.budget, totals.spent
        console.print(
            Text(one_line(budget.name), style="bold"),
            f": {spent.releases} {noun(spent.releases, 'release')}, "
            f"spent ε = {epsilon_text(totals.epsilon)} of "
            f"{guarantee_text.allowed(budget.epsilon, budget.delta)}, "
            f"{guarantee_text.scope(budget)}; "
            f"left ε = {shown_down(totals.remaining.epsilon)}",
            sep="",
        )
        console.print(f"  The budget holds {budget.promise}.")
        for name, (used, left) in totals.by_block().items():
            console.print(
                one_line(
                    f"  {guarantee_text.block(name)}: {used.releases} releases, spent ε = "
                    f"{epsilon_text(budget.epsilon_of(used))}, left ε = {shown_down(left.epsilon)}"
                )
            )
        for run, releases in totals.holders.items():
            console.print(
                one_line(f"  {run} holds {releases} releases to come; they are not left to others")
            )
        for raised in content.raises:
            if (raised["dataset"], raised["unit"]) == (budget.name, str(budget.unit)):
                to = guarantee_text.allowed(raised["epsilon"], raised["delta"])
                console.print(one_line(f"  raised to {to} at {raised['at']}: {raised['reason']}"))
    if len(content.entries) > _LAST_ENTRIES:
        console.print(
            f"The last {_LAST_ENTRIES} of {len(content.entries)} entries; --json shows all of them."
        )
    for run, entries in groupby(content.entries[-_LAST_ENTRIES:], lambda each: each.entry.run_id):
        # A whole line: it is there to be copied.
        console.print(one_line(run), soft_wrap=True)
        console.print(_releases(entries))
    if content.datasets:
        console.print(f"Spent: {guarantee_text.FIXED}.")
    _print_accounts(console, content.entries[-_LAST_ENTRIES:])


def _releases(entries: Iterable[RecordedEntry]) -> Table:
    """One run's releases, one after another."""
    table = plain_table("party", "release", "unit", "state", "law", "ρ", "survivors")
    for recorded in entries:
        entry = recorded.entry
        table.add_row(
            one_line(entry.party),
            str(entry.index),
            one_line(str(entry.facts["unit"])),
            str(recorded.state),
            one_line(str(entry.facts["noise_law"])),
            shown_up(round_up(entry.event.exact_rho), 4),
            one_line(str((recorded.outcome or {}).get("survivors", "–"))),
        )
    return table


def _print_accounts(console: Screen, entries: Sequence[RecordedEntry]) -> None:
    """What one release with noise in shares comes to against each adversary; equal ones once."""
    texts: dict[str, None] = {}
    for entry in (recorded.entry for recorded in entries):
        rows = entry.facts.get("accounts", ())
        accounts = [AdversaryAccount.model_validate(row) for row in rows]
        lines = [
            f"  against {each.adversary.words}: {guarantee_text.account(each)}" for each in accounts
        ]
        if lines:
            honest = int(entry.facts["honest_shares"])
            others = int(entry.facts["summed_shares"]) - honest
            split = f"the noise of {honest} honest {noun(honest, 'party')}"
            split += f" ({others} more may collude with the server)" if others else ""
            head = f"one release of {entry.run_id}, per {entry.facts['unit']}, charged for {split}:"
            texts["\n".join(map(one_line, [head, *lines]))] = None
    for text in texts:
        console.print(text)
    said = {
        (one_line(entry.run_id), one_line("; ".join(map(str, own))))
        for entry in (recorded.entry for recorded in entries)
        if (own := entry.facts.get("assumptions"))
    }
    for run, assumed in sorted(said):
        console.print(f"{run} assuming: {assumed}", soft_wrap=True)


def verify_ledger(where: str, *, named: str | None = None) -> tuple[list[str], int]:
    """What is wrong with a ledger, and how many entries it has.

    Args:
        where: its place, or the folder of a run, whose summary knew the log's end.
        named: the place of a folder's ledger, where its user says it.
    """
    with Ledger.open(_locate(where, named), create=False, read_only=True) as ledger:
        found = ledger.verify(anchor=_anchor(where))
        problems = [f"record {p.position}: {p.message}" for p in found]
        return problems, 0 if problems else len(ledger.entries())


def raise_budget(
    where: str, dataset: str, *, unit: Unit, reason: str, epsilon: float | None, delta: float | None
) -> tuple[DatasetBudget, DatasetBudget, int]:
    """Raises a data set's budget on purpose: what it was, what it is, and how often it was raised.

    Raises:
        LedgerConflict: no such budget, one that would shrink, no reason.
    """
    with Ledger.open(_locate(where), create=False) as ledger:
        ledger.check()
        key = BudgetKey(dataset, unit)
        known = {totals.budget.key: totals.budget for totals in ledger.totals()}
        if key not in known:
            names = ", ".join(str(each) for each in known) or "none"
            raise LedgerConflict(f"Expected a budget of the ledger ({names}), got {key}.")
        raised = ledger.raise_budget(key, epsilon=epsilon, delta=delta, reason=reason)
        made = [(each["dataset"], each["unit"]) for each in ledger.raises()]
    return known[key], raised, made.count((dataset, str(unit)))


def free_ledger(where: str, run_id: str) -> dict[str, int]:
    """Gives back what a run that is gone still holds: budget → releases.

    It is safe for one that isn't: its further releases are checked against the budget one by one.
    """
    with Ledger.open(_locate(where), create=False) as ledger:
        totals = ledger.totals()
        held = {str(t.budget.key): t.holders[run_id] for t in totals if run_id in t.holders}
        if not held:
            runs = sorted({run for t in totals for run in t.holders})
            raise LedgerConflict(
                f"Expected a run that holds something of a budget "
                f"({', '.join(runs) or 'none does'}), got {run_id!r}."
            )
        ledger.give_back(run_id)
    return held
