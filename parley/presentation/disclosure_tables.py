"""Build the report's tables for reviewers of a run: who learns what, parties, and public ranges.

The wording of who learns what depends on the noise point and on the secure sum that ran. Its ε are
the accounts in the summary; this module computes none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from parley.client.contract.strict_decoding import parse_strict_json
from parley.client.data.column_types import CategoricalColumn
from parley.client.data.schema import Schema, SchemaError
from parley.presentation.document import Table
from parley.privacy.accounting.threat_model import Adversary, find_noise_point
from parley.safe_io.file_reading import read_text
from parley.server.records.guarantee_facts import AttackerRate, GuaranteeSummary
from parley.server.records.run_summary import RunSummary
from parley.server.statements.attack_rate_text import HEADER, build_rows, format_caption
from parley.server.statements.guarantee_text import (
    HasPrivacyUnit,
    format_epsilon_delta,
    format_relation,
)
from parley.server.statements.number_format import format_number

_MAX_ROWS = 30
"""Maximum number of columns and parties that are listed."""


def build_disclosure_table(run: RunSummary, guarantee: GuaranteeSummary) -> Table:
    """Return a row per participant or observer: what they see, and what it can reveal about one
    unit.
    """
    here = "" if run.secure_aggregation.backend == "masked" else (
        " This run used no masks: one process added all contributions and could see each. The "
        "table describes the same run with real parties."
    )  # fmt: skip
    rows = [
        [who, sees, _format_bound(run, guarantee, adversary)]
        for who, sees, adversary in _list_observers(run, guarantee)
    ]
    outsiders = [
        "outsiders on the network",
        "with real parties: encrypted messages, their sizes and times",
        "nothing about records, only that these machines communicate",
    ]
    return Table(
        caption=(
            f"What each can learn about {guarantee.unit.words}; {format_relation(guarantee)}.{here}"
        ),
        head=["who", "sees", "can learn"],
        rows=[*rows, outsiders],
        prose=True,
    )


def build_attacker_table(
    rates: Sequence[AttackerRate], scoped: HasPrivacyUnit, adversary: Adversary
) -> Table:
    """Build the table of an attacker's success rates."""
    caption = format_caption(rates, scoped.unit, scoped.neighbouring, adversary)
    return Table(caption=caption, head=HEADER, rows=build_rows(rates, scoped.unit))


def _list_observers(
    run: RunSummary, guarantee: GuaranteeSummary
) -> Iterator[tuple[str, str, Adversary | None]]:
    """Yield each observer, what it sees, and the adversary whose account bounds it; None if no
    account does.
    """
    point, shares = find_noise_point(guarantee.noise.point), guarantee.noise.shares
    by_server = point.adversary if point.in_contributions else None
    yield "the server", f"{point.server_sees}; which parties took part", by_server
    if shares is not None and shares.colluders:
        count = shares.colluders
        who = f"the server with {format_number(count)} colluding part{'y' if count == 1 else 'ies'}"
        seen = "the same, and those parties' own records and shares of the noise"
        yield who, seen, Adversary.COLLUDERS
    seen = "the released models and figures"
    yield "readers of the model", seen, Adversary.READERS
    if run.parties < 2:
        return
    # A party knows its own noise share. Readers know no share; a colluder knows at least one.
    other = Adversary.READERS
    if shares is not None:
        other = Adversary.COLLUDERS if shares.colluders else Adversary.OTHERS
    yield "another party", "the models of all rounds, its own records and its own noise", other
    if any(row.adversary is Adversary.OTHERS for row in guarantee.accounts):
        seen = "everything except the one party's records and noise"
        yield "all other parties and the server together", seen, Adversary.OTHERS


def _format_bound(run: RunSummary, guarantee: GuaranteeSummary, adversary: Adversary | None) -> str:
    """Return a pair (ε, δ) that is proved against an adversary at least as strong, or a text
    without one.
    """
    if run.primary.noise.seeded:
        return "not bounded: the noise of this run came from a seed"
    stronger = adversary.list_at_least_as_strong() if adversary else ()
    bounded = (row for row in guarantee.accounts if row.epsilon is not None)
    found = [row for row in bounded if row.adversary in stronger]
    if not found:
        return "not bounded by any ε: it is trusted"
    least = min(found, key=lambda row: (row.epsilon or math.inf, row.delta))
    return f"at most {format_epsilon_delta(least.epsilon, least.delta)}"


def build_party_table(folder: Path) -> Table | None:
    """Return a table of real parties by their enrolled names, or None if there were none."""
    try:
        board: Any = parse_strict_json(read_text(folder / "parties.json"))
        rows = [[str(each["name"]), _format_party_state(each)] for each in board["parties"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Table(
        caption="Parties, by enrolled name, and their final state",
        head=["party", "in the last round"],
        rows=_truncate_rows(rows),
        prose=True,
    )


def _truncate_rows(rows: list[list[str]]) -> list[list[str]]:
    """Return at most `_MAX_ROWS` rows, and a last row with the number of the others."""
    left = len(rows) - _MAX_ROWS
    if left <= 0:
        return rows
    return [*rows[:_MAX_ROWS], [f"and {format_number(left)} more", *[""] * (len(rows[0]) - 1)]]


def _format_party_state(party: dict[str, Any]) -> str:
    from parley.server.rounds.party_status import PartyStatus  # noqa: PLC0415 - a simulation has no real parties

    state = "in the sum" if party["state"] == str(PartyStatus.UNMASKED) else str(party["state"])
    return f"{state} ({party['reason']})" if party["reason"] else state


def build_range_table(folder: Path) -> Table | None:
    """Return a table of the schema by which rows were read, or None if the folder has none."""
    try:
        schema = Schema.from_toml(read_text(folder / "schema.toml"))
    except (OSError, SchemaError):
        return None
    rows = [[name, column.kind, _format_values(column)] for name, column in schema.features.items()]
    label = [schema.label_column, "label", ", ".join(_get_label_names(schema))]
    return Table(
        caption="Public: ranges and categories used to read rows (values outside are clamped)",
        head=["column", "kind", "range or categories"],
        rows=[*_truncate_rows(rows), label],
        prose=True,
    )


def _format_values(column: object) -> str:
    if isinstance(column, CategoricalColumn):
        shown = [str(value) for value in column.categories]
        return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "")
    low, high = getattr(column, "range", ("", ""))
    return f"{low:g} to {high:g}"


def _get_label_names(schema: Schema) -> Sequence[str]:
    label = schema.label
    if label.range is not None:
        return [f"{label.range[0]:g} to {label.range[1]:g}"]
    return label.list_names("softmax" if label.classes is not None else "logistic")
