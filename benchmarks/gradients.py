"""Milliseconds for the gradient of every party: ours against loops and torch.

    python benchmarks/gradients.py --parties 10 100 1000 --repeats 15

Logistic loss, n records of d features a party. The variants take turns within every repeat, so
that a busy moment of the machine meets them all; the table gives medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from parley.client.data.block import PartyBlock
from parley.client.models.gradients import gradients
from parley.client.models.linear import LinearModel
from parley.client.models.losses import Logistic
from parley.client.models.rows import prepare_rows

SLOW = 200  # variants slower than this, in ms, get a tenth of the repeats


def make_block(parties: int, records: int, features: int, dtype: str) -> PartyBlock:
    rng = np.random.default_rng(0)
    rows = prepare_rows(rng.standard_normal((parties * records, features), dtype=dtype), False)
    labels = np.where(rows @ rng.normal(size=features) + rng.normal(size=len(rows)) > 0, 1.0, -1.0)
    offsets = np.arange(parties + 1) * records
    return PartyBlock(features=rows, labels=labels.astype(dtype), offsets=offsets)


def variants(block: PartyBlock, theta: np.ndarray, with_torch: bool) -> dict[str, Callable]:
    model = LinearModel(loss=Logistic(), features=block.features.shape[1])
    size = block.uniform_size
    x3 = block.features.reshape(block.parties, size, -1)
    y2 = block.labels.reshape(block.parties, size)

    def numpy_loop() -> np.ndarray:
        pairs = zip(x3, y2, strict=True)
        return np.stack([x.T @ (-y / (1 + np.exp(y * (x @ theta)))) / size for x, y in pairs])

    found: dict[str, Callable] = {
        "ours": lambda: gradients(model, theta, block),
        "ours, clipped": lambda: gradients(model, theta, block, 0.5),
        "numpy, loop over parties": numpy_loop,
    }
    if not with_torch:
        return found
    import torch

    tx, ty, tt = torch.tensor(x3), torch.tensor(y2), torch.tensor(theta)

    def loss(parameters: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.softplus(-y * (x @ parameters)).mean()

    def autograd_loop() -> np.ndarray:
        gradients = []
        for x, y in zip(tx, ty, strict=True):
            variable = tt.clone().requires_grad_()
            gradients.append(torch.autograd.grad(loss(variable, x, y), variable)[0])
        return torch.stack(gradients).numpy()

    batched = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    found["torch autograd, loop"] = autograd_loop
    found["torch.func vmap(grad)"] = lambda: batched(tt, tx, ty).numpy()
    return found


def measure(found: dict[str, Callable], repeats: int) -> dict[str, float]:
    """Median milliseconds of interleaved calls; every variant must agree with the first."""
    expected = found["ours"]()
    times: dict[str, list[float]] = {name: [] for name in found}
    for name, call in found.items():
        if name != "ours, clipped":
            np.testing.assert_allclose(call(), expected, rtol=1e-3, atol=1e-6)
    order = list(found.items())
    for repeat in range(repeats):
        order = order[1:] + order[:1]  # nobody always follows the one that spoils the cache
        for name, call in order:
            if times[name] and times[name][0] > SLOW and repeat % 10:
                continue
            begin = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - begin) * 1e3)
    return {name: statistics.median(own) for name, own in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parties", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--records", type=int, default=50)
    parser.add_argument("--features", type=int, default=120)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float64")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    theta = np.random.default_rng(1).normal(size=options.features).astype(options.dtype)
    table: dict[int, dict[str, float]] = {}
    for parties in options.parties:
        block = make_block(parties, options.records, options.features, options.dtype)
        table[parties] = measure(variants(block, theta, not options.no_torch), options.repeats)
    if options.json:
        json.dump({**vars(options), "cores": os.cpu_count(), "median_ms": table}, sys.stdout)
        print()
        return
    names = list(next(iter(table.values())))
    print(f"{'ms, ' + options.dtype:28}" + "".join(f"{'m=' + str(m):>12}" for m in table))
    for name in names:
        print(f"{name:28}" + "".join(f"{own[name]:12.3f}" for own in table.values()))


if __name__ == "__main__":
    main()
