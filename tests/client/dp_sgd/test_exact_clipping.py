"""Whole numbers of networks: a record's share is its own, and in the ball, at any θ."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from record_loop import loop_sums
from small_networks import training
from torch import nn

from parley.client.dp_sgd.batch_sums import compute_party_sum, compute_union_sums
from parley.client.dp_sgd.convolution_windows import Windows
from parley.client.dp_sgd.exact_clipping import BitAllocation, ExactChain, ExactLayer
from parley.client.dp_sgd.exact_layer_detection import find_exact_layers
from parley.client.dp_sgd.torch_clipping import choose_way
from parley.client.models.exact_math import exp, tanh
from parley.client.models.networks import Network
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.sensitivity.bounded_sets import Set, compute_sensitivity

CHAINS = {
    "no hidden layer": lambda: nn.Sequential(nn.Linear(7, 4)),
    "relu": lambda: nn.Sequential(nn.Linear(7, 33), nn.ReLU(), nn.Linear(33, 4)),
    "tanh without biases": lambda: nn.Sequential(
        nn.Linear(7, 9, bias=False), nn.Tanh(), nn.Linear(9, 4, bias=False)
    ),
    "three layers": lambda: nn.Sequential(
        nn.Linear(7, 12), nn.Tanh(), nn.Linear(12, 5), nn.ReLU(), nn.Identity(), nn.Linear(5, 4)
    ),
    "convolution of a row": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 7)),
        nn.Conv1d(1, 3, 3, padding=1, bias=False),
        nn.Tanh(),
        nn.AvgPool1d(2, 1),
        nn.Flatten(),
        nn.Linear(18, 4),
    ),
    "convolutions": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 4, 5)),
        nn.Conv2d(2, 5, 3, padding="same"),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=1, padding=1),
        nn.Conv2d(5, 3, 2, stride=2, dilation=2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(6, 4),
    ),
}
FEATURES = {"convolutions": 40}
EVERY = pytest.mark.parametrize("name", list(CHAINS))


def chain(name: str, seed: int = 0) -> tuple[Network, np.ndarray, np.ndarray]:
    """A chain in float64, and 40 records."""
    torch.manual_seed(seed)
    features = FEATURES.get(name, 7)
    module = CHAINS[name]().double()
    flat = nn.utils.parameters_to_vector(module.parameters()).detach().numpy().copy()
    network = Network(
        kind="own", features=features, classes=4, module=module, device=torch.device("cpu"),
        initial=flat,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, features))
    return network, x / np.linalg.norm(x, axis=1, keepdims=True), rng.integers(0, 4, 40)


def numbers(network: Network, theta, x, y, clip: float = 0.5) -> np.ndarray:
    """`[d]` the clipped sum in whole numbers."""
    return of_each(network, theta, x[None], y[None], clip)[0]


def of_each(network: Network, theta, x, y, clip: float) -> np.ndarray:
    """`[B, d]` of parties' records `[B, w, p]`."""
    config = training(clip_norm=clip)
    layers = find_exact_layers(network.module)
    assert layers is not None
    own = ExactChain.from_parameters(layers, theta[None])
    total, _ = own.compute_clipped_sums(
        x, y, np.ones(y.shape, dtype=bool), config.radius, config.grid_bits
    )
    units: np.ndarray = own.flatten(total, 1.0)
    assert np.array_equal(units, np.rint(units))
    return units


@EVERY
@pytest.mark.parametrize("clip", [0.05, 0.5, 50.0])
def test_sums_are_those_of_a_loop_over_records_in_float64(name, clip) -> None:
    network, x, y = chain(name)
    assert choose_way(network) == "exact"
    expected, _ = loop_sums(network.module, torch.tensor(x), torch.tensor(y), clip)
    found = (
        numbers(network, network.start(), x, y, clip) / 2.0 ** training(clip_norm=clip).grid_bits
    )
    assert np.linalg.norm(found - expected) <= 2e-3 * np.linalg.norm(expected)


@EVERY
def test_permuted_split_alone_and_in_union_are_the_same_whole_numbers(name) -> None:
    network, x, y = chain(name)
    theta, rng = network.start(), np.random.default_rng(1)
    whole = numbers(network, theta, x, y)
    order = rng.permutation(40)
    assert np.array_equal(numbers(network, theta, x[order], y[order]), whole)
    for cuts in ([1, 8, 30], list(range(1, 40))):
        pieces = [numbers(network, theta, x[own], y[own]) for own in np.split(order, cuts)]
        assert np.array_equal(np.sum(pieces, axis=0), whole)
    batches = [order[:3], order[3:3], order[3:4], order[4:]]
    for threads, micro_batch in product((1, 2), (3, 2048)):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        config = training(micro_batch=micro_batch)
        own = compute_union_sums(network, theta, x, y, batches, config, public=40)
        for batch, found in zip(batches, own, strict=True):
            for pad in (False, True):
                alone = compute_party_sum(network, theta, x, y, batch, config, public=10, pad=pad)
                assert np.array_equal(alone, found)
        assert np.array_equal(own.sum(axis=0) * 2.0**config.grid_bits, whole)
        torch.set_num_threads(before)


_PRINTED = """
import sys, hashlib
sys.path[:0] = sys.argv[1:]
from test_exact_clipping import CHAINS, chain, numbers
for name in CHAINS:
    network, x, y = chain(name)
    print(hashlib.sha256(numbers(network, network.start(), x, y).tobytes()).hexdigest())
"""


