"""Format a run's synthetic rows: what they were drawn from, and how close to records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.server.statements.number_format import format_number

if TYPE_CHECKING:
    from parley.server.records.run_summary import RunSummary, SyntheticSummary


def compute_cell_noise(run: RunSummary) -> float:
    """Return the standard deviation of all noise shares on a released count; 0 if not known."""
    noise = run.primary.noise
    return (noise.scale_of_sum or 0.0) * (noise.shares.inflation if noise.shares else 1.0)


def format_table(run: RunSummary, table: SyntheticSummary) -> str:
    """Format what was drawn from which release."""
    said = (
        f"{table.rows:,} rows in {table.path}, drawn from {_format_released(table)} according to "
        f"which there are about {round(table.records):,} records"
    )
    drawn = compute_cell_noise(run)
    if table.tables and drawn and run.dimension:
        average = table.records * table.tables / run.dimension
        said += (
            f"; a cell's noise has the standard deviation {format_number(drawn, 3)}, the average "
            f"cell holds {format_number(average, 3)}"
        )
    return said


def _format_released(table: SyntheticSummary) -> str:
    if table.tables:
        return f"{table.tables} noisy tables"
    return f"the noisy sums of random features of {table.classes} classes"


_TABLE_METRICS = (
    ("columns, mean total variation to the records", "tv1", None),
    ("pairs of columns, mean total variation", "tv2", None),
    ("area under the ROC curve, logistic regression on it", "tstr_auc", "real_auc"),
    ("the same, on the table without noise", "twin_auc", None),
    ("the same, on independent columns", "independent_auc", None),
    ("area under the ROC curve, boosted trees on it", "tstr_trees_auc", "real_trees_auc"),
    ("accuracy, logistic regression on it", "tstr_accuracy", "real_accuracy"),
    ("the same, on records drawn without noise", "twin_accuracy", None),
    ("the same, always predicting the most common label", None, "majority_accuracy"),
)
_CLOSENESS_METRICS = (
    ("rows that equal one of them", "copies", "held_out_copies"),
    ("mean distance of a row to the closest", "nearest", "held_out_nearest"),
)


def list_table_metrics(table: SyntheticSummary) -> list[list[str]]:
    """List the table's similarity to the records, if known, next to that of records: table rows."""
    return _build_metric_rows(table, _TABLE_METRICS)


def list_closeness_metrics(table: SyntheticSummary) -> list[list[str]]:
    """List how near rows are to training records, next to the same number of held-out ones."""
    return _build_metric_rows(table, _CLOSENESS_METRICS)


def format_closeness(table: SyntheticSummary) -> str:
    """Format how well a record's distance to the closest row predicts its membership."""
    if table.membership_auc is None:
        return ""
    return (
        "For information only, not evidence of privacy: a record's distance to the closest row "
        "predicts whether it was among them with an AUC of "
        f"{format_number(table.membership_auc, 3)} (0.5 is chance). The guarantee is the ε above."
    )


def _build_metric_rows(
    table: SyntheticSummary, named: tuple[tuple[str, str | None, str | None], ...]
) -> list[list[str]]:
    """Return the rows with at least one known value."""

    def shown(key: str | None) -> str:
        value = None if key is None else getattr(table, key)
        return "" if value is None else format_number(value, 4)

    rows = [[name, shown(own), shown(other)] for name, own, other in named]
    return [row for row in rows if any(row[1:])]
