"""How near synthetic records are to the records that made them, and to others of the same kind.

Known to a simulation alone.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.pair_tables import codes_of, named_pairs
from parley.client.data.record_codes import array_of
from parley.client.data.records import as_classes
from parley.client.data.schema import Schema
from parley.server.records.run_summary import RunSummary, Synthetic
from parley.server.synthetic.generation import GENERATORS
from parley.server.synthetic.synthetic_rows import first_rows
from parley.simulations.data.simulated_world import Experiment
from parley.simulations.metrics.evaluation import auc

_MOST = 2000
"""Records of each kind that are looked at: all distances between them are taken."""

Rows = NDArray[Any]


def closest_figures(
    drawn: Rows, train: Rows, held_out: Rows, rng: np.random.Generator, *, codes: bool
) -> dict[str, float | None]:
    """Distances, copies, and how well distance tells training records from held-out ones.

    Args:
        drawn, train, held_out: `[n, columns]` codes, or cells of arrays.
        rng: which of them are looked at: as many training records as held-out ones.
        codes: a distance is the share of columns that differ; otherwise the root mean square.
    """
    count = min(_MOST, len(train), len(held_out))
    if not count or not len(drawn):
        return {}

    def some(rows: Rows, most: int) -> Rows:
        return rows[rng.choice(len(rows), most, replace=False)]

    made = some(drawn, min(_MOST, len(drawn)))
    distances = [_distances(made, some(rows, count), codes) for rows in (train, held_out)]
    own, other = (found.min(axis=1) for found in distances)
    scores = np.concatenate([-found.min(axis=0) for found in distances])
    return {
        "copies": float(np.mean(own == 0)),
        "held_out_copies": float(np.mean(other == 0)),
        "nearest": float(np.mean(own)),
        "held_out_nearest": float(np.mean(other)),
        "membership_auc": auc(scores, np.arange(2 * count) < count),
    }


def _distances(one: Rows, other: Rows, codes: bool) -> NDArray[np.float64]:
    """`[a, b]` of rows `[a, p]` and `[b, p]`."""
    if codes:
        found = np.zeros((len(one), len(other)), np.int32)
        for column in range(one.shape[1]):
            found += one[:, column, None] != other[None, :, column]
        return np.asarray(found / one.shape[1])
    one, other = one.astype(np.float64), other.astype(np.float64)
    squares = (one**2).sum(1)[:, None] + (other**2).sum(1)[None] - 2 * one @ other.T
    return np.asarray(np.sqrt(np.maximum(squares, 0) / one.shape[1]))


_MOST_ROWS = 100_000
"""Rows that a model is fitted to."""

_MOST_ARRAYS = 10_000
"""Arrays that one is fitted to."""

_LOOKED_AT = 1_000_000
"""Of a table that is longer, the first so many rows are compared with the records."""

Codes = NDArray[np.int64]
Labelled = tuple[NDArray[Any], NDArray[Any]]
Figures = dict[str, float | None]


def with_table_figures(
    summary: RunSummary,
    table: Synthetic,
    counted: Any,
    settings: Any,
    tensors: dict[str, NDArray[Any]],
    world: Experiment,
) -> RunSummary:
    """The summary with the table, and with figures that look at the records, marked so."""
    figures = _figures(table, counted, settings, tensors, world)
    marked = tuple(f"synthetic.{name}" for name in figures)
    return summary.adding(
        synthetic=table.model_copy(update=figures),
        simulation_only=(*summary.simulation_only, *marked),
    )


def _figures(
    table: Synthetic,
    counted: Any,
    settings: Any,
    tensors: dict[str, NDArray[Any]],
    world: Experiment,
) -> Figures:
    row, schema = GENERATORS[counted.kind], Schema.from_toml(world.data.schema)
    drawn = first_rows(row.rows(counted, schema, tensors, table.rows, table.seed), _LOOKED_AT)
    exact = counted.summed(world.block.features, world.block.labels)
    free, _ = row.fit(counted, schema, settings, exact)
    count = len(world.block.labels)
    twin = first_rows(row.rows(counted, schema, free, count, table.seed), _LOOKED_AT)
    rng = np.random.default_rng(table.seed)
    if counted.columns:
        return _table_figures(drawn, twin, counted.columns, world, rng)
    return _array_figures(drawn, twin, schema, counted.classes, world, rng)


def _table_figures(
    drawn: Codes,
    twin: Codes,
    sizes: tuple[int, ...],
    world: Experiment,
    rng: np.random.Generator,
) -> Figures:
    train = codes_of(world.block.features, world.block.labels, sizes)
    alone = np.stack([rng.permutation(column) for column in train.T], axis=1)
    tv1, tv2 = distances(drawn, train, sizes)
    figures: Figures = {"tv1": tv1, "tv2": tv2}
    figures["independent_tv2"] = distances(alone, train, sizes)[1]
    if not len(world.test_labels):
        return figures
    test = codes_of(world.test_features, _test_classes(world, sizes[-1]), sizes)
    figures["held_out_tv2"] = distances(test, train, sizes)[1]
    for name, rows in (("tstr", drawn), ("real", train)):
        found = learned(rows, test, sizes) | learned_by_trees(rows, test, sizes)
        figures |= {f"{name}_{each}": value for each, value in found.items()}
    figures["twin_auc"] = learned(twin, test, sizes)["auc"]
    figures["independent_auc"] = learned(alone, test, sizes)["auc"]
    figures["majority_accuracy"] = _majority(train[:, -1], test[:, -1])
    return figures | closest_figures(drawn, train, test, rng, codes=True)


def _array_figures(
    drawn: NDArray[Any],
    twin: NDArray[Any],
    schema: Schema,
    classes: int,
    world: Experiment,
    rng: np.random.Generator,
) -> Figures:
    """Of arrays: whether a classifier that is fitted to them knows the real ones."""
    if not len(world.test_labels):
        return {}
    train, test = (_shares(rows, schema) for rows in (world.block.features, world.test_features))
    truth = _test_classes(world, classes)
    real = np.concatenate([train, np.asarray(world.block.labels, np.float32)[:, None]], axis=1)
    real = real[rng.permutation(len(real))[:_MOST_ARRAYS]]
    figures = {
        f"{name}_accuracy": _fitted(
            _logistic(max_iter=100, tol=1e-3),
            (rows[:_MOST_ARRAYS, :-1], rows[:_MOST_ARRAYS, -1].astype(np.int64)),
            (test, truth),
        )["accuracy"]
        for name, rows in (("tstr", drawn), ("real", real), ("twin", twin))
    }
    figures["majority_accuracy"] = _majority(np.asarray(world.block.labels, np.int64), truth)
    return figures | closest_figures(drawn[:, :-1], train, test, rng, codes=False)


def _shares(rows: NDArray[Any], schema: Schema) -> NDArray[np.float32]:
    """`[n, p]` where in its range every entry lies, of rows as the map `codes` gives them."""
    found = array_of(schema)
    if found is None:
        raise ValueError("Expected records that are arrays, got others.")
    low, high = found[1].encode(np.array(found[1].range, np.float64)).tolist()
    cells = rows.astype(np.float32) * np.float32(math.sqrt(rows.shape[1]))
    return np.asarray(np.clip((cells - low) / (high - low), 0, 1), np.float32)


def _test_classes(world: Experiment, classes: int) -> Codes:
    listed = classes if np.issubdtype(world.test_labels.dtype, np.integer) else 0
    return as_classes(world.test_labels, listed)[0]


def distances(one: Codes, other: Codes, sizes: tuple[int, ...]) -> tuple[float, float]:
    """Mean total variation over columns, and over pairs of columns."""
    columns = [_variation(one[:, i], other[:, i], size) for i, size in enumerate(sizes)]
    pairs = [
        _variation(one[:, i] * sizes[j] + one[:, j], other[:, i] * sizes[j] + other[:, j], most)
        for i, j in named_pairs("all", len(sizes))
        for most in [sizes[i] * sizes[j]]
    ]
    return float(np.mean(columns)), float(np.mean(pairs))


def _variation(one: Codes, other: Codes, size: int) -> float:
    shares = [np.bincount(each, minlength=size) / len(each) for each in (one, other)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def learned(rows: Codes, test: Codes, sizes: tuple[int, ...]) -> Figures:
    """AUC and accuracy of logistic regression, of the last column by the others."""
    made, held = ((_indicators(each, sizes), each[:, -1]) for each in (rows[:_MOST_ROWS], test))
    return _fitted(_logistic(max_iter=300), made, held)


def learned_by_trees(rows: Codes, test: Codes, sizes: tuple[int, ...]) -> Figures:
    """AUC of boosted trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415 - start-up: `run` without synthetic rows (scikit-learn takes a second)

    del sizes
    made, held = ((each[:, :-1], each[:, -1]) for each in (rows[:_MOST_ROWS], test))
    return {"trees_auc": _fitted(HistGradientBoostingClassifier(random_state=0), made, held)["auc"]}


