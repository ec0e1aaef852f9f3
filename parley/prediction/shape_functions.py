"""What each column adds to a linear model's answer, along the column: its shape.

A model on hats, bins or plain columns is additive: a row's margin is a constant and, for each
column, a function of that column alone, over the row's length. A shape is that function, for a row
of typical length, less its mean over the points shown (the constant takes it): piecewise linear
over hats, steps over bins, a bar for each category, a line for a plain number.

The band is what the noise alone may have moved the shape, 95 %: k·s·gain·‖φ − φ̄‖, φ the features
at a point, s the noise's standard deviation in each coordinate of a round's average, `gain` the
algorithm's (`parley.client.algorithms.compute_noise_gain`), k = 1.96 for Gaussian noise and 2.98
for any other law here, whose densities fall off from 0 on both sides (Vysochanskij & Petunin 1980).
It says nothing of what another draw of records would give.

Also here: the shapes of a model's columns as text, a spark line for each, or the table of one.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.iterative import HasNoiseGain
from parley.client.algorithms.registry import ALGORITHMS, decode_task
from parley.client.features.column_terms import (
    ColumnTerm,
    estimate_row_norm,
    format_spans,
    list_plain_terms,
)
from parley.prediction.fitted_model import Model
from parley.privacy.mechanisms.registry import MECHANISMS
from parley.server.model_file import ModelFileError
from parley.server.records.number_format import format_number

if TYPE_CHECKING:
    from parley.server.records.run_summary import RunSummary


_GAUSSIAN, _UNIMODAL = 1.96, 2.98
NO_BAND = (
    "no band: what the noise moved is bounded for steps with noise on an average gradient of all "
    "records (not for softmax with clipped gradients, nor where parties' sizes are private) and "
    "for noise on the model itself, in a run's folder that says how large it was"
)


@dataclass(frozen=True, kw_only=True)
class ShapeFunction:
    """One column's, or a pair's.

    Attributes:
        drawn: "line" through `values`, "steps" between the edges `values`, "bars" of `names`.
        curves: label of each class, or what is predicted, → contributions at the points, steps or
            bars.
        band: half-widths there; None: no bound is known.
    """

    name: str
    drawn: str
    values: tuple[float, ...]
    names: tuple[str, ...]
    curves: Mapping[str, tuple[float, ...]]
    band: tuple[float, ...] | None

    @property
    def spread(self) -> float:
        """Between the largest and the smallest contribution of one curve, the most of all."""
        return max(max(each) - min(each) for each in self.curves.values())

    @property
    def steepest(self) -> list[str]:
        """The curves' labels, the widest first."""
        return sorted(self.curves, key=lambda of: min(self.curves[of]) - max(self.curves[of]))

    @property
    def within_noise(self) -> bool:
        """Whether every curve stays within the band around 0."""
        band = self.band
        return band is not None and all(
            abs(value) <= half
            for each in self.curves.values()
            for value, half in zip(each, band, strict=True)
        )


