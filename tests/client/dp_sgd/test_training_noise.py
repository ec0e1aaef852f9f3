"""Noise, clipping and sensitivity of local training have their claimed sizes."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_networks import network, party, training, with_entry

from parley.client.dp_sgd import local_training as dp_sgd
from parley.client.dp_sgd.local_training import TrainingResult, train_parties, train_party
from parley.client.dp_sgd.poisson_batches import draw_poisson_batch
from parley.client.dp_sgd.training_data import PartyData, TrainingParties
from parley.client.dp_sgd.training_settings import LocalTraining
from parley.client.models.record_losses import cross_entropy
from parley.privacy.sampling.random_stream import NoiseStream
from parley.privacy.sampling.rounded_gaussian import draw_rounded_gaussian


def test_noise_has_its_standard_deviation_on_the_sum() -> None:
    """θ moves by η/(qn) times the noisy sum: with no record in the batch, by the noise alone."""
    net = network()
    config = training(steps=1, sampling_rate=1e-9, noise_multiplier=2.0)
    start = net.start()
    moves = []
    for trial in range(300):
        moved = train_party(net, start, party(f"t{trial}"), config).theta[0]
        moves.append((moved - start) * 1e-9 * 40 / 0.2)
    noise = np.concatenate(moves)
    expected = 2.0 * 0.5
    error = math.sqrt(1 / (2 * len(noise)))
    assert abs(noise.std() / expected - 1) < 5 * error
    assert abs(noise.std() / (expected * 2 / 3) - 1) > 20 * error
    assert abs(noise.std() / (expected * 3 / 2) - 1) > 20 * error


def test_a_share_for_the_clipped_fraction_makes_the_noise_on_sums_larger() -> None:
    net, start = network(), network().start()
    config = training(steps=1, sampling_rate=1e-9, noise_multiplier=2.0, clipped_share=0.75)
    moves = [train_party(net, start, party(f"t{t}"), config).theta[0] - start for t in range(300)]
    noise = np.concatenate(moves) * 1e-9 * 40 / 0.2
    # 2.0·C/√(1 − ¾), and not 2.0·C.
    assert abs(noise.std() / (2.0 * 0.5 * 2) - 1) < 5 * math.sqrt(1 / (2 * len(noise)))


def _spread_of_fractions(config: LocalTraining) -> tuple[NDArray[np.float64], float]:
    """Fractions of parties whose batches are empty, and what their spread should be."""
    net, fractions = network(), []
    for trial in range(4):
        batches, noise = (NoiseStream.from_seed(9, use, trial) for use in ("batches", "noise"))
        own = replace(party(), batches=batches, noise=noise)
        clipped = train_parties(
            net, net.start(), TrainingParties.from_parties([own] * 200), config
        ).clipped_fractions
        assert clipped is not None
        fractions.append(clipped)
    of_count = 2.0 / math.sqrt(config.clipped_share) * math.sqrt(config.steps)
    return np.concatenate(fractions), of_count / (2 * config.sampling_rate * 40 * config.steps)


def test_the_clipped_fractions_noise_has_its_standard_deviation() -> None:
    config = training(steps=3, sampling_rate=1e-9, noise_multiplier=2.0, clipped_share=0.01)
    fractions, expected = _spread_of_fractions(config)
    error = math.sqrt(1 / (2 * len(fractions)))
    spread = float((fractions - 0.5).std())
    assert abs(fractions.mean() - 0.5) < 5 * expected / math.sqrt(len(fractions))
    assert abs(spread / expected - 1) < 5 * error
    for wrong in (2 / 3, 3 / 2, 1 / math.sqrt(3)):  # the last: noise of one step for all three
        assert abs(spread / (expected * wrong) - 1) > 8 * error


def _clipped_by_a_loop(config: LocalTraining, label: str, records: int) -> int:
    """Σ (2b_i − 1) over all steps at the start's θ, record after record."""
    net, data, total = network(), party(label, records), 0
    net.set_parameters(torch.as_tensor(net.start()).clone())
    for _ in range(config.steps):
        for row in draw_poisson_batch(records, config.sampling_rate, data.batches):
            net.module.zero_grad()
            cross_entropy(net.module(data.features[[row]]), data.labels[[row]]).sum().backward()
            flat = torch.cat([p.grad.reshape(-1) for p in net.module.parameters()])
            total += 1 if float(flat.norm()) > (config.clip_norm or 0) else -1
    return total


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every party's Σ (2b_i − 1) as it is before its noise."""
    counts: list[float] = []
    noisy = dp_sgd._estimate_fractions

    def noted(signs: torch.Tensor, *args: Any) -> Any:
        counts.extend(signs.tolist())
        return noisy(signs, *args)

    monkeypatch.setattr(dp_sgd, "_estimate_fractions", noted)
    return counts


