"""The local core: batches, noise on the sum, the bound on one record, refusals."""

import math
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from small_networks import K, P, network, party, training, with_entry

from parley.client.data.threaded_chunks import _get_pool
from parley.client.dp_sgd import batch_sums
from parley.client.dp_sgd import local_training as dp_sgd
from parley.client.dp_sgd.batch_sums import split_party_chunks, supports_joint_pass
from parley.client.dp_sgd.local_training import train_parties, train_party
from parley.client.dp_sgd.training_data import PartyData, TrainingParties
from parley.client.dp_sgd.training_settings import LocalTraining
from parley.client.models.networks import Network
from parley.privacy.sampling.random_stream import NoiseStream


def test_training_goes_on_after_a_step_that_leaves_no_finite_parameters() -> None:
    """What diverged is told by noisy sums; nothing is raised, whatever a record holds."""
    net, config = network(), training(learning_rate=1e308, clip_norm=1e3, clipped_share=0.1)
    for parties in (["a"], ["a", "b", "c"]):
        data = [party(name) for name in parties]
        trained = train_parties(net, net.start(), TrainingParties.from_parties(data), config)
        assert not np.isfinite(trained.theta).all()
        assert trained.clipped_fractions is not None
        assert np.isfinite(trained.clipped_fractions).all()


SIZES = [1, 5, 9, 30, 2, 17, 300, 6, 6, 3]
"""Batches of several widths, some empty; the party of 300 is trained by itself."""

PLAIN = {"clip_norm": None, "noise_multiplier": 0.0, "sampling_rate": 0.9, "micro_batch": 64}
BITS = [
    ((7,), "float32", PLAIN),
    ((7, 3), "float64", {**PLAIN, "optimiser": "adam"}),
    ((), "float64", {**PLAIN, "momentum": 0.5}),
    ((1,), "float32", {**PLAIN, "sampling_rate": 1.0}),
    ((7,), "float32", {"micro_batch": 64}),
    ((7, 3), "float64", {"optimiser": "adam", "clipped_share": 0.1}),
]


@pytest.mark.parametrize(("hidden", "precision", "changes"), BITS)
def test_a_party_comes_to_the_same_bits_in_any_block_and_to_what_it_does_by_itself(
    hidden, precision, changes, monkeypatch
) -> None:
    """Whoever is beside it, with weights of classes, and where another party diverged."""
    net = Network.build(
        "mlp", features=P, classes=K, hidden=hidden, precision=precision,
        class_weights=(1.0, 0.25, 0.5),
    )  # fmt: skip
    config, start = training(**changes), net.start()

    def own(row: int) -> PartyData:
        made = party(str(row), SIZES[row], row)
        return replace(made, features=net.to_tensor(made.features.numpy()))

    def trained(rows: list[PartyData]) -> np.ndarray:
        return train_parties(
            net, start, TrainingParties.from_parties(rows), config, records=9
        ).theta

    everyone = [own(row) for row in range(len(SIZES))]
    whole = trained(everyone)
    assert np.array_equal(trained([own(row) for row in reversed(range(len(SIZES)))]), whole[::-1])
    monkeypatch.setattr(batch_sums, "_VALUES_TOGETHER", 2 * net.dimension)
    broken = [own(row) for row in range(len(SIZES))]
    broken[7] = with_entry(broken[7], math.nan)
    found = trained(broken)
    assert np.array_equal(np.delete(found, 7, axis=0), np.delete(whole, 7, axis=0))
    assert np.isfinite(found[7]).all()
    assert np.array_equal([trained([own(row)])[0] for row in range(len(SIZES))], whole)
    alone = [train_party(net, start, own(row), config).theta[0] for row in range(len(SIZES))]
    if config.clip_norm is None:
        np.testing.assert_allclose(whole, alone, atol=1e-3)
    else:
        assert np.array_equal(whole, alone)


def test_networks_that_mix_places_or_are_large_are_trained_party_by_party() -> None:
    assert supports_joint_pass(network(), training())
    assert not supports_joint_pass(network(), training(per_example_method="vmap"))
    large = Network.build("mlp", features=P, classes=K, hidden=(50_000,))
    assert not supports_joint_pass(large, training())


def _in_chunks(net: Network, names: str, config: LocalTraining) -> list[PartyData]:
    """Parties that share a stream with those of their chunk, and with no others."""
    data = []
    for chunk, (first, last) in enumerate(split_party_chunks(net, len(names), config)):
        batches, noise = (NoiseStream.from_seed(5, use, chunk) for use in ("batches", "noise"))
        for name in names[first:last]:
            own = party(name, seed=ord(name))
            data.append(replace(own, batches=batches, noise=noise))
    return data