@dataclass(frozen=True, kw_only=True)
class ShapeFunctions:
    """All of a model, the widest first.

    Attributes:
        of: what contributions are added up to.
        row_length: that they are shown for; `fixed`: every row has it, otherwise a row of another
            length scales all of its columns alike.
        constants: label → what is added to the columns' sum.
    """

    of: str
    row_length: float
    fixed: bool
    constants: Mapping[str, float]
    columns: tuple[ShapeFunction, ...]

    def select(self, name: str) -> ShapeFunctions:
        """With this column alone.

        Raises:
            ModelFileError: there is none of that name.
        """
        names = [each.name for each in self.columns]
        if name not in names:
            near = difflib.get_close_matches(name, names, n=3, cutoff=0)
            raise ModelFileError(f"Expected a column of the model, such as {near}, got {name!r}.")
        return replace(self, columns=(self.columns[names.index(name)],))

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def compute_shapes(model: Model, summary: RunSummary | None = None) -> ShapeFunctions | None:
    """The shapes of a linear model; None for another, or one whose features mix columns.

    Args:
        summary: of the run that learned it: says how large its noise was.
    """
    blocks = _list_blocks(model)
    if not blocks:
        return None
    mapped = model.features is not None
    length = estimate_row_norm(model.schema, blocks, mapped=mapped)
    unit, of, labels = _describe_answer(model)
    factor = unit / length / (math.sqrt(2) if model.intercept else 1)
    theta = model.theta.reshape(len(labels), -1)
    deviation, off = _compute_deviation(model, summary), 1.0
    if len(labels) > 1:  # what all classes share moves no answer
        theta, off = theta - theta.mean(axis=0), math.sqrt(1 - 1 / len(labels))
    constants = theta[:, -1] * unit / math.sqrt(2) if model.intercept else np.zeros(len(labels))
    columns = []
    for block in blocks:
        own = theta[:, block.begin : block.begin + block.width]
        features = block.features
        values = own if features is None else own @ features.T  # [labels, points]
        middle = values.mean(axis=1)
        constants = constants + middle * factor
        centred = _clear_rounding((values - middle[:, None]) * factor)
        band = None
        if deviation is not None:
            band = tuple(
                _clear_rounding(deviation * off * abs(factor) * _compute_lengths(block)).tolist()
            )
        columns.append(
            ShapeFunction(
                name=block.name,
                drawn=block.drawn,
                values=block.values,
                names=block.names,
                curves=dict(zip(labels, map(tuple, centred.tolist()), strict=True)),
                band=band,
            )
        )
    return ShapeFunctions(
        of=of,
        row_length=length,
        fixed=all(block.drawn != "line" for block in blocks)
        or (not mapped and model.schema.scaling == "schema"),
        constants=dict(zip(labels, constants.tolist(), strict=True)),
        columns=tuple(sorted(columns, key=lambda each: -each.spread)),
    )


def _list_blocks(model: Model) -> tuple[ColumnTerm, ...]:
    loss = getattr(model.learned, "loss", None)
    if not hasattr(loss, "outputs") or model.components is not None:
        return ()  # a network
    if model.features is None:
        return list_plain_terms(model.schema)
    return model.features.list_column_terms(model.schema)


def _compute_lengths(block: ColumnTerm) -> NDArray[np.float64]:
    """`[n]` ‖φ − φ̄‖ at each point."""
    if block.features is None:
        return np.full(block.width, math.sqrt(1 - 1 / block.width))
    off = block.features - block.features.mean(axis=0)
    return np.asarray(np.sqrt((off**2).sum(axis=1)))