def _logistic(**settings: float) -> Any:
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - start-up: `run` without synthetic rows (scikit-learn takes a second)

    return LogisticRegression(**settings)


def _fitted(model: Any, made: Labelled, held: Labelled) -> Figures:
    """AUC and accuracy on records that a classifier was not fitted to; None of one label."""
    if len(np.unique(made[1])) < 2 or len(np.unique(held[1])) < 2:
        return {"auc": None, "accuracy": None}
    classes, chances = model.fit(*made).classes_, model.predict_proba(held[0])
    sides = range(len(classes)) if len(classes) > 2 else (1,)
    found = [auc(chances[:, at], held[1] == classes[at]) for at in sides]
    known = [each for each in found if each is not None]
    return {
        "auc": float(np.mean(known)) if known else None,
        "accuracy": float((classes[chances.argmax(axis=1)] == held[1]).mean()),
    }


def _majority(labels: Codes, truth: Codes) -> float:
    """Accuracy of always answering the training records' commonest label."""
    return float((truth == np.bincount(labels).argmax()).mean())


def _indicators(rows: Codes, sizes: tuple[int, ...]) -> NDArray[np.float32]:
    starts = np.cumsum([0, *sizes[:-1]])
    ones = np.zeros((len(rows), int(starts[-1])), np.float32)
    for column, (begin, _) in enumerate(pairwise(starts)):
        ones[np.arange(len(rows)), begin + rows[:, column]] = 1
    return ones
