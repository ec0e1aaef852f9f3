"""Define `Answer`: noisy values, their intervals, and their privacy cost."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from itertools import zip_longest
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from parley.analytics.answer_intervals import AnswerSource, Intervals
from parley.client.contract.strict_decoding import DecodingError
from parley.client.queries.base import Query, QueryError, Table
from parley.client.queries.query_decoding import decode_query
from parley.privacy.accounting.attack_power import FALSE_ALARM_RATE, compute_attack_power
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import PrivacyEvent
from parley.privacy.accounting.rounding import format_exact, format_rounded_down, format_rounded_up
from parley.privacy.accounting.threat_model import Adversary, Unit
from parley.privacy.estimation.noise_intervals import clip_to_possible
from parley.privacy.ledger.budget import DatasetBudget
from parley.safe_io.error_translation import translate_errors
from parley.server.records.guarantee_facts import AttackerRate
from parley.server.statements import attack_rate_text

UNIT_LIMITS = {
    Unit.PERSON: (
        "a person is protected in each party separately; a person known to several parties is "
        "protected as a group of that size"
    )
}
"""Limit of a unit's guarantee, printed with every answer."""
GROUP_SIZE = 5
"""Group size whose group privacy is printed next to that of one unit."""
ENDS = ("value", "low", "high")
"""Columns of a table that are not keys."""
_MIN_P = 0.0001
"""Smallest p-value that is printed; below it, only "< 0.0001" is."""
_MAX_PRINTED_ROWS = 24
"""Maximum number of a table's rows that are printed."""