def _clear_rounding(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """With 0 where rounding alone left something."""
    return np.where(np.abs(values) > 1e-12 * np.abs(values).max(), values, 0.0)


def _describe_answer(model: Model) -> tuple[float, str, list[str]]:
    """What one of margin is worth, what margins add up to, and whose each is."""
    label = model.schema.label_column
    if model.is_regression:
        return model.schema.label.scale.half, f"{label}, in its own units", [label]
    names = list(model.label_names)
    if model.learned.loss.outputs > 1:
        return 1.0, f"the log of a class's probability (of {label}; less all classes' mean)", names
    if model.to_probabilities(np.zeros(1)) is None:
        return 1.0, f"the score of {names[1]}", [names[1]]
    return 1.0, f"the log-odds of {names[1]}", [names[1]]


def _compute_deviation(model: Model, summary: RunSummary | None) -> float | None:
    """k standard deviations of the noise in θ, along any direction; None: no bound is known."""
    if summary is None or model.task["kind"] not in ALGORITHMS:
        return None
    algorithm, noise = decode_task(model.task), summary.primary.noise
    gain = (
        algorithm.compute_noise_gain(summary.rounds_done)
        if isinstance(algorithm, HasNoiseGain)
        else None
    )
    if gain is None or noise.expected_norm is None or not summary.dimension:
        return None
    normal = noise.law in MECHANISMS and bool(MECHANISMS[noise.law].calibrations)
    times = _GAUSSIAN if normal else _UNIMODAL
    return times * gain * noise.expected_norm / math.sqrt(summary.dimension)


_SPARK_LEVELS = "▁▂▃▄▅▆▇█"
_MAX_COLUMNS = 30
"""Columns that are listed."""


def format_overview(shapes: ShapeFunctions) -> Iterator[str]:
    """A line for each column, the widest first."""
    yield f"columns       by what they add to {shapes.of}; {format_length(shapes)}"
    banded = shapes.columns[0].band is not None
    yield "              " + (
        "± at most: what the noise alone may have moved, 95 %; · no more than that"
        if banded
        else NO_BAND
    )
    shown = shapes.columns[:_MAX_COLUMNS]
    wide = min(max(len(each.name) for each in shown), 30)
    for each in shown:
        of = each.steepest[0]
        mark = "·" if each.within_noise else " "
        noise = f"  ± {format_number(max(each.band), 2)}" if each.band else ""
        label = f"  ({of})" if len(each.curves) > 1 else ""
        yield (
            f"{mark} {each.name[:30]:<{wide}}  {format_sparkline(each.curves[of]):<12}  "
            f"{_format_extremes(each, each.curves[of])}{noise}{label}"
        )
    if left := len(shapes.columns) - len(shown):
        yield f"  and {left} more; --json has all of them"
    yield "  --column NAME shows one in full"


def format_shape(shapes: ShapeFunctions) -> Iterator[str]:
    """One column's points, steps or bars, every curve."""
    (shape,) = shapes.columns
    yield f"{shape.name}: what it adds to {shapes.of}; {format_length(shapes)}"
    labels = list(shape.curves)
    rows = [["", *labels, *(["± noise, 95 %"] if shape.band else [])]]
    for at, place in enumerate(list_positions(shape)):
        rows.append([place, *(format_number(shape.curves[of][at]) for of in labels)])
        if shape.band:
            rows[-1].append(format_number(shape.band[at], 2))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        yield f"{first:<{widths[0]}}  {'  '.join(cells)}"
    if shape.band is None:
        yield NO_BAND


def list_positions(shape: ShapeFunction) -> Sequence[str]:
    """What each point, step or bar of a shape stands at."""
    if shape.drawn == "line":
        return [_format_position(value) for value in shape.values]
    return shape.names or format_spans(shape.values)


def _format_position(value: float) -> str:
    text = format_number(value, 4)
    return text.rstrip("0").rstrip(".") if "." in text and "×" not in text else text


def format_length(shapes: ShapeFunctions) -> str:
    """For which rows."""
    if shapes.fixed:
        return "the same in every row"
    return (
        f"in a row of length {format_number(shapes.row_length)} before it is scaled (a longer "
        "row's columns all count less)"
    )


def format_sparkline(values: Sequence[float]) -> str:
    """The values as blocks of eight heights, at most twelve of them.

    >>> format_sparkline((-1, 0, 1))
    '▁▅█'
    """
    step = max((len(values) - 1) / 11, 1)
    chosen = [values[round(at * step)] for at in range(min(len(values), 12))]
    low, high = min(chosen), max(chosen)
    if not high > low:
        return _SPARK_LEVELS[0] * len(chosen)
    return "".join(_SPARK_LEVELS[min(int((each - low) / (high - low) * 8), 7)] for each in chosen)


def _format_extremes(shape: ShapeFunction, curve: Sequence[float]) -> str:
    """Where it is lowest and highest."""
    named = list_positions(shape)
    low, high = min(curve), max(curve)
    return (
        f"{format_number(low, 2)} at {named[curve.index(low)]}, "
        f"{format_number(high, 2)} at {named[curve.index(high)]}"
    )
