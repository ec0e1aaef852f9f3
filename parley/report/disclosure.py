"""What a report shows for whoever must defend a run: who learns what, and public ranges.

The table of who learns what is worded by where the noise is added and by the secure sum that ran;
its ε are the accounts of the summary, none is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from parley.client.contract.party_protocol import strict_json
from parley.client.data.column_types import CategoricalColumn
from parley.client.data.schema import Schema, SchemaError
from parley.privacy.accounting.threat_model import Adversary, point_named
from parley.report.components import Table
from parley.safe_io.file_reading import text_of
from parley.server.records import guarantee_text
from parley.server.records.guarantee_facts import GuaranteeSummary
from parley.server.records.number_format import number
from parley.server.records.run_summary import RunSummary
from parley.server.rounds.party_status import PartyStatus

_MOST = 30
"""Columns and parties that are listed."""


def who_learns_what(run: RunSummary, of: GuaranteeSummary) -> Table:
    """Everybody who takes part or looks on: what they see, and what that can say of one unit."""
    here = "" if run.secure_aggregation.backend == "masked" else (
        " This run had no masks: one process added what parties gave, and hid nothing from itself."
        " The table is of the same run among real parties."
    )  # fmt: skip
    rows = [[who, sees, _bound(run, of, adversary)] for who, sees, adversary in _watchers(run, of)]
    outsiders = [
        "outsiders on the network",
        "with real parties: encrypted messages, their sizes and times",
        "nothing about records; that these machines talk to each other",
    ]
    return Table(
        caption=f"What each can learn about {of.unit.words}; {guarantee_text.relation(of)}.{here}",
        head=["who", "sees", "can learn"],
        rows=[*rows, outsiders],
    )


def _watchers(run: RunSummary, of: GuaranteeSummary) -> Iterator[tuple[str, str, Adversary | None]]:
    """Who, what they see, and whose account bounds what they learn; None: nobody's does."""
    point, shares = point_named(of.noise.point), of.noise.shares
    by_server = point.adversary if point.in_contributions else None
    yield "the server", f"{point.server_sees}; who took part", by_server
    if shares is not None and shares.colluders:
        count = shares.colluders
        who = f"the server with {number(count)} colluding part{'y' if count == 1 else 'ies'}"
        seen = "the same, and those parties' own records and shares of the noise"
        yield who, seen, Adversary.COLLUDERS
    seen = "the models and figures that were released"
    yield "readers of the model", seen, Adversary.READERS
    if run.parties < 2:
        return
    # A party knows its own share of the noise: readers know none, a colluder one at least.
    other = Adversary.READERS
    if shares is not None:
        other = Adversary.COLLUDERS if shares.colluders else Adversary.OTHERS
    yield "another party", "the models of all rounds, its own records and its own noise", other
    if any(row.adversary is Adversary.OTHERS for row in of.accounts):
        seen = "all but the one party's records and noise"
        yield "all other parties and the server together", seen, Adversary.OTHERS


def _bound(run: RunSummary, of: GuaranteeSummary, adversary: Adversary | None) -> str:
    """A pair (ε, δ) that is proved against an adversary at least as strong, or that none is."""
    if run.primary.noise.seeded:
        return "not bounded: the noise of this run came from a seed"
    stronger = adversary.and_stronger() if adversary else ()
    found = [row for row in of.accounts if row.adversary in stronger and row.epsilon is not None]
    if not found:
        return "not bounded by any ε: it is trusted"
    least = min(found, key=lambda row: (row.epsilon or math.inf, row.delta))
    return f"at most {guarantee_text.points(least.epsilon, least.delta)}"


def parties_named(folder: Path) -> Table | None:
    """Real parties by the names under which they enrolled; None where there were none."""
    try:
        board: Any = strict_json(text_of(folder / "parties.json"))
        rows = [[str(each["name"]), _stood(each)] for each in board["parties"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Table(
        caption="Parties, by the names under which they enrolled, and how each ended",
        head=["party", "in the last round"],
        rows=_shortened(rows),
    )


def _shortened(rows: list[list[str]]) -> list[list[str]]:
    """At most `_MOST` of them, and how many more there are."""
    left = len(rows) - _MOST
    if left <= 0:
        return rows
    return [*rows[:_MOST], [f"and {number(left)} more", *[""] * (len(rows[0]) - 1)]]


def _stood(party: dict[str, Any]) -> str:
    state = "in the sum" if party["state"] == str(PartyStatus.UNMASKED) else str(party["state"])
    return f"{state} ({party['reason']})" if party["reason"] else state


def public_ranges(folder: Path) -> Table | None:
    """The schema that rows were read by; None where the folder holds none."""
    path = folder / "schema.toml"
    try:
        schema = Schema.from_toml(text_of(path))
    except (OSError, SchemaError):
        return None
    rows = [[name, column.kind, _values(column)] for name, column in schema.features.items()]
    label = [schema.label_column, "label", ", ".join(_label_names(schema))]
    return Table(
        caption="Public: ranges and categories that rows were read by (values outside are clamped)",
        head=["column", "kind", "range or categories"],
        rows=[*_shortened(rows), label],
    )


def _values(column: object) -> str:
    if isinstance(column, CategoricalColumn):
        shown = [str(value) for value in column.categories]
        return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "")
    low, high = getattr(column, "range", ("", ""))
    return f"{low:g} to {high:g}"


def _label_names(schema: Schema) -> Sequence[str]:
    label = schema.label
    if label.range is not None:
        return [f"{label.range[0]:g} to {label.range[1]:g}"]
    return label.names("softmax" if label.classes is not None else "logistic")