@dataclass(frozen=True, kw_only=True)
class AnswerCharge:
    """The cost of a release.

    Attributes:
        event: Privacy event of the release, for all of its queries together.
        epsilon: Requested price.
        spent, left: Of the budget, after the release.
        seeded: Whether the noise came from a seed, and so protects no one.
        assumptions: Assumptions beyond the proof.
    """

    run: str
    index: int
    event: PrivacyEvent
    epsilon: float
    queries: int
    spent: float
    left: float
    budget: DatasetBudget
    against: Adversary
    seeded: bool
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to one query.

    Attributes:
        table: The cells' keys, then `value`, `low` and `high`, which is an interval of 95 %.
        intervals: What the interval covers: by default the noise, per cell.
        source: The noisy counts behind the table. None if the table was changed since, or has no
            noise on a sum.
        law, scale: Of the noise, in units of the answer's own counts or cells. For consistent
            counts, the scale of an independent cell with the same standard deviation.
        by_party: Whether the table has rows per party.
        earlier: Charges of the steps before, for a query in steps.
    """

    query: Query
    table: Table
    law: str
    scale: float
    survivors: int
    parties: int
    records: int | None
    ledger: AnswerCharge
    intervals: Intervals = field(default_factory=Intervals)
    source: AnswerSource | None = field(default=None, repr=False, compare=False)

    by_party: bool = False
    earlier: tuple[AnswerCharge, ...] = ()

    @property
    def epsilon(self) -> float:
        """Requested price, or the cost of all steps together."""
        if not self.earlier:
            return self.ledger.epsilon
        return self.ledger.budget.compute_epsilon(self._spent)

    @property
    def asked(self) -> str:
        """The same as text, rounded up if there are several steps."""
        return format_rounded_up(self.epsilon) if self.earlier else format_exact(self.epsilon)

    @property
    def title(self) -> str:
        """Description of the query in words."""
        return format_title(self.query) + (" by party" if self.by_party else "")

    @property
    def frame(self) -> pl.DataFrame:
        """The table as a polars frame."""
        return pl.DataFrame({name: np.asarray(part) for name, part in self.table.items()})

    @cached_property
    def beside(self) -> dict[str, Table]:
        """Further tables of the same noisy numbers by name, such as a log-rank test or medians."""
        return {} if self.source is None else self.source.derive_tables(self.intervals)

    @property
    def is_scalar(self) -> bool:
        """Whether the answer is one number without a key."""
        return len(self.table["value"]) == 1 and len(self.table) == 3

    def _get_single_cell(self, column: str) -> float:
        cells = self.table[column]
        if len(cells) != 1:
            got = f"{len(cells)} cells. Use .frame for all of them"
            raise QueryError(f"Expected an answer with one cell, got {got}.")
        return float(cells[0])

    @property
    def value(self) -> float:
        """The noisy value of an answer with one cell. For a choice, the winner's votes."""
        return self._get_single_cell("value")

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of 95 % of an answer with one cell; `intervals` describes what it covers."""
        return self._get_single_cell("low"), self._get_single_cell("high")

    def with_intervals(self, *, simultaneous: bool = False, sampling: bool = False) -> Answer:
        """Return the same answer with other intervals of 95 %. This is post-processing and costs
        nothing.

        Args:
            sampling: Whether the intervals also cover sampling error, by a normal approximation.
                This is the variation between records drawn from the same population.

        Raises:
            QueryError: the kind has no such intervals, or the answer was changed since its release.
        """
        wanted = Intervals(simultaneous=simultaneous, sampling=sampling)
        if self.source is None:
            raise QueryError(
                "Expected an answer with noise on a sum, as it was released, got one that was "
                "chosen, reported or changed. Set intervals before nonnegative() or "
                "suppress_below()."
            )
        self.source.check(wanted)
        table, intervals = self.source.build_table(wanted)
        return replace(self, table=table, intervals=intervals)

    def reread(self, **changes: Any) -> Answer:
        """Return the same noisy numbers with other settings that cost nothing. This is
        post-processing.

        For example, for correlations: `answer.reread(regressions=["cost ~ age", "cost ~ age +
        sex"])`.

        Raises:
            QueryError: not such a setting, or the answer was changed since its release.
        """
        free = self.query.free_fields
        if self.source is None or not changes.keys() <= free:
            raise QueryError(
                f"Expected {' or '.join(sorted(free)) or 'no settings'} for a released answer "
                f"of {self.query.kind}, got {', '.join(changes)}."
            )
        with translate_errors(DecodingError, QueryError):
            asked, summed = (
                decode_query({**query.to_json(), **changes})
                for query in (self.query, self.source.query)
            )
        facts = self.source.parts[0].facts
        asked.check(facts.schema, facts.neighbouring)
        made = replace(self.source, query=summed)
        table, _ = made.build_table(self.intervals)
        return replace(self, query=asked, source=made, table=table)

    def nonnegative(self) -> Answer:
        """Return the answer with values and intervals cut off at 0. This is post-processing."""
        value, *ends = clip_to_possible(*(np.asarray(self.table[name]) for name in ENDS))
        parts = dict(zip(ENDS, (np.maximum(value, 0.0), *ends), strict=True))
        return replace(self, table={**self.table, **parts}, source=None)

    def suppress_below(self, least: float) -> Answer:
        """Return the answer without noisy values below `least`, which become null and print as "<
        least".

        This is post-processing of noisy values, so suppression costs nothing.
        """
        small = np.asarray(self.table["value"]) < least
        parts = {
            name: np.where(small, np.nan, np.asarray(self.table[name], dtype=np.float64))
            for name in ENDS
        }
        return replace(self, table={**self.table, **parts}, source=None)

    def tradeoff(self, alpha: float = FALSE_ALARM_RATE, *, members: int = 1) -> float:
        """Return the highest power of any attack on this answer's release at a false alarm rate α.

        The attacker tests whether one unit (record, person or party) is present or was replaced.
        With `members`, the test is about that many units together.
        """
        return compute_attack_power(self._spent, members=members, alpha=alpha)

    @cached_property
    def _spent(self) -> Composition:
        return Composition.from_events([each.event for each in (*self.earlier, self.ledger)])

    @property
    def mu(self) -> float | None:
        """μ of the release if its noise is Gaussian, else None.

        An attack on it is at least as hard as distinguishing N(0, 1) from N(μ, 1).
        """
        return self._spent.mu

    def to_json(self) -> dict[str, Any]:
        """Return the answer as plain JSON values."""
        charge = self.ledger
        beside = {name: _to_plain_lists(table) for name, table in self.beside.items()}
        return {
            "query": self.query.to_json(),
            "title": self.title,
            "by_party": self.by_party,
            "table": _to_plain_lists(self.table),
            "level": 0.95,
            "simultaneous": self.intervals.simultaneous,
            "sampling": self.intervals.sampling,
            "law": self.law,
            "scale": self.scale,
            "survivors": self.survivors,
            "parties": self.parties,
            "records": self.records,
            "run": charge.run,
            "index": charge.index,
            "epsilon": self.epsilon,
            **({"steps": len(self.earlier) + 1} if self.earlier else {}),
            "spent": charge.spent,
            "left": charge.left,
            "budget": charge.budget.to_json(),
            "against": str(charge.against),
            "seeded": charge.seeded,
            "assumptions": list(charge.assumptions),
            **({"beside": beside} if beside else {}),
        }

    def __repr__(self) -> str:
        cells = "" if self.is_scalar else f", {count_rows(self.table)} cells"
        value = f" = {float(self.table['value'][0]):.6g}" if self.is_scalar else ""
        return f"<Answer {self.title[:60]}{value}{cells}, epsilon={self.asked}>"

    def _repr_html_(self) -> str:
        """Return the text of the answer for a notebook."""
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        charge, table = self.ledger, self.table
        lines = []
        if self.is_scalar:
            low, high = self.interval
            shown = [format_to_width(x, high - low) for x in (self.value, low, high)]
            value = f"{shown[0]}   {self.intervals}: {shown[1]} … {shown[2]}"
            value = value if np.isfinite(self.value) else "too few records for this ε"
            lines.append(f"{self.title}: {value}")
        else:
            lines += [f"{self.title}   ({self.intervals.plural})", *_format_table(table)]
            for name, each in self.beside.items():
                lines += [f"{name}:", *_format_table(each)]
        together = f" (for {charge.queries} queries together)" if charge.queries > 1 else ""
        steps = f" in {len(self.earlier) + 1} steps" if self.earlier else ""
        lines.append(
            f"{self.survivors} of {self.parties} parties; {self.law}, scale {self.scale:.6g}; "
            f"charged ε = {self.asked} of {format_exact(charge.budget.epsilon)}{together}{steps}, "
            f"left {format_rounded_down(charge.left)} ({charge.budget.unit}, "
            f"{charge.budget.neighbouring}; against {charge.against.short})"
        )
        rates = [
            AttackerRate(members=k, alarms=FALSE_ALARM_RATE, rate=self.tradeoff(members=k))
            for k in (1, GROUP_SIZE)
        ]
        gaussian = "" if self.mu is None else f" (μ = {format_rounded_up(self.mu)})"
        told = attack_rate_text.format_attack(rates, charge.budget.unit)
        these = "these releases" if self.earlier else "this release"
        lines.append(f"by {these}{gaussian} an attacker {told}")
        if charge.assumptions:
            lines.append(f"assuming: {'; '.join(charge.assumptions)}")
        if charge.budget.unit in UNIT_LIMITS:
            lines.append(UNIT_LIMITS[charge.budget.unit])
        if charge.seeded:
            lines.append("the noise is seeded: repeatable, without any protection")
        return "\n".join(lines)


def format_title(query: Query) -> str:
    """Return a query in words: kind, column, condition and groups."""
    own = query.to_json()
    column = f" {own['column']}" if "column" in own else ""
    columns = own.get("of")
    several = f" {', '.join(columns)}" if isinstance(columns, list) else ""
    where = "" if query.where is None else f" where {query.where}"
    by = f" by {', '.join(query.by)}" if query.by else ""
    by += f", {query.interim_text}" if query.interim_text else ""
    return f"{query.kind}{column}{several}{where}{by}"


def format_to_width(value: float, width: float) -> str:
    """Format a number with about two digits of its interval's width."""
    if not np.isfinite(value):
        return "–" if np.isnan(value) else "∞"
    digits = 0 if width >= 10 else min(9, 1 - int(np.floor(np.log10(max(width, 1e-9) / 10))))
    return f"{round(value, digits) + 0.0:,.{digits}f}"  # never "-0"


