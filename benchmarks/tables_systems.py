"""Define the systems that `benchmarks/tables.py` compares: each trains on rows and scores other
rows.

A peer is imported where it is used, and is not a dependency of Parley. Every system gets the same
public schema: ranges and categories.

| system | relation | trusts | δ |
|---|---|---|---|
| Parley | replace-one | no server and no party: noise in shares, one colluder | 10⁻⁵ |
| DP-EBM (interpret) | add-or-remove-one | one owner of all records | 10⁻⁵ |
| diffprivlib | replace-one | one owner | 0 |
| DP-SGD (Opacus) | add-or-remove-one | one owner | 10⁻⁵ |
| logistic, boosted trees (scikit-learn) | not private | one owner | |

Under replace-one a record's change moves a sum twice as far, so the same ε is a stronger promise.
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

DELTA = 1e-5
PEERS = {
    "DP-EBM": "interpret-core",
    "diffprivlib": "diffprivlib 'scikit-learn<1.7'",
    "DP-SGD": "opacus",
}


class NotOffered(Exception):
    """A system that does not support this table. The text says why."""


class NotHere(Exception):
    """A system that is not installed. The text says how to install it."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One split of one table at one ε.

    Attributes:
        train, test: CSV files; `columns` has their cells as text, by name, label last.
        kind: logistic, softmax or ridge.
    """

    train: Path
    columns: dict[str, np.ndarray]
    test_columns: dict[str, np.ndarray]
    schema: Path
    kind: str
    epsilon: float
    parties: int
    seed: int

    @cached_property
    def entries(self) -> dict[str, dict[str, Any]]:
        """The schema's columns that are read, without the label."""
        columns = tomllib.loads(self.schema.read_text())["columns"]
        return {n: c for n, c in columns.items() if c["kind"] in ("numeric", "categorical")}

    def rows(self, columns: dict[str, np.ndarray]) -> np.ndarray:
        """Return `[N, p]` rows: numbers in [−1, 1], categories one-hot, length at most 1."""
        blocks = []
        for name, entry in self.entries.items():
            if entry["kind"] == "numeric":
                low, high = entry["range"]
                values = columns[name].astype(float)
                blocks.append((2 * np.clip(values, low, high) - low - high)[:, None] / (high - low))
            else:
                listed = [_text(each) for each in entry["categories"]]
                cells = np.array([_text(each) for each in columns[name]])
                blocks.append((cells[:, None] == np.array(listed)[None]).astype(float))
        rows = np.concatenate(blocks, axis=1)
        return rows / np.maximum(1, np.linalg.norm(rows, axis=1))[:, None]

    def labels(self, columns: dict[str, np.ndarray]) -> np.ndarray:
        """Return `[N]` class numbers, or targets in the label's unit."""
        cells = list(columns.values())[-1]
        if self.kind == "ridge":
            return cells.astype(float)
        return np.searchsorted(np.array(self.names), np.array([_text(each) for each in cells]))

    @cached_property
    def names(self) -> list[str]:
        """Labels in the order of `labels`; the second of two is positive."""
        label = list(self.columns)[-1]
        entry = tomllib.loads(self.schema.read_text())["columns"][label]
        listed = entry.get("classes") or [*entry["negative"], *entry["positive"]]
        return sorted(_text(each) for each in listed)

    @cached_property
    def label_range(self) -> tuple[float, float]:
        """Range of targets."""
        label = list(self.columns)[-1]
        low, high = tomllib.loads(self.schema.read_text())["columns"][label]["range"]
        return low, high


def _text(value: object) -> str:
    text = str(value)
    return text.removesuffix(".0") if text.removesuffix(".0").lstrip("-").isdigit() else text


