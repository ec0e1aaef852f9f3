"""Clipped sums of a step: one pass for all parties, or a party by itself on padded rows."""

from __future__ import annotations

import numpy as np
import pytest

from parley.client.dp_sgd import torch_batch_sums
from parley.client.dp_sgd.batch_sums import compute_party_sum, compute_union_sums
from parley.client.dp_sgd.poisson_batch_bound import compute_padded_width
from parley.client.dp_sgd.poisson_batches import draw_party_batches
from parley.client.dp_sgd.training_settings import LocalTraining
from parley.client.models.networks import Network
from parley.privacy.sampling.random_stream import NoiseStream

SIZES = (40, 3, 70, 55)
OFFSETS = np.cumsum([0, *SIZES])


def training(**changes) -> LocalTraining:
    given = {
        "steps": 3, "sampling_rate": 0.3, "clip_norm": 0.5, "noise_multiplier": 0.0,
        "optimiser": "sgd", "learning_rate": 0.1, "momentum": 0.0, "per_example_method": "vmap",
        "micro_batch": 2048,
    }  # fmt: skip
    return LocalTraining(**{**given, **changes})


def world(kind="mlp", features=6):
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(OFFSETS[-1], features))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = rng.integers(0, 3, len(rows))
    network = Network.build(
        kind, features=features, classes=3, hidden=(5,) if kind == "mlp" else (),
        precision="float64",
    )  # fmt: skip
    return network, rows, labels


def alone(network, rows, labels, batches, config, *, pad):
    theta = network.start()
    return np.stack(
        [
            compute_party_sum(
                network,
                theta,
                rows[begin:end],
                labels[begin:end],
                batch - begin,
                config,
                public=40,
                pad=pad,
            )
            for begin, end, batch in zip(OFFSETS, OFFSETS[1:], batches, strict=False)
        ]
    )


@pytest.mark.parametrize("micro_batch", [2048, 7])
@pytest.mark.parametrize(
    ("kind", "way", "features"),
    [
        ("mlp", "exact", 6), ("mlp", "vmap", 6), ("mlp", None, 6),
        ("cnn", "exact", 256), ("cnn", "vmap", 256),
    ],
)  # fmt: skip
def test_one_pass_for_all_parties_gives_every_partys_own_sum(kind, way, features, micro_batch):
    network, rows, labels = world(kind, features)
    config = training(
        per_example_method=way or "vmap", clip_norm=0.5 if way else None, micro_batch=micro_batch
    )
    batches = draw_party_batches(OFFSETS, 0.3, NoiseStream.from_seed(4))
    together = compute_union_sums(
        network, network.start(), rows, labels, batches, config, public=150
    )
    for pad in (False, True):
        single = alone(network, rows, labels, batches, config, pad=pad)
        assert np.abs(together - single).max() < (1e-7 if way == "vmap" else 1e-12)
    assert np.abs(together).max() > 0.01
    if way:
        assert (np.linalg.norm(together, axis=1) <= 0.5 * np.array([len(b) for b in batches])).all()


def test_a_party_that_drew_nothing_gives_zero_and_a_record_that_is_not_finite_adds_none():
    network, rows, labels = world()
    nothing = np.zeros(0, dtype=np.int64)
    batches = [np.array([0, 1]), nothing, np.array([50, 51]), nothing]
    before = compute_union_sums(
        network, network.start(), rows, labels, batches, training(), public=150
    )
    assert not before[[1, 3]].any()
    rows[1] = np.inf
    after = compute_union_sums(
        network, network.start(), rows, labels, batches, training(), public=150
    )
    without = [np.array([0]), nothing, np.array([50, 51]), nothing]
    expected = compute_union_sums(
        network, network.start(), rows, labels, without, training(), public=150
    )
    assert np.abs(after - expected).max() < 1e-12
    padded = compute_party_sum(
        network,
        network.start(),
        rows[:40],
        labels[:40],
        batches[0],
        training(),
        public=40,
        pad=True,
    )
    assert np.abs(padded - expected[0]).max() < 1e-12


def test_a_partys_batches_are_its_own_records_each_at_the_rate():
    stream, counts = NoiseStream.from_seed(9), np.zeros(OFFSETS[-1])
    for _ in range(400):
        for party, batch in enumerate(draw_party_batches(OFFSETS, 0.3, stream)):
            assert ((batch >= OFFSETS[party]) & (batch < OFFSETS[party + 1])).all()
            counts[batch] += 1
    assert abs(counts.mean() / 400 - 0.3) < 0.01
    assert counts.std() == pytest.approx(np.sqrt(400 * 0.3 * 0.7), rel=0.25)


def test_a_padded_batch_is_as_wide_whatever_was_drawn_and_a_larger_one_is_not_cut(monkeypatch):
    network, rows, labels = world()
    seen = []
    whole = torch_batch_sums.compute_clipped_sum
    monkeypatch.setattr(
        torch_batch_sums,
        "compute_clipped_sum",
        lambda *a, **k: seen.append(len(a[1])) or whole(*a, **k),
    )
    config, theta = training(sampling_rate=0.1), network.start()
    assert compute_padded_width(70, 0.1) == 23
    for drawn in (0, 1, 9, 23, 30):
        compute_party_sum(
            network, theta, rows[43:113], labels[43:113], np.arange(drawn), config,
            public=70, pad=True,
        )  # fmt: skip
    tried = len(seen) - 6  # once, how rows are kept apart
    assert seen[tried:] == [24] * 6  # the last takes two