def _to_plain_lists(table: Table) -> dict[str, list[Any]]:
    return {name: np.asarray(part).tolist() for name, part in table.items()}


def _compute_widths(table: Table) -> NDArray[np.float64]:
    """Return `[rows]` interval widths that decide how numbers are rounded.

    Rows use the median width, except that much narrower intervals use their own. Coefficients, for
    example, have different units.
    """
    low, high = (np.asarray(table[end], dtype=float) for end in ("low", "high"))
    widths = high - np.where(np.isfinite(low), low, np.nan)
    wide = widths[(widths > 0) & (widths < np.inf)]
    usual = float(np.median(wide)) if len(wide) else 0.1
    return np.where((widths > 0) & (widths < usual / 20), widths, usual)


def list_columns(table: Table) -> list[str]:
    """Return the column names, with value, low and high at the end if the table has them."""
    return [*(name for name in table if name not in ENDS), *(end for end in ENDS if end in table)]


def format_rows(table: Table, max_rows: int) -> list[list[str]]:
    """Return keys, value, low and high of the first `max_rows` cells as text."""
    keys = [name for name in table if name not in ENDS]
    ends = [name for name in ENDS if name in table]
    widths = _compute_widths(table) if ends else np.zeros(0)
    return [
        [_format_key(name, table[name][k]) for name in keys]
        + [format_to_width(float(table[name][k]), widths[k]) for name in ends]
        for k in range(min(count_rows(table), max_rows))
    ]


