"""What a synthetic table came to, in words: for terminal and report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.server.records.numerals import byte_text, number
from parley.server.records.result_words import Measured

if TYPE_CHECKING:
    from parley.server.records.planned import SyntheticOutlook
    from parley.server.records.summary import RunSummary
    from parley.server.records.synthetic import Synthetic


def cell_noise(run: RunSummary) -> float:
    """Standard deviation of the noise on a released count, that of all shares; 0: not known."""
    noise = run.primary.noise
    return (noise.scale_of_sum or 0.0) * (noise.shares.inflation if noise.shares else 1.0)


def release_ahead(ahead: SyntheticOutlook | None) -> str:
    """What a plan says of the release: its size, its noise beside what it holds."""
    if ahead is None:
        return ""
    said = (
        f"{ahead.released}, {byte_text(ahead.vector_bytes)} a party; Δ₂ of the sum "
        f"{number(ahead.sensitivity, 4)}; noise of standard deviation "
        f"{number(ahead.noise, 3)} on each"
    )
    if ahead.average is not None:
        said += f", the average cell holds {number(ahead.average, 3)} records"
    said += f"; on the mean over the records the noise is about {number(ahead.noise_norm, 3)} long"
    if ahead.largest:
        named = ", ".join(f"{name} ({size:,} values)" for name, size in ahead.largest)
        said += f". The largest columns: {named}"
    return said


def table_said(run: RunSummary) -> str:
    """What was drawn from what; empty where a run makes no table."""
    table = run.synthetic
    if table is None:
        return ""
    said = (
        f"{table.rows:,} rows in {table.path}, drawn from {_released(table)} that say there are "
        f"about {round(table.records):,} records"
    )
    drawn = cell_noise(run)
    if table.tables and drawn and run.dimension:
        average = table.records * table.tables / run.dimension
        said += (
            f"; a cell's noise has the standard deviation {number(drawn, 3)}, the average cell "
            f"holds {number(average, 3)}"
        )
    return said


def _released(table: Synthetic) -> str:
    if table.tables:
        return f"{table.tables} noisy tables"
    return f"the noisy sums of random features of {table.classes} classes"


_MEASURED = (
    ("columns, mean total variation to the records", "tv1", None),
    ("pairs of columns, mean total variation", "tv2", None),
    ("area under the ROC curve, logistic regression on it", "tstr_auc", "real_auc"),
    ("the same, on the table without noise", "twin_auc", None),
    ("the same, on independent columns", "independent_auc", None),
    ("area under the ROC curve, boosted trees on it", "tstr_trees_auc", "real_trees_auc"),
    ("accuracy, logistic regression on it", "tstr_accuracy", "real_accuracy"),
    ("the same, on what is drawn without noise", "twin_accuracy", None),
    ("the same, always answering the commonest label", None, "majority_accuracy"),
)

_CLOSEST = (
    ("rows that equal one of them", "copies", "held_out_copies"),
    ("mean distance of a row to the closest", "nearest", "held_out_nearest"),
)


def table_measured(run: RunSummary) -> tuple[Measured, ...]:
    """How near the table is to the records, where a simulation knows; beside the records'."""
    return _rows(run.synthetic, _MEASURED)


def closest_measured(run: RunSummary) -> tuple[Measured, ...]:
    """How near rows are to training records, and beside it to as many held-out ones."""
    return _rows(run.synthetic, _CLOSEST)


def closest_said(run: RunSummary) -> str:
    """How well a record's distance to the closest row tells whether it was among the records."""
    table = run.synthetic
    if table is None or table.membership_auc is None:
        return ""
    return (
        "Information, and no evidence of privacy: whether a record was among them is judged by "
        f"others by its distance to the closest row with an AUC of "
        f"{number(table.membership_auc, 3)} (.5 is chance). The guarantee is the ε above."
    )


def _rows(
    table: Synthetic | None, named: tuple[tuple[str, str | None, str | None], ...]
) -> tuple[Measured, ...]:
    """Those of which one is known at least."""

    def shown(key: str | None) -> str:
        value = None if key is None else getattr(table, key)
        return "" if value is None else number(value, 4)

    every = () if table is None else named
    rows = [
        Measured(name=name, private=shown(own), non_private=shown(other))
        for name, own, other in every
    ]
    return tuple(row for row in rows if row.private or row.non_private)
