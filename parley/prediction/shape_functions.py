"""Compute each column's shape function: its contribution to a linear model's answer.

A model on linear splines, bins or plain columns is additive. A row's margin is a constant plus, for
each column, a function of only that column, divided by the row's length. A shape is that function
for a row of typical length, minus its mean over the shown points, which is moved to the constant.
It is piecewise linear for linear splines, has steps for bins, a bar per category, and is a line for
a plain number.

The band is the largest change of the shape by noise, 95 %: k·s·gain·‖φ − φ̄‖. φ are the features at
a point, s is the noise's standard deviation in each coordinate of a round's average, and `gain` is
the algorithm's (`parley.client.algorithms.noise_propagation`). k = 1.96 for Gaussian noise, and
2.98 for all other distributions here, whose densities fall on both sides of 0 (Vysochanskij &
Petunin 1980). The band does not cover the variation between samples of records.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.iterative_algorithm import HasNoiseGain
from parley.client.algorithms.registry import ALGORITHMS
from parley.client.algorithms.task_codec import decode_task
from parley.client.features.column_terms import (
    ColumnTerm,
    estimate_row_norm,
    format_spans,
    list_plain_terms,
)
from parley.prediction.fitted_model import FittedModel
from parley.privacy.mechanisms.registry import MECHANISMS
from parley.server.model_file import ModelFileError
from parley.server.statements.number_format import format_number

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
    """The shape function of one column or of a pair.

    Attributes:
        drawn: "line" through `values`, "steps" between the edges `values`, "bars" of `names`.
        curves: Label of each class, or of the prediction → contributions at the points, steps or
            bars.
        band: Half-widths there; None if no bound is known.
    """

    name: str
    drawn: str
    values: tuple[float, ...]
    names: tuple[str, ...]
    curves: Mapping[str, tuple[float, ...]]
    band: tuple[float, ...] | None

    @property
    def spread(self) -> float:
        """Largest difference between the contributions of one curve."""
        return max(max(each) - min(each) for each in self.curves.values())

    @property
    def steepest(self) -> list[str]:
        """Labels of the curves, the widest first."""
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
    """All shape functions of a model, the widest first.

    Attributes:
        of: The quantity to which contributions add up.
        row_length: Row length for which they are shown. With `fixed`, every row has it; otherwise
            another length scales all columns of a row alike.
        constants: Label → constant that is added to the columns' sum.
    """

    of: str
    row_length: float
    fixed: bool
    constants: Mapping[str, float]
    columns: tuple[ShapeFunction, ...]

    def select(self, name: str) -> ShapeFunctions:
        """Return the shape function of only this column.

        Raises:
            ModelFileError: there is no column with that name.
        """
        names = [each.name for each in self.columns]
        if name not in names:
            near = difflib.get_close_matches(name, names, n=3, cutoff=0)
            raise ModelFileError(f"Expected a column of the model, such as {near}, got {name!r}.")
        return replace(self, columns=(self.columns[names.index(name)],))

    def to_json(self) -> dict[str, Any]:
        """Return the shape functions as plain values."""
        return asdict(self)


def compute_shapes(model: FittedModel, summary: RunSummary | None = None) -> ShapeFunctions | None:
    """Return the shape functions of a linear model, or None if its features mix columns or it is
    not linear.

    Args:
        summary: Summary of the training run, which contains the scale of its noise.
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
    if len(labels) > 1:  # a contribution to all classes changes no answer
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
            halves = deviation * off * abs(factor) * _compute_lengths(block)
            band = tuple(_clear_rounding(halves).tolist())
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


def _list_blocks(model: FittedModel) -> tuple[ColumnTerm, ...]:
    if not hasattr(getattr(model.learned, "loss", None), "outputs") or model.components is not None:
        return ()  # a network
    if model.features is None:
        return list_plain_terms(model.schema)
    return model.features.list_column_terms(model.schema)


def _compute_lengths(block: ColumnTerm) -> NDArray[np.float64]:
    """Return `[n]` ‖φ − φ̄‖ at each point."""
    if block.features is None:
        return np.full(block.width, math.sqrt(1 - 1 / block.width))
    off = block.features - block.features.mean(axis=0)
    return np.asarray(np.sqrt((off**2).sum(axis=1)))


def _clear_rounding(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values with rounding errors replaced by 0."""
    return np.where(np.abs(values) > 1e-12 * np.abs(values).max(), values, 0.0)


def _describe_answer(model: FittedModel) -> tuple[float, str, list[str]]:
    """Return the value of one unit of margin, the quantity that margins add up to, and their
    labels.
    """
    label = model.schema.label_column
    if model.is_regression:
        return model.schema.label.scale.half, f"{label}, in its own units", [label]
    names = list(model.label_names)
    if model.learned.loss.outputs > 1:
        return 1.0, f"the log of a class's probability (of {label}; less all classes' mean)", names
    if model.to_probabilities(np.zeros(1)) is None:
        return 1.0, f"the score of {names[1]}", [names[1]]
    return 1.0, f"the log-odds of {names[1]}", [names[1]]


def _compute_deviation(model: FittedModel, summary: RunSummary | None) -> float | None:
    """Return k standard deviations of the noise in θ in any direction, or None without a bound."""
    if summary is None or model.task["kind"] not in ALGORITHMS:
        return None
    algorithm, noise, gain = decode_task(model.task), summary.primary.noise, None
    if isinstance(algorithm, HasNoiseGain):
        gain = algorithm.compute_noise_gain(summary.rounds_done)
    if gain is None or noise.expected_norm is None or not summary.dimension:
        return None
    normal = noise.law in MECHANISMS and bool(MECHANISMS[noise.law].calibrations)
    times = _GAUSSIAN if normal else _UNIMODAL
    return times * gain * noise.expected_norm / math.sqrt(summary.dimension)


def list_positions(shape: ShapeFunction) -> Sequence[str]:
    """Return the text of each point, step or bar of a shape."""
    if shape.drawn == "line":
        return [_format_position(value) for value in shape.values]
    return shape.names or format_spans(shape.values)


def _format_position(value: float) -> str:
    text = format_number(value, 4)
    return text.rstrip("0").rstrip(".") if "." in text and "×" not in text else text


def format_length(shapes: ShapeFunctions) -> str:
    """Describe for which rows the shapes hold."""
    if shapes.fixed:
        return "the same in every row"
    return (
        f"in a row of length {format_number(shapes.row_length)} before scaling (in a longer row "
        "every column counts less)"
    )