def count_rows(table: Table) -> int:
    """Return the number of rows."""
    return len(next(iter(table.values())))


def align_columns(rows: Sequence[Sequence[str]], numbers: Container[int]) -> list[str]:
    """Return the rows as lines of columns. The columns `numbers` are aligned to the right.

    >>> align_columns([["sex", "value"], ["female", "7"]], {1})
    ['sex     value', 'female      7']
    """
    sizes = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    lines = []
    for row in rows:
        sized = enumerate(zip(row, sizes, strict=False))
        texts = (
            text.rjust(size) if at in numbers else text.ljust(size) for at, (text, size) in sized
        )
        lines.append("  ".join(texts).rstrip())
    return lines


def _format_table(table: Table) -> list[str]:
    head, count = list_columns(table), count_rows(table)
    cells = [head, *format_rows(table, _MAX_PRINTED_ROWS)]
    numbers = {at for at, name in enumerate(head) if name in ENDS}
    lines = [f"  {line}" for line in align_columns(cells, numbers)]
    if np.isnan(np.asarray(table.get("value", ()), dtype=np.float64)).any():
        lines.append("  –: too few records for this ε, or suppressed")
    more = [f"  … and {count - _MAX_PRINTED_ROWS} more cells"] if count > _MAX_PRINTED_ROWS else []
    return [*lines, *more]


def _format_key(name: str, value: Any) -> str:
    """Format a cell's key: a category, an interval's end, a quantile or p; empty for None.

    >>> _format_key("p", 1e-400), _format_key("p", 0.0312), _format_key("age from", 1e-05)
    ('< 0.0001', '0.0312', '1e-05')
    """
    if value is None:
        return ""
    if name == "p" and value < _MIN_P:
        return f"< {_MIN_P}"
    if isinstance(value, float):
        return "–" if np.isnan(value) else f"{value:g}"
    return str(value)
