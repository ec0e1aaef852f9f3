"""A model in at most 15 lines of 80 columns: what it predicts, its promise, its main columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from parley.presentation.short_guarantee import list_promise_rows
from parley.presentation.short_layout import Row, format_rows
from parley.privacy.accounting.rounding import format_rounded_up
from parley.safe_io.plurals import format_noun
from parley.server.jobs.section_registry import MODELS
from parley.server.statements.number_format import format_number

if TYPE_CHECKING:
    from parley.prediction.estimator import Estimator
    from parley.prediction.shape_functions import ShapeFunction, ShapeFunctions
    from parley.server.records.run_summary import RunSummary

_MAX_COLUMNS = 5


def list_model_lines(
    model: Estimator, summary: RunSummary | None, shapes: ShapeFunctions | None
) -> list[str]:
    """Return the lines of a model.

    Args:
        summary: Of the run that trained it; None if only the model file is known.
        shapes: None if columns do not add up to the model's answer.
    """
    if summary is None:
        assumed = model.statement.get("parley.assumptions", "[]")
        promise = [
            Row("Privacy", _format_stated_privacy(model)),
            Row("Assuming", "" if assumed == "[]" else assumed),
        ]
    else:
        promise = [row for row in list_promise_rows(summary.guarantees) if row.title != "Risk"]
    rows = [Row("", _format_subject(model, summary)), *promise]
    return format_rows(rows + ([] if shapes is None else [_build_column_row(shapes)]))


def _format_subject(model: Estimator, summary: RunSummary | None) -> str:
    """Return what the model predicts from how many columns."""
    title = _format_kind(model, summary)
    columns = f"{model.n_features_in_:,} {format_noun(model.n_features_in_, 'column')}"
    said = f"{title[:1].upper()}{title[1:]} on {columns}, predicts {model.schema.label_column}"
    return f"{said}: {', '.join(model.label_names)}" if len(model.label_names) else said


def _format_kind(model: Estimator, summary: RunSummary | None) -> str:
    """Return what kind of model it is, in words if it is one of Parley's."""
    loss = model.task.get("model", {}).get("loss", {}).get("kind", model.label)
    kind = str(loss) if summary is None else summary.model
    return MODELS[kind].title if kind in MODELS else f"model {kind}"


def _format_stated_privacy(model: Estimator) -> str:
    """Return the promise in a model file that has no run folder."""
    stated = model.statement
    epsilon = stated.get("parley.epsilon", "")
    try:
        cost = f"ε = {format_rounded_up(float(epsilon), 4)} at δ = {stated['parley.delta']}"
    except (ValueError, KeyError):
        return epsilon or "none is stated"
    return f"{cost}, per {stated.get('parley.unit')} ({stated.get('parley.neighbouring')})"


def _build_column_row(shapes: ShapeFunctions) -> Row:
    """Return the columns that move the answer furthest, and more than the noise may."""
    clear = [shape for shape in shapes.columns if not shape.within_noise]
    if not clear:
        return Row("Strongest", "no column's effect exceeds what the noise may have moved (95%)")
    listed = clear[:_MAX_COLUMNS]
    others = len(shapes.columns) - len(listed)
    rest = f"; {others} others move it less, or within the noise" if others else ""
    effects = ", ".join(map(_format_effect, listed))
    return Row("Strongest", f"{effects} (on {shapes.of}{rest})", rank=2)


def _format_effect(shape: ShapeFunction) -> str:
    """Return a column's smallest and largest effect.

    >>> from parley.prediction.shape_functions import ShapeFunction
    >>> curves = {"yes": (-0.5, 0.0, 0.5)}
    >>> _format_effect(ShapeFunction(name="age", drawn="line", values=(0, 5, 9), names=(),
    ...     curves=curves, band=None))
    'age −0.50 to 0.50'
    """
    label = shape.steepest[0]
    curve: Sequence[float] = shape.curves[label]
    low, high = format_number(min(curve), 2), format_number(max(curve), 2)
    named = f"{shape.name} ({label})" if len(shape.curves) > 1 else shape.name
    return f"{named} {low} to {high}"