def test_another_blas_kernel_and_another_number_of_threads_give_the_same_whole_numbers() -> None:
    here = os.path.dirname(__file__)
    fixtures = os.path.join(here, "..", "..", "fixtures")

    def printed(**variables: str) -> str:
        command = [sys.executable, "-c", _PRINTED, here, fixtures]
        done = subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True, text=True, check=True
        )
        return done.stdout

    found = {
        printed(OPENBLAS_CORETYPE="Haswell", OPENBLAS_NUM_THREADS="1"),
        printed(OPENBLAS_CORETYPE="Prescott", OPENBLAS_NUM_THREADS="2"),
    }
    assert len(found) == 1
    assert len(found.pop().split()) == len(CHAINS)


SCALES = (1.0, 30.0, 1e3, 1e6, 1e300, 5e-324, np.nan, np.inf)


@EVERY
@pytest.mark.parametrize("scale", SCALES)
def test_no_share_is_longer_than_the_radius_in_whole_numbers(name, scale) -> None:
    network, x, y = chain(name)
    theta = network.start()
    with np.errstate(over="ignore", invalid="ignore"):
        theta[:: 1 if np.isfinite(scale) else 5] *= scale
    x = np.vstack([x, 1e308 * x[:3], 5e-324 * np.ones_like(x[:1]), np.full_like(x[:1], np.inf)])
    y = np.append(y, [0, 1, 2, 3, 0])
    for clip in (1.0, 0.3, 2.0**-40, 2.0**40):
        config = training(clip_norm=clip)
        unit = Fraction(2) ** -config.grid_bits
        for own in of_each(network, theta, x[:, None], y[:, None], clip):
            square = sum(int(value) ** 2 for value in own)
            assert square <= config.radius**2
            assert square * unit**2 <= Fraction(clip) ** 2


@EVERY
def test_any_two_neighbours_sums_are_no_further_apart_than_the_set_says(name) -> None:
    network, x, y = chain(name)
    rng, config = np.random.default_rng(2), training()
    ball = Set.ball(network.dimension, squared=config.radius**2)
    for scale, row in product((1.0, 1e3), range(8)):
        theta = network.start() * scale
        other, label = x.copy(), y.copy()
        other[row], label[row] = (
            rng.normal(size=x.shape[1]) * 10.0 ** rng.integers(-3, 4),
            (y[row] + 1) % 4,
        )
        whole = numbers(network, theta, x, y).astype(object)
        rest = numbers(network, theta, np.delete(x, row, 0), np.delete(y, row)).astype(object)
        replaced = numbers(network, theta, other, label).astype(object)
        removed = compute_sensitivity(ball, Neighbouring.ADD_OR_REMOVE_ONE).l2_squared
        assert sum((whole - rest) ** 2) <= removed
        assert (
            sum((whole - replaced) ** 2)
            <= compute_sensitivity(ball, Neighbouring.REPLACE_ONE).l2_squared
        )
        # What one record changes is its share alone, to the last unit.
        assert np.array_equal(whole - rest, numbers(network, theta, x[[row]], y[[row]]))


@EVERY
def test_a_share_that_is_too_long_is_dropped_whoever_guessed_its_factor(name, monkeypatch) -> None:
    from parley.client.dp_sgd import exact_clipping

    network, x, y = chain(name)
    monkeypatch.setattr(
        exact_clipping, "_compute_clip_factors", lambda norms, *_: np.full_like(norms, 1e3)
    )
    assert not numbers(network, network.start(), x, y).any()


def test_clipped_records_are_counted_one_by_one() -> None:
    network, x, y = chain("relu")
    _, norms = loop_sums(network.module, torch.tensor(x), torch.tensor(y), 1.0)
    clip = float(np.median(norms))
    config = training(clip_norm=clip)
    own = ExactChain.from_parameters(find_exact_layers(network.module) or (), network.start()[None])
    there = np.arange(40)[None] < 30
    _, signs = own.compute_clipped_sums(x[None], y[None], there, config.radius, config.grid_bits)
    assert abs(signs[0] - (2 * (norms[:30] > clip).sum().item() - 30)) <= 2  # one at the very edge


def test_grids_leave_every_product_below_2_to_the_53() -> None:
    for inputs, outputs, bias in product((1, 2, 1000, 2**17, 2**27), (2, 10, 2**20), (True, False)):
        grid = BitAllocation.from_layers([ExactLayer(inputs, outputs, bias)])
        width = max(inputs + bias, outputs)
        assert width * 2 ** (grid.values + grid.weights) < 2**53
        assert width * 2 ** (2 * grid.values) < 2**53  # squares of values
    assert not BitAllocation.can_fit([ExactLayer(2**28, 2, True)])
    for side, fits in ((1024, True), (1025, False)):  # of windows, sums of products of 32 bits
        own = Windows(1, (side, side), (1, 1), (1, 1), (0, 0), (1, 1))
        assert BitAllocation.can_fit([ExactLayer(1, 2, True, windows=own)]) == fits


def test_exp_and_tanh_are_near_numpys_and_the_same_wherever_a_number_stands() -> None:
    rng = np.random.default_rng(0)
    v = np.concatenate([-rng.exponential(20, 10_000), [-0.0, -700.0, -1e300, -5e-324]])
    near = v > -700
    np.testing.assert_allclose(exp(v)[near], np.exp(v[near]), rtol=3e-13)
    np.testing.assert_allclose(tanh(v), np.tanh(v), atol=1e-14)
    for shift in range(1, 9):
        assert np.array_equal(exp(v[shift:]), exp(v)[shift:])
        assert np.array_equal(exp(v[shift : shift + 1]), exp(v)[shift : shift + 1])


def test_a_training_says_whether_its_guarantee_rests_on_an_assumption() -> None:
    assert training().exact
    assert not replace(training(), per_example_method="vmap").exact
    assert training(noise_multiplier=1e4).grid_bits < training().grid_bits == 33
