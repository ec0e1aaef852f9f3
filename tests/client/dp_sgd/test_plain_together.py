"""Small parties trained in blocks: each as by itself, to the bit, and as torch would."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from parley.client.dp_sgd import plain_together
from parley.client.dp_sgd.batches import poisson_batch, poisson_batches
from parley.client.dp_sgd.parties import Parties, PartyData
from parley.client.dp_sgd.settings import LocalTraining
from parley.client.dp_sgd.training import train_parties, train_party
from parley.client.models.networks import Network
from parley.privacy.sampling.stream import NoiseStream

P, K = 20, 4

TRAINING = LocalTraining(
    steps=3,
    sampling_rate=0.5,
    clip_norm=None,
    noise_multiplier=0.0,
    optimiser="sgd",
    learning_rate=0.1,
    momentum=0.0,
    per_example_method="ghost",
    micro_batch=64,
)
SIZES = [1, 5, 9, 30, 2, 17, 300, 6, 6, 3]
"""Batches of several widths, some empty; the party of 300 is trained by itself."""


def network(hidden: tuple[int, ...] = (7,), precision: Any = "float32", **changes: Any) -> Network:
    return Network.build(
        "mlp", features=P, classes=K, hidden=hidden, precision=precision, **changes
    )


def party(net: Network, number: int) -> PartyData:
    rng = np.random.default_rng(number)
    features = rng.standard_normal((SIZES[number], P))
    return PartyData(
        features=net.rows(features / np.linalg.norm(features, axis=1, keepdims=True)),
        labels=torch.as_tensor(rng.integers(0, K, SIZES[number])),
        divisor=SIZES[number],
        batches=NoiseStream.from_seed(3, "batches", number),
        noise=NoiseStream.from_seed(3, "noise", number),
    )


def among(net: Network, numbers: list[int]) -> Parties:
    return Parties.of([party(net, number) for number in numbers])


@pytest.mark.parametrize(
    ("hidden", "precision", "changes"),
    [
        ((7,), "float32", {}),
        ((7, 3), "float64", {"optimiser": "adam"}),
        ((), "float64", {"momentum": 0.5}),
        ((1,), "float32", {"sampling_rate": 1.0}),
    ],
)
def test_a_party_comes_to_the_same_bits_in_any_block_and_to_torchs_values(
    hidden, precision, changes, monkeypatch
):
    net, training = network(hidden, precision), replace(TRAINING, **changes)
    start, everyone = net.start(), list(range(len(SIZES)))
    whole = train_parties(net, start, among(net, everyone), training).theta
    backwards = train_parties(net, start, among(net, everyone[::-1]), training).theta
    assert np.array_equal(whole, backwards[::-1])
    monkeypatch.setattr(plain_together, "_VALUES_TOGETHER", 2 * net.dimension)
    assert np.array_equal(train_parties(net, start, among(net, everyone), training).theta, whole)
    alone = [train_parties(net, start, among(net, [row]), training).theta[0] for row in everyone]
    assert np.array_equal(alone, whole)
    torchs = [train_party(net, start, party(net, row), training).theta[0] for row in everyone]
    assert np.allclose(whole, torchs, rtol=0, atol=1e-4 if precision == "float32" else 1e-11)
    assert np.abs(whole - start).max(axis=1).min() > 0 or training.sampling_rate < 1


def test_class_weights_count_as_they_do_for_a_party_by_itself():
    net = network(precision="float64", class_weights=(1.0, 0.25, 0.5, 1.0))
    whole = train_parties(net, net.start(), among(net, [1, 2, 3]), TRAINING).theta
    torchs = [
        train_party(net, net.start(), party(net, row), TRAINING).theta[0] for row in (1, 2, 3)
    ]
    assert np.allclose(whole, torchs, rtol=0, atol=1e-12)


def test_a_party_that_diverges_moves_nobody_else():
    net = network()
    rows = [1, 2, 7, 8]
    whole = train_parties(net, net.start(), among(net, rows), TRAINING).theta
    broken = [party(net, row) for row in rows]
    broken[2] = replace(broken[2], features=torch.full_like(broken[2].features, torch.nan))
    found = train_parties(net, net.start(), Parties.of(broken), TRAINING).theta
    assert np.isnan(found[2]).any()
    assert np.array_equal(np.delete(found, 2, axis=0), np.delete(whole, 2, axis=0))


def test_all_steps_batches_are_those_of_one_step_after_the_other():
    together = poisson_batches(7, 0.3, 4, NoiseStream.from_seed(1))
    stream = NoiseStream.from_seed(1)
    for drawn in together:
        assert np.flatnonzero(drawn).tolist() == poisson_batch(7, 0.3, stream).tolist()


def test_large_networks_and_batches_and_clipped_records_are_trained_as_before():
    net = network()
    assert plain_together.together(net, TRAINING) is not None
    assert plain_together.together(net, replace(TRAINING, clip_norm=1.0)) is None
    assert plain_together.together(network((20_000,)), TRAINING) is None
    cnn = Network.build("cnn", features=256, classes=K)
    assert plain_together.together(cnn, TRAINING) is None
    assert plain_together.small(np.array([128, 129]), TRAINING).tolist() == [True, False]
