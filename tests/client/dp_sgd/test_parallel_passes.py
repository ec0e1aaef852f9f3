"""Passes of a torch network: one thread each, next to each other, with the same bits."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from parley.client.data import threaded_chunks
from parley.client.dp_sgd.batch_sums import compute_party_sum
from parley.client.dp_sgd.parallel_passes import _copy_structure
from parley.client.dp_sgd.training_settings import VMAP, LocalTraining
from parley.client.models.networks import Network

ROWS = np.random.default_rng(0).normal(size=(50, 6))
LABELS = np.random.default_rng(1).integers(0, 3, 50)
seen_threads: set[int] = set()


class Counting(nn.Module):
    """Layers that are no chain; notes the number of torch's threads in each pass."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(features, 5), nn.Linear(5, classes)
        self.register_buffer("mean", torch.full((features,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen_threads.add(torch.get_num_threads())
        scores: torch.Tensor = self.last(torch.tanh(self.first(x - self.mean)))
        return scores


def normed(features: int, classes: int) -> nn.Module:
    """Return a network that deepcopy refuses: old weight_norm keeps a computed tensor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer = nn.utils.weight_norm(nn.Linear(features, 5))
    return nn.Sequential(layer, nn.Sigmoid(), nn.Linear(5, classes))


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def build(kind: str) -> Network:
    return Network.build(f"{__name__}:{kind}", features=6, classes=3, precision="float64")


def clipped_sum(network: Network) -> np.ndarray:
    training = LocalTraining(
        steps=1, sampling_rate=1.0, clip_norm=0.1, noise_multiplier=1.0, optimiser="sgd",
        learning_rate=1.0, momentum=0.0, per_example_method=VMAP, micro_batch=8,
    )  # fmt: skip
    return compute_party_sum(
        network, network.start(), ROWS, LABELS, np.arange(50), training, public=50, pad=False
    )


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("kind", ["Counting", "normed"])
def test_a_sum_has_the_same_bits_however_many_passes_run_at_a_time(kind, monkeypatch) -> None:
    found = []
    for cores in (1, 2, 5):
        monkeypatch.setattr(threaded_chunks, "_count_cores", lambda cores=cores: cores)
        found.append(clipped_sum(build(kind)))
    assert np.abs(found[0]).max() > 0
    assert all(np.array_equal(found[0], other) for other in found)


@pytest.mark.usefixtures("two_threads")
def test_a_pass_of_a_small_network_runs_on_one_thread_and_torch_gets_its_threads_back() -> None:
    network = build("Counting")
    seen_threads.clear()
    clipped_sum(network)
    assert seen_threads == {1}
    assert torch.get_num_threads() == 2


def test_a_threads_module_shares_every_tensor_and_a_network_that_cannot_be_copied_has_one() -> None:
    module = Counting(6, 3)
    other = _copy_structure(module)
    assert other is not None
    own, shared = (dict(m.named_parameters()) | dict(m.named_buffers()) for m in (module, other))
    assert all(own[name] is shared[name] for name in own)
    assert other.first is not module.first
    assert _copy_structure(normed(6, 3)) is None