COUNTED = [
    (way, together, micro_batch)
    for way, together in [("vmap", False), ("exact", False), ("exact", True)]
    for micro_batch in (3, 2048)
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("way", "together", "micro_batch"), COUNTED)
def test_every_way_counts_the_clipped_records_of_a_plain_loop(
    way: str, together: bool, micro_batch: int, counted: list[float]
) -> None:
    # With a learning rate of 0 every step is at the start's θ; half of the records are clipped.
    config = training(
        steps=3,
        per_example_method=way,
        micro_batch=micro_batch,
        clip_norm=1.6,
        learning_rate=0.0,
        clipped_share=0.1,
    )
    sizes = {"a": 40, "b": 25, "c": 33}
    data = [party(name, size) for name, size in sizes.items()]
    if together:
        train_parties(network(), network().start(), TrainingParties.from_parties(data), config)
    else:
        for own in data:
            train_party(network(), network().start(), own, config)
    expected = [_clipped_by_a_loop(config, name, size) for name, size in sizes.items()]
    assert sorted(counted) == sorted(expected)  # chunks are counted in any order
    assert min(abs(count) for count in expected) < 20  # neither all nor none


WITHOUT_NORM = [math.nan, math.inf, 1.7e308]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", WITHOUT_NORM)
@pytest.mark.parametrize("way", ["vmap", "exact", "together"])
def test_one_record_without_a_finite_gradient_moves_a_sum_by_at_most_the_bound(
    way: str, entry: float
) -> None:
    """Nobody can tell it from a record that adds zero: training goes on, and all is finite."""
    net, start = network(), network().start()
    config = training(
        steps=1,
        sampling_rate=1.0,
        noise_multiplier=1e-6,
        clipped_share=0.5,
        per_example_method="exact" if way == "together" else way,
    )

    def trained(data: PartyData) -> TrainingResult:
        parties = [data, party("b")] if way == "together" else [data]
        return train_parties(net, start, TrainingParties.from_parties(parties), config)

    without, broken = trained(party()), trained(with_entry(party(), entry))
    assert np.isfinite(broken.theta).all()
    moved = np.linalg.norm(broken.theta[0] - without.theta[0]) * 40 / 0.2
    assert moved <= 0.5 * (1 + 1e-5)  # C: from its clipped gradient to zero
    assert moved > 0.1
    assert without.clipped_fractions is not None
    assert broken.clipped_fractions is not None
    assert abs(broken.clipped_fractions[0] - without.clipped_fractions[0]) <= 1.001 / 40
    np.testing.assert_array_equal(broken.theta[1:], without.theta[1:])


def test_noise_is_added_to_sums_however_they_lie_in_memory() -> None:
    config = training()
    total = torch.zeros((4, 3), dtype=torch.float64).T
    noisy = dp_sgd._add_grid_noise(total, config, [NoiseStream.from_seed(1)] * 3)
    scale = 2.0**config.grid_bits
    drawn = draw_rounded_gaussian(1.5 * 0.5 * scale, 12, NoiseStream.from_seed(1)).reshape(3, 4)
    np.testing.assert_array_equal(noisy.numpy(), drawn / scale)
