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

from parley.client.data.chunks import _pool
from parley.client.dp_sgd import training as dp_sgd
from parley.client.dp_sgd.parties import Parties, PartyData
from parley.client.dp_sgd.settings import LocalTraining
from parley.client.dp_sgd.training import (
    party_chunks,
    train_parties,
    train_party,
)
from parley.client.models.networks import Network
from parley.privacy.sampling.stream import NoiseStream


def test_training_goes_on_after_a_step_that_leaves_no_finite_parameters() -> None:
    """What diverged is told by noisy sums; nothing is raised, whatever a record holds."""
    net, config = network(), training(learning_rate=1e308, clip_norm=1e3, clipped_share=0.1)
    for parties in (["a"], ["a", "b", "c"]):
        data = [party(name) for name in parties]
        trained = train_parties(net, net.start(), Parties.of(data), config)
        assert not np.isfinite(trained.theta).all()
        assert trained.clipped is not None
        assert np.isfinite(trained.clipped).all()


def test_parties_together_end_where_each_ends_alone() -> None:
    net = network()
    names = ["a", "b", "c"]
    sizes = [40, 25, 33]
    config = training(momentum=0.5)
    together = train_parties(
        net,
        net.start(),
        Parties.of([party(n, s, s) for n, s in zip(names, sizes, strict=True)]),
        config,
    )
    net = network()
    start = net.start()
    for row, (name, size) in enumerate(zip(names, sizes, strict=True)):
        alone = train_party(net, start, party(name, size, size), config).theta[0]
        np.testing.assert_allclose(together.theta[row], alone, rtol=1e-9, atol=1e-9)


def test_ways_and_micro_batches_give_the_same_model() -> None:
    net = network()
    start = net.start()
    ghost = train_party(net, start, party(), training()).theta[0]
    small = training(per_example_method="vmap", micro_batch=3)
    other = train_party(net, start, party(), small).theta[0]
    np.testing.assert_allclose(ghost, other, rtol=1e-6, atol=1e-6)


def test_many_parties_are_trained_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network()
    start = net.start()
    names = ["a", "b", "c", "d", "e"]
    whole = train_parties(net, start, Parties.of([party(n) for n in names]), training()).theta
    monkeypatch.setattr("parley.client.dp_sgd.training._VALUES_TOGETHER", 2 * net.dimension)
    broken = with_entry(party("c"), math.inf)
    data = [party("a"), party("b"), broken, party("d"), party("e")]
    chunks = train_parties(net, start, Parties.of(data), training())
    assert np.isfinite(chunks.theta).all()
    kept = [0, 1, 3, 4]
    np.testing.assert_allclose(chunks.theta[kept], whole[kept], rtol=1e-9, atol=1e-9)


def _in_chunks(net: Network, names: str, config: LocalTraining) -> list[PartyData]:
    """Parties that share a stream with those of their chunk, and with no others."""
    data = []
    for chunk, (first, last) in enumerate(party_chunks(net, len(names), config)):
        batches, noise = (NoiseStream.from_seed(5, use, chunk) for use in ("batches", "noise"))
        for name in names[first:last]:
            own = party(name, seed=ord(name))
            data.append(replace(own, batches=batches, noise=noise))
    return data


@pytest.fixture
def two_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.client.dp_sgd.training._VALUES_TOGETHER", 2 * network().dimension)


def _on(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.client.data.chunks._cores", lambda: cores)
    _pool.cache_clear()


@pytest.mark.usefixtures("two_a_chunk")
def test_a_seed_gives_the_same_bits_on_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = network()
    names, config, start = "abcdefghijk", training(momentum=0.5), net.start()
    threads: set[int] = set()
    train = dp_sgd._train_together

    def noted(*args: Any) -> Any:
        threads.add(threading.get_ident())
        time.sleep(0.01)  # gives every thread its turn
        return train(*args)

    monkeypatch.setattr(dp_sgd, "_train_together", noted)
    results = []
    for cores in (1, 2, 2, 3):
        _on(cores, monkeypatch)
        threads.clear()
        trained = train_parties(net, start, Parties.of(_in_chunks(net, names, config)), config)
        assert len(threads) == cores
        results.append(trained.theta.tobytes())
    assert len(set(results)) == 1


@pytest.mark.usefixtures("two_a_chunk")
def test_chunks_that_share_a_stream_are_trained_in_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two threads in one stream could draw the same words."""
    _on(2, monkeypatch)
    monkeypatch.setattr("parley.client.dp_sgd.training.for_each_chunk", None)
    net = network()
    one = party("a")
    data = [replace(party("a"), noise=one.noise) for _ in range(5)]
    trained = train_parties(net, net.start(), Parties.of(data), training())
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
        train_parties(net, net.start(), Parties.of(data), config)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(("parties", "hidden"), [(1, 5), (2, 5), (7, 5), (100, 300), (1000, 300)])
def test_chunks_cover_the_parties_and_depend_on_no_core_count(
    parties: int, hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Network.build("mlp", features=P, classes=K, hidden=(hidden,))
    found = []
    for cores in (1, 2, 64):
        _on(cores, monkeypatch)
        found.append(party_chunks(net, parties, training()))
    assert found[0] == found[1] == found[2]
    covered = [row for first, last in found[0] for row in range(first, last)]
    assert covered == list(range(parties))
    assert (len(found[0]) > 1) == (hidden == 300)


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
    net.use(torch.as_tensor(start).clone())
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