@pytest.fixture
def two_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sums, "_VALUES_TOGETHER", 2 * network().dimension)


def _on(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.client.data.threaded_chunks._count_cores", lambda: cores)
    _get_pool.cache_clear()


@pytest.mark.usefixtures("two_a_chunk")
def test_a_seed_gives_the_same_bits_on_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = network()
    names, config, start = "abcdefghijk", training(momentum=0.5), net.start()
    threads: set[int] = set()
    train = dp_sgd._train

    def noted(*args: Any, **more: Any) -> Any:
        threads.add(threading.get_ident())
        time.sleep(0.01)  # gives every thread its turn
        return train(*args, **more)

    monkeypatch.setattr(dp_sgd, "_train", noted)
    results = []
    for cores in (1, 2, 2, 3):
        _on(cores, monkeypatch)
        threads.clear()
        trained = train_parties(
            net, start, TrainingParties.from_parties(_in_chunks(net, names, config)), config
        )
        assert len(threads) == cores
        results.append(trained.theta.tobytes())
    assert len(set(results)) == 1


@pytest.mark.usefixtures("two_a_chunk")
def test_chunks_that_share_a_stream_are_trained_in_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two threads in one stream could draw the same words."""
    _on(2, monkeypatch)
    monkeypatch.setattr("parley.client.dp_sgd.local_training.map_chunks", None)
    net = network()
    one = party("a")
    data = [replace(party("a"), noise=one.noise) for _ in range(5)]
    trained = train_parties(net, net.start(), TrainingParties.from_parties(data), training())
    assert len({row.tobytes() for row in trained.theta}) == 5


@pytest.mark.usefixtures("two_a_chunk")
def test_errors_of_a_later_chunk_come_through_and_threads_are_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _on(2, monkeypatch)
    net, config = network(), training(sampling_rate=1.0)
    threads = torch.get_num_threads()
    data = _in_chunks(net, "abcdefgh", config)
    data[6] = replace(data[6], labels=data[6].labels + K)  # in a later chunk, no class of ours
    with pytest.raises(IndexError):
        train_parties(net, net.start(), TrainingParties.from_parties(data), config)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(("parties", "hidden"), [(1, 5), (2, 5), (7, 5), (100, 300), (1000, 300)])
def test_chunks_cover_the_parties_and_depend_on_no_core_count(
    parties: int, hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Network.build("mlp", features=P, classes=K, hidden=(hidden,))
    found = []
    for cores in (1, 2, 64):
        _on(cores, monkeypatch)
        found.append(split_party_chunks(net, parties, training()))
    assert found[0] == found[1] == found[2]
    covered = [row for first, last in found[0] for row in range(first, last)]
    assert covered == list(range(parties))
    assert len(found[0]) >= min(2, parties)


def test_adam_and_momentum_are_torchs_on_the_noisy_gradients() -> None:
    net = network()
    start = net.start()
    config = training(
        optimiser="adam",
        learning_rate=0.01,
        sampling_rate=1.0,
        noise_multiplier=0.0,
        clip_norm=None,
        steps=6,
    )
    ours = train_party(net, start, party(), config).theta[0]
    net.set_parameters(torch.as_tensor(start).clone())
    adam = torch.optim.Adam(net.module.parameters(), lr=0.01)
    data = party()
    for _ in range(6):
        adam.zero_grad()
        torch.nn.functional.cross_entropy(net.module(data.features), data.labels).backward()
        adam.step()
    theirs = torch.nn.utils.parameters_to_vector(net.module.parameters()).detach().numpy()
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)
    assert np.array_equal(net.start(), start)  # the public start, not where it was left


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampling_rate": 0.0}, "sampling rate"),
        ({"clip_norm": 1e-13}, "clip_norm from"),
        ({"clip_norm": 1e13}, "clip_norm from"),
        ({"clip_norm": math.nan}, "clip_norm from"),
        ({"sampling_rate": 1.1}, "sampling rate"),
        ({"clip_norm": 0.0}, "clip_norm from"),
        ({"clip_norm": -1.0}, "clip_norm from"),
        ({"clip_norm": None}, "clip_norm with noise"),
        ({"steps": 0}, "steps"),
        ({"clipped_share": 1.0}, "share < 1"),
        ({"clipped_share": -0.1}, "share < 1"),
        ({"clipped_share": 0.1, "noise_multiplier": 0.0}, "noise with a clipped_share"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        training(**changes)
