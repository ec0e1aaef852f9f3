"""Measure how near synthetic records are to the training records, and to held-out ones.

Only a simulation knows these metrics.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.pair_tables import encode_rows, list_pairs
from parley.client.data.class_indices import to_classes
from parley.client.data.record_discretization import find_array_column
from parley.client.data.schema import Schema
from parley.server.records.run_summary import RunSummary, SyntheticSummary
from parley.server.synthetic.registry import GENERATORS
from parley.server.synthetic.synthetic_rows import take_rows
from parley.simulations.data.simulated_experiment import Experiment
from parley.simulations.metrics.evaluation import compute_auc

_MOST = 2000
"""Maximum number of records of each kind; all distances between them are computed."""

Rows = NDArray[Any]


def compute_closeness(
    synthetic: Rows, train: Rows, held_out: Rows, rng: np.random.Generator, *, codes: bool
) -> dict[str, float | None]:
    """Return distances, copies, and how well distance separates training from held-out records.

    Args:
        synthetic, train, held_out: `[n, columns]` codes, or cells of arrays.
        rng: chooses the records: the same number of training and of held-out ones.
        codes: whether a distance is the share of columns that differ; else the root mean square.
    """
    count = min(_MOST, len(train), len(held_out))
    if not count or not len(synthetic):
        return {}

    def some(rows: Rows, most: int) -> Rows:
        return rows[rng.choice(len(rows), most, replace=False)]

    made = some(synthetic, min(_MOST, len(synthetic)))
    distances = [_compute_distances(made, some(rows, count), codes) for rows in (train, held_out)]
    own, other = (found.min(axis=1) for found in distances)
    scores = np.concatenate([-found.min(axis=0) for found in distances])
    return {
        "copies": float(np.mean(own == 0)),
        "held_out_copies": float(np.mean(other == 0)),
        "nearest": float(np.mean(own)),
        "held_out_nearest": float(np.mean(other)),
        "membership_auc": compute_auc(scores, np.arange(2 * count) < count),
    }


def _compute_distances(first: Rows, second: Rows, codes: bool) -> NDArray[np.float64]:
    """Return `[a, b]` the distances of rows `[a, p]` and `[b, p]`."""
    if codes:
        found = np.zeros((len(first), len(second)), np.int32)
        for column in range(first.shape[1]):
            found += first[:, column, None] != second[None, :, column]
        return np.asarray(found / first.shape[1])
    first, second = first.astype(np.float64), second.astype(np.float64)
    squares = (first**2).sum(1)[:, None] + (second**2).sum(1)[None] - 2 * first @ second.T
    return np.asarray(np.sqrt(np.maximum(squares, 0) / first.shape[1]))


_MOST_ROWS = 100_000
"""Maximum number of rows that a model is fitted to."""

_MOST_ARRAYS = 10_000
"""Maximum number of arrays that a model is fitted to."""

_LOOKED_AT = 1_000_000
"""Maximum number of rows that are compared with the records: the first ones."""

Codes = NDArray[np.int64]
Labelled = tuple[NDArray[Any], NDArray[Any]]
Figures = dict[str, float | None]


def add_table_metrics(
    summary: RunSummary,
    table: SyntheticSummary,
    algorithm: Any,
    settings: Any,
    tensors: dict[str, NDArray[Any]],
    experiment: Experiment,
) -> RunSummary:
    """Return the summary with the table, and with metrics on the records, marked as such."""
    row, schema = GENERATORS[algorithm.kind], Schema.from_toml(experiment.data.schema)
    drawn = take_rows(row.draw(algorithm, schema, tensors, table.rows, table.seed), _LOOKED_AT)
    exact = algorithm.sum_records(experiment.block.dense_features, experiment.block.labels)
    free, _ = row.fit(algorithm, schema, settings, exact)
    count = len(experiment.block.labels)
    twin = take_rows(row.draw(algorithm, schema, free, count, table.seed), _LOOKED_AT)
    rng = np.random.default_rng(table.seed)
    if algorithm.columns:
        figures = _compute_table_metrics(drawn, twin, algorithm.columns, experiment, rng)
    else:
        figures = _compute_array_metrics(drawn, twin, schema, algorithm.classes, experiment, rng)
    marked = tuple(f"synthetic.{name}" for name in figures)
    return summary.with_fields(
        synthetic=table.model_copy(update=figures),
        simulation_only=(*summary.simulation_only, *marked),
    )


def _compute_table_metrics(
    synthetic: Codes,
    non_private: Codes,
    sizes: tuple[int, ...],
    experiment: Experiment,
    rng: np.random.Generator,
) -> Figures:
    train = encode_rows(experiment.block.dense_features, experiment.block.labels, sizes)
    alone = np.stack([rng.permutation(column) for column in train.T], axis=1)
    tv1, tv2 = compute_variation(synthetic, train, sizes)
    figures: Figures = {"tv1": tv1, "tv2": tv2}
    figures["independent_tv2"] = compute_variation(alone, train, sizes)[1]
    if not len(experiment.test_labels):
        return figures
    classes = _get_test_classes(experiment, sizes[-1])
    test = encode_rows(np.asarray(experiment.test_features), classes, sizes)
    figures["held_out_tv2"] = compute_variation(test, train, sizes)[1]
    for name, rows in (("tstr", synthetic), ("real", train)):
        found = evaluate_logistic(rows, test, sizes) | evaluate_trees(rows, test, sizes)
        figures |= {f"{name}_{each}": value for each, value in found.items()}
    figures["twin_auc"] = evaluate_logistic(non_private, test, sizes)["auc"]
    figures["independent_auc"] = evaluate_logistic(alone, test, sizes)["auc"]
    figures["majority_accuracy"] = _compute_majority_accuracy(train[:, -1], test[:, -1])
    return figures | compute_closeness(synthetic, train, test, rng, codes=True)


def _compute_array_metrics(
    synthetic: NDArray[Any],
    non_private: NDArray[Any],
    schema: Schema,
    classes: int,
    experiment: Experiment,
    rng: np.random.Generator,
) -> Figures:
    """Measure whether a classifier that is fitted to synthetic arrays recognises real ones."""
    if not len(experiment.test_labels):
        return {}
    train, test = (
        _to_unit_range(rows, schema)
        for rows in (experiment.block.dense_features, np.asarray(experiment.test_features))
    )
    truth = _get_test_classes(experiment, classes)
    real = np.concatenate([train, np.asarray(experiment.block.labels, np.float32)[:, None]], axis=1)
    real = real[rng.permutation(len(real))[:_MOST_ARRAYS]]
    figures = {
        f"{name}_accuracy": _fit_and_evaluate(
            _build_logistic(max_iter=100, tol=1e-3),
            (rows[:_MOST_ARRAYS, :-1], rows[:_MOST_ARRAYS, -1].astype(np.int64)),
            (test, truth),
        )["accuracy"]
        for name, rows in (("tstr", synthetic), ("real", real), ("twin", non_private))
    }
    labels = np.asarray(experiment.block.labels, np.int64)
    figures["majority_accuracy"] = _compute_majority_accuracy(labels, truth)
    return figures | compute_closeness(synthetic[:, :-1], train, test, rng, codes=False)


def _to_unit_range(rows: NDArray[Any], schema: Schema) -> NDArray[np.float32]:
    """Return `[n, p]` the position of every entry in its range, for rows of the map `codes`."""
    found = find_array_column(schema)
    if found is None:
        raise ValueError("Expected records that are arrays, got others.")
    low, high = found[1].encode(np.array(found[1].range, np.float64)).tolist()
    cells = rows.astype(np.float32) * np.float32(math.sqrt(rows.shape[1]))
    return np.asarray(np.clip((cells - low) / (high - low), 0, 1), np.float32)


def _get_test_classes(experiment: Experiment, classes: int) -> Codes:
    listed = classes if np.issubdtype(experiment.test_labels.dtype, np.integer) else 0
    return to_classes(experiment.test_labels, listed)[0]


def compute_variation(first: Codes, second: Codes, sizes: tuple[int, ...]) -> tuple[float, float]:
    """Return the mean total variation over columns, and over pairs of columns."""
    columns = [_compute_distance(first[:, i], second[:, i], size) for i, size in enumerate(sizes)]
    pairs = []
    for i, j in list_pairs("all", len(sizes)):
        own, other = (each[:, i] * sizes[j] + each[:, j] for each in (first, second))
        pairs.append(_compute_distance(own, other, sizes[i] * sizes[j]))
    return float(np.mean(columns)), float(np.mean(pairs))


def _compute_distance(first: Codes, second: Codes, size: int) -> float:
    shares = [np.bincount(each, minlength=size) / len(each) for each in (first, second)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def evaluate_logistic(rows: Codes, test: Codes, sizes: tuple[int, ...]) -> Figures:
    """Return AUC and accuracy of logistic regression, of the last column on the others."""
    made, held = (
        (_build_indicators(each, sizes), each[:, -1]) for each in (rows[:_MOST_ROWS], test)
    )
    return _fit_and_evaluate(_build_logistic(max_iter=300), made, held)


def evaluate_trees(rows: Codes, test: Codes, sizes: tuple[int, ...]) -> Figures:
    """Return the AUC of boosted trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415 - start-up: `run` without synthetic rows (scikit-learn takes a second)

    made, held = ((each[:, :-1], each[:, -1]) for each in (rows[:_MOST_ROWS], test))
    trees = HistGradientBoostingClassifier(random_state=0)
    return {"trees_auc": _fit_and_evaluate(trees, made, held)["auc"]}