def parley(case: Case, keys: tuple[str, ...] = ()) -> np.ndarray:
    """Train Parley with its defaults, among many parties."""
    import parley as product
    from parley.simulations.engine.fast_engine import simulate

    job = product.load_job(
        overrides=[
            f"data.source={case.train}",
            f"data.schema={case.schema}",
            "data.test-fraction=0",
            f"model.kind={case.kind}",
            f"privacy.epsilon={case.epsilon}",
            f"privacy.delta={DELTA}",
            f"parties.count={case.parties}",
            f"run.seed={case.seed}",
            *keys,
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        simulate(job, out=Path(folder) / "run")  # `parley run` without its report
        model = product.load_model(Path(folder) / "run")
        cells = {
            name: column.astype(float) if case.entries[name]["kind"] == "numeric" else column
            for name, column in case.test_columns.items()
            if name in case.entries
        }
        if case.kind == "ridge":
            return np.asarray(model.predict(cells))
        chances = model.predict_proba(cells)
        order = [[_text(each) for each in model.classes_].index(name) for name in case.names]
        return np.asarray(chances[:, order])


BINS = (
    "model.features=bins",
    "model.intercept=false",
    "model.lambda=0.0005",
    "model.feature-settings.edges.age=[20,23,26,30,35,40,45,50,55,60,65]",
    "model.feature-settings.edges.education_num=[5,9,10,11,13,14,15]",
    "model.feature-settings.edges.capital_gain=[1,3000,5000,7000,10000]",
    "model.feature-settings.edges.capital_loss=[1,1500,1800,2000]",
    "model.feature-settings.edges.hr_per_week=[20,35,40,41,50]",
    "algorithm.rounds=60",
    "algorithm.momentum=0.9",
    "algorithm.nesterov=true",
    "algorithm.learning-rate=6",
    "algorithm.clip-norm=0.7",
)
"""Settings of examples/adult-bins.toml."""


def parley_bins(case: Case) -> np.ndarray:
    """Train Parley with the project's manual settings for Adult."""
    if "capital_gain" not in case.columns:
        raise NotOffered("settings by hand for Adult alone")
    return parley(case, BINS)


def dp_ebm(case: Case) -> np.ndarray:
    """Train explainable boosting with differential privacy, with its defaults."""
    try:
        from interpret.privacy import (
            DPExplainableBoostingClassifier,
            DPExplainableBoostingRegressor,
        )
    except ImportError as error:
        raise NotHere(f"{error}: pip install {PEERS['DP-EBM']}") from error
    if case.kind == "softmax":
        raise NotOffered("two labels or numbers alone")
    kinds = {"numeric": "continuous", "categorical": "nominal"}
    given: dict[str, Any] = {
        "epsilon": case.epsilon,
        "delta": DELTA,
        "feature_names": list(case.entries),
        "feature_types": [kinds[each["kind"]] for each in case.entries.values()],
        "privacy_bounds": {
            name: tuple(map(float, each["range"]))
            for name, each in case.entries.items()
            if each["kind"] == "numeric"
        },
        "random_state": None,
        "n_jobs": 1,
    }
    train, test = (_cells(case, each) for each in (case.columns, case.test_columns))
    if case.kind == "ridge":
        low, high = case.label_range
        model = DPExplainableBoostingRegressor(
            **given, privacy_target_min=low, privacy_target_max=high
        )
        return np.asarray(model.fit(train, case.labels(case.columns)).predict(test))
    model = DPExplainableBoostingClassifier(**given)
    return np.asarray(model.fit(train, case.labels(case.columns)).predict_proba(test))


def _cells(case: Case, columns: dict[str, np.ndarray]) -> np.ndarray:
    """Return `[N, columns]` cells with numbers as numbers and categories as text."""
    cells = np.empty((len(next(iter(columns.values()))), len(case.entries)), object)
    for at, (name, entry) in enumerate(case.entries.items()):
        cells[:, at] = columns[name].astype(float) if entry["kind"] == "numeric" else columns[name]
    return cells


def diffprivlib(case: Case) -> np.ndarray:
    """Train by objective perturbation (Chaudhuri et al. 2011); for targets, linear regression."""
    try:
        from diffprivlib.models import LinearRegression, LogisticRegression
    except ImportError as error:
        raise NotHere(f"{error}: pip install {PEERS['diffprivlib']}") from error
    train, test = case.rows(case.columns), case.rows(case.test_columns)
    labels = case.labels(case.columns)
    if case.kind == "ridge":
        model = LinearRegression(epsilon=case.epsilon, bounds_X=(-1, 1), bounds_y=case.label_range)
        return np.asarray(model.fit(train, labels).predict(test))
    model = LogisticRegression(epsilon=case.epsilon, data_norm=1.0, max_iter=1000)
    return np.asarray(model.fit(train, labels).predict_proba(test))


EPOCHS, BATCH = 20, 512


def dp_sgd(case: Case) -> np.ndarray:
    """Train a linear model by DP-SGD.

    20 epochs of batches of 512 (a tenth of the records if few), clip 1, rate 2 for labels and 0.2
    for targets in [0, 1].
    """
    try:
        import opacus
        from opacus.accountants.utils import get_noise_multiplier
    except ImportError as error:
        raise NotHere(f"{error}: pip install {PEERS['DP-SGD']}") from error
    import torch

    torch.set_num_threads(1)
    train = torch.as_tensor(case.rows(case.columns), dtype=torch.float32)
    labels = case.labels(case.columns)
    low, high = case.label_range if case.kind == "ridge" else (0.0, 1.0)
    ridge, outputs = case.kind == "ridge", 1 if case.kind == "ridge" else len(case.names)
    wanted = torch.as_tensor((labels - low) / (high - low) if ridge else labels)
    wanted = wanted.float() if ridge else wanted.long()
    batch = min(BATCH, max(len(train) // 10, 1))
    model: Any = torch.nn.Linear(train.shape[1], outputs)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    steps = torch.optim.SGD(model.parameters(), lr=0.2 if ridge else 2.0)
    sigma = get_noise_multiplier(
        target_epsilon=case.epsilon,
        target_delta=DELTA,
        sample_rate=batch / len(train),
        epochs=EPOCHS,
        accountant="prv",
    )
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(train, wanted), batch_size=batch
    )
    model, steps, loader = opacus.PrivacyEngine().make_private(
        module=model,
        optimizer=steps,
        data_loader=loader,
        noise_multiplier=sigma,
        max_grad_norm=1.0,
    )
    loss = torch.nn.MSELoss() if ridge else torch.nn.CrossEntropyLoss()
    for _ in range(EPOCHS):
        for rows, own in loader:
            if len(rows):
                steps.zero_grad()
                out = model(rows)
                loss(out[:, 0] if ridge else out, own).backward()
                steps.step()
    with torch.no_grad():
        out = model(torch.as_tensor(case.rows(case.test_columns), dtype=torch.float32))
    return out[:, 0].numpy() * (high - low) + low if ridge else out.softmax(1).numpy()


def logistic(case: Case) -> np.ndarray:
    """Train scikit-learn's logistic (or linear) regression on the same rows, without privacy."""
    from sklearn.linear_model import LogisticRegression, Ridge

    train, test = case.rows(case.columns), case.rows(case.test_columns)
    labels = case.labels(case.columns)
    if case.kind == "ridge":
        return np.asarray(Ridge(alpha=1e-3).fit(train, labels).predict(test))
    model = LogisticRegression(C=100.0, max_iter=2000)
    return np.asarray(model.fit(train, labels).predict_proba(test))


def trees(case: Case) -> np.ndarray:
    """Train scikit-learn's boosted trees with their defaults, without privacy."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    train, test = case.rows(case.columns), case.rows(case.test_columns)
    labels = case.labels(case.columns)
    if case.kind == "ridge":
        return np.asarray(HistGradientBoostingRegressor().fit(train, labels).predict(test))
    return np.asarray(HistGradientBoostingClassifier().fit(train, labels).predict_proba(test))


@dataclass(frozen=True, kw_only=True)
class System:
    """A row of the comparison; `many`: among 1, 10 and 100 parties; `private`: it has an ε."""

    score: Callable[[Case], np.ndarray]
    many: bool = False
    private: bool = True


SYSTEMS = {
    "logistic": System(score=logistic, private=False),
    "boosted trees": System(score=trees, private=False),
    "DP-EBM": System(score=dp_ebm),
    "diffprivlib": System(score=diffprivlib),
    "DP-SGD": System(score=dp_sgd),
    "Parley": System(score=parley, many=True),
    "Parley, bins by hand": System(score=parley_bins, many=True),
}
