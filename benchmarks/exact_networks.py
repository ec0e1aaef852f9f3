"""Compare the accuracy of DP-SGD in whole numbers and in float64 arithmetic, with the same seeds.

    python benchmarks/exact_networks.py [--mnist mnist.npz] [--kind cnn] [--seeds 8] [--steps 100]

One party of 10,000 images (scikit-learn's 1,797 digits without --mnist) trains an MLP, or a
convolutional network (for images of 16 × 16 and more). Each seed determines the start, the batches
and the noise, the same for both methods. It prints the mean accuracy on other records with the
standard error of the mean, and the pairs' mean difference with its standard error.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from parley.client.dp_sgd.local_training import train_party
from parley.client.dp_sgd.training_data import PartyData
from parley.client.dp_sgd.training_settings import LocalTraining
from parley.client.models.networks import Network
from parley.privacy.sampling.random_stream import NoiseStream

WAYS = ("exact", "vmap")


def images(path: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return rows of norm 1, and classes."""
    if path:
        with np.load(path) as held:
            x, y = held["x_train"][:14_000].reshape(14_000, -1), held["y_train"][:14_000]
    else:
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
    x = x.astype(np.float64)
    return x / np.linalg.norm(x, axis=1, keepdims=True), y.astype(np.int64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mnist", default="")
    parser.add_argument("--kind", choices=("mlp", "cnn"), default="mlp")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    x, y = images(options.mnist)
    held_in = len(x) * 5 // 7
    config = LocalTraining(
        steps=options.steps, sampling_rate=256 / held_in, clip_norm=1.0, noise_multiplier=1.1,
        optimiser="sgd", learning_rate=0.25, momentum=0.0, per_example_method="exact",
        micro_batch=2048,
    )  # fmt: skip
    hidden = (100,) if options.kind == "mlp" else ()
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for seed in range(options.seeds):
        network = Network.build(
            options.kind, features=x.shape[1], classes=10, hidden=hidden, precision="float64",
            seed=seed,
        )  # fmt: skip
        for way in WAYS:
            data = PartyData(
                features=network.to_tensor(x[:held_in]),
                labels=torch.as_tensor(y[:held_in]),
                divisor=held_in,
                batches=NoiseStream.from_seed(seed, "batches"),
                noise=NoiseStream.from_seed(seed, "noise"),
            )
            own = replace(config, per_example_method=way)
            theta = train_party(network, network.start(), data, own).theta[0]
            found[way].append(network.compute_metric(theta, x[held_in:], y[held_in:]))
    root = options.seeds**0.5
    for way, values in found.items():
        print(f"{way}: {np.mean(values):.4f} ± {np.std(values, ddof=1) / root:.4f}")
    apart = np.subtract(found["exact"], found["vmap"])
    print(f"exact − vmap: {apart.mean():+.4f} ± {apart.std(ddof=1) / root:.4f}")


if __name__ == "__main__":
    main()