def _build_logistic(**settings: float) -> Any:
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - start-up: `run` without synthetic rows (scikit-learn takes a second)

    return LogisticRegression(**settings)


def _fit_and_evaluate(model: Any, made: Labelled, held: Labelled) -> Figures:
    """Return a classifier's AUC and accuracy on held-out records; None with one label."""
    if len(np.unique(made[1])) < 2 or len(np.unique(held[1])) < 2:
        return {"auc": None, "accuracy": None}
    classes, chances = model.fit(*made).classes_, model.predict_proba(held[0])
    sides = range(len(classes)) if len(classes) > 2 else (1,)
    found = [compute_auc(chances[:, at], held[1] == classes[at]) for at in sides]
    known = [each for each in found if each is not None]
    return {
        "auc": float(np.mean(known)) if known else None,
        "accuracy": float((classes[chances.argmax(axis=1)] == held[1]).mean()),
    }


def _compute_majority_accuracy(labels: Codes, truth: Codes) -> float:
    """Return the accuracy of always predicting the training records' most common label."""
    return float((truth == np.bincount(labels).argmax()).mean())


def _build_indicators(rows: Codes, sizes: tuple[int, ...]) -> NDArray[np.float32]:
    starts = np.cumsum([0, *sizes[:-1]])
    ones = np.zeros((len(rows), int(starts[-1])), np.float32)
    for column, (begin, _) in enumerate(pairwise(starts)):
        ones[np.arange(len(rows)), begin + rows[:, column]] = 1
    return ones
