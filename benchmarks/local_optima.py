"""Time the certified optimum of every party: Parley against scikit-learn and scipy.

    python benchmarks/local_optima.py --parties 1000 --features 120

Logistic loss. All three must reach the same gradient norm. `worst norm` is the one they reached,
computed again from the records. Times are medians of interleaved repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from parley.client.data.party_block import PartyBlock
from parley.client.data.threaded_chunks import limit_blas_threads
from parley.client.models.linear_models import LinearModel
from parley.client.models.logistic_loss import LogisticLoss
from parley.client.models.row_quantization import prepare_rows
from parley.client.solvers.local_optima import solve_local_optima


def make_block(parties: int, records: int, features: int) -> PartyBlock:
    """Generate random records of this many features, with labels −1 and +1."""
    rng = np.random.default_rng(0)
    rows = prepare_rows(rng.standard_normal((parties * records, features)), intercept=False)
    labels = np.where(rows @ rng.normal(size=features) + rng.normal(size=len(rows)) > 0, 1.0, -1.0)
    return PartyBlock(features=rows, labels=labels, offsets=np.arange(parties + 1) * records)


def sklearn_loop(block: PartyBlock, lambda_: float, tolerance: float) -> np.ndarray:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    thetas = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for begin, end in pairwise(block.offsets):
            labels = block.labels[begin:end]
            solver = LogisticRegression(
                C=1 / (lambda_ * (end - begin)), fit_intercept=False, tol=tolerance, max_iter=1000
            )
            thetas.append(solver.fit(block.features[begin:end], labels).coef_[0])
    return np.stack(thetas)


def scipy_loop(block: PartyBlock, lambda_: float, tolerance: float) -> np.ndarray:
    from scipy.optimize import minimize

    def party(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        def function(theta: np.ndarray) -> tuple[float, np.ndarray]:
            z = y * (x @ theta)
            slope = -y / (1 + np.exp(z))
            loss = np.logaddexp(0, -z).mean() + lambda_ / 2 * theta @ theta
            return loss, x.T @ slope / len(y) + lambda_ * theta

        options = {"gtol": tolerance / 10, "ftol": 0.0, "maxiter": 1000}
        start = np.zeros(x.shape[1])
        return minimize(function, start, jac=True, method="L-BFGS-B", options=options).x

    pairs = pairwise(block.offsets)
    return np.stack([party(block.features[a:b], block.labels[a:b]) for a, b in pairs])


def measure(features: int, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return the median milliseconds and the worst gradient norm of each variant."""
    block = make_block(options.parties, options.records, features)
    model = LinearModel(loss=LogisticLoss(), features=features)
    lambda_, tolerance = options.lambda_, options.tolerance
    found: dict[str, Callable[[], np.ndarray]] = {
        "ours": lambda: solve_local_optima(model, block, lambda_, tolerance).theta,
        "scikit-learn lbfgs, loop": lambda: sklearn_loop(block, lambda_, tolerance),
        "scipy L-BFGS-B, loop": lambda: scipy_loop(block, lambda_, tolerance),
    }
    times: dict[str, list[float]] = {name: [] for name in found}
    norms: dict[str, float] = {}
    for repeat in range(options.repeats + 1):  # the first call of each is a warm-up
        for name, call in found.items():
            begin = time.perf_counter()
            with limit_blas_threads():  # threads only slow down such small products
                theta = call()
            if repeat:
                times[name].append((time.perf_counter() - begin) * 1e3)
            stacked = block.features.reshape(options.parties, options.records, features)
            margins = model.compute_margins(theta, stacked)
            slopes = model.loss.compute_slopes(margins, block.labels.reshape(margins.shape))
            gradient = model.sum_gradients(slopes, stacked) / options.records + lambda_ * theta
            norms[name] = float(np.linalg.norm(gradient, axis=1).max())
    return {
        name: {"median_ms": statistics.median(own), "worst_norm": norms[name]}
        for name, own in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parties", type=int, default=1000)
    parser.add_argument("--records", type=int, default=50)
    parser.add_argument("--features", type=int, nargs="+", default=[120, 30])
    parser.add_argument("--lambda", dest="lambda_", type=float, default=1e-3)
    parser.add_argument("--tolerance", type=float, default=1e-8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    table = {features: measure(features, options) for features in options.features}
    if options.json:
        json.dump({**vars(options), "cores": os.cpu_count(), "results": table}, sys.stdout)
        print()
        return
    for features, rows in table.items():
        print(f"m={options.parties} n={options.records} d={features} λ={options.lambda_:g}")
        for name, row in rows.items():
            ratio = row["median_ms"] / rows["ours"]["median_ms"]
            print(
                f"  {name:26}{row['median_ms']:9.0f} ms {ratio:6.1f}×"
                f"   worst norm {row['worst_norm']:.1e}"
            )


if __name__ == "__main__":
    main()
