"""Compare DP-SGD's step throughput: Parley, Opacus (hooks, ghost, functorch) and non-private SGD.

    python benchmarks/dp_sgd.py [--rounds 15] [--threads 1] [--precision float64]

All contenders run one step in turn, repeatedly, so that a slow moment affects all of them. Medians
are compared, of CPU time in one thread, or of wall time in several. Model, batch, thread count and
precision are the same, except that "exact" uses whole numbers in float64. Every private step adds a
normal draw of torch's generator to the sum. A real run draws integers from a cryptographic stream
instead, which is timed separately. Batches are given; sampling is not timed.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
import warnings
from collections.abc import Callable, Mapping

import numpy as np
import torch
from dp_sgd_parties import CLIP, RATE, SIGMA, Step, private_step
from torch import nn

from parley.client.data import threaded_chunks
from parley.client.dp_sgd.batch_sums import compute_party_sum
from parley.client.dp_sgd.torch_clipping import compute_clipped_sum
from parley.client.dp_sgd.training_settings import LocalTraining
from parley.client.models.networks import Network
from parley.privacy.sampling.random_stream import NoiseStream
from parley.privacy.sampling.rounded_gaussian import draw_rounded_gaussian

NETWORKS = ("60-1000-10, B=600", "60-1000-10, B=256", "784-1000-10, B=256", "CNN 26k, B=256")


def interleaved(
    contenders: Mapping[str, Step], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return each contender's median milliseconds per step."""
    for step in contenders.values():
        step()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, step in contenders.items():
            begin = clock()
            step()
            times[name].append(clock() - begin)
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def vmap(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Step:
    """Return a step for networks that are not a chain of linear layers and convolutions."""
    network = copy.deepcopy(model)
    flat = nn.utils.parameters_to_vector(network.parameters()).detach().clone()
    at = 0
    for parameter in network.parameters():
        parameter.data = flat[at : at + parameter.numel()].view(parameter.shape)
        at += parameter.numel()

    def step() -> None:
        total = torch.from_numpy(compute_clipped_sum(network, x, y, CLIP)[0]).to(flat)
        total.add_(torch.randn_like(total), alpha=SIGMA * CLIP)
        flat.sub_(total, alpha=RATE / len(y))

    return step


def exact(network: Network, x: torch.Tensor, y: torch.Tensor) -> Step:
    """Return a step in whole numbers, as a party runs it
    (`parley.client.dp_sgd.exact_clipping`).
    """
    config = LocalTraining(
        steps=1, sampling_rate=1.0, clip_norm=CLIP, noise_multiplier=SIGMA, optimiser="sgd",
        learning_rate=RATE, momentum=0.0, per_example_method="exact", micro_batch=len(y),
    )  # fmt: skip
    theta, rows, labels, every = network.start(), x.numpy(), y.numpy(), np.arange(len(y))

    def step() -> None:
        total = torch.from_numpy(
            compute_party_sum(network, theta, rows, labels, every, config, public=len(y), pad=False)
        )
        total.add_(torch.randn_like(total), alpha=SIGMA * CLIP)
        torch.from_numpy(theta).sub_(total, alpha=RATE / len(y))

    return step


def sgd(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Step:
    network = copy.deepcopy(model)
    optimiser = torch.optim.SGD(network.parameters(), lr=RATE)

    def step() -> None:
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimiser.step()

    return step


def network_of(name: str, precision: str) -> tuple[Network, int]:
    """Return network and batch size."""
    kind, features = (
        ("cnn", 784) if name.startswith("CNN") else ("mlp", int(name.split("-", maxsplit=1)[0]))
    )
    network = Network.build(
        kind,
        features=features,
        classes=10,
        hidden=(1000,) if kind == "mlp" else (),
        precision=precision,  # type: ignore[arg-type]
    )
    return network, int(name.split("B=")[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", choices=["float32", "float64"], default="float32")
    parser.add_argument("--only", default="", help="one network, e.g. '60-1000-10, B=256'")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.perf_counter if options.threads > 1 else time.process_time
    if options.threads == 1:
        threaded_chunks._count_cores = lambda: 1  # type: ignore[assignment]
    warnings.filterwarnings("ignore")
    for name in (options.only,) if options.only else NETWORKS:
        own, batch = network_of(name, options.precision)
        model = own.module
        x = own.to_tensor(torch.randn(batch, own.features).numpy() / own.features**0.5)
        y = torch.randint(0, 10, (batch,))
        contenders: dict[str, Step] = {
            "SGD": sgd(model, x, y), "exact": exact(own, x, y), "vmap": vmap(model, x, y),
        }  # fmt: skip
        for mode in ("hooks", "ghost", "functorch"):
            contenders[f"Opacus {mode}"] = private_step(copy.deepcopy(model), x, y, mode)
        medians = interleaved(contenders, options.rounds, clock)
        best = min(value for key, value in medians.items() if key.startswith("Opacus"))
        told = ", ".join(f"{key} {value:.2f}" for key, value in medians.items())
        print(
            f"{name}: {told} ms; exact {medians['exact'] / medians['SGD']:.2f}× SGD and "
            f"{medians['exact'] / medians['vmap']:.2f}× vmap, Opacus's best "
            f"{best / medians['exact']:.2f}× exact",
            flush=True,
        )
        dimension, stream, sigma = own.dimension, NoiseStream.from_seed(1), SIGMA * CLIP * 2.0**32
        noise = interleaved(
            {
                "torch": lambda d=dimension: torch.randn(d),  # type: ignore[misc]
                "integers": lambda s=sigma, d=dimension, t=stream: draw_rounded_gaussian(s, d, t),  # type: ignore[misc]
            },
            options.rounds,
        )
        print(
            f"  noise of d = {dimension}: torch {noise['torch']:.2f} ms, a run's "
            f"{noise['integers']:.2f} ms"
        )


if __name__ == "__main__":
    main()
