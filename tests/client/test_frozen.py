"""Frozen layers stay as they were built, to the bit; the release is the trainable parameters."""

from pathlib import Path

import numpy as np
import pytest
import small_networks
import torch
from torch import nn

from parley.client.algorithms.task_codec import decode_task, describe_task
from parley.client.contract.strict_decoding import DecodingError
from parley.client.dp_sgd.local_training import train_parties, train_party
from parley.client.dp_sgd.torch_clipping import choose_way
from parley.client.dp_sgd.training_data import PartyData, TrainingParties
from parley.client.dp_sgd.training_settings import LocalTraining
from parley.client.models.layer_checks import NetworkError
from parley.client.models.networks import Network
from parley.privacy.sampling.random_stream import NoiseStream

pytestmark = pytest.mark.filterwarnings("ignore")

FINE_TUNING = """
import torch
from torch import nn


def net(features, classes):
    backbone = nn.Sequential(
        nn.Unflatten(1, (1, 6, 6)), nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()
    )
    backbone[2].running_mean.uniform_(-0.1, 0.1)
    backbone.eval()
    backbone.requires_grad_(False)
    return nn.Sequential(backbone, nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, classes))


def biases(features, classes):
    module = nn.Sequential(nn.Linear(features, 8), nn.Tanh(), nn.Linear(8, classes))
    for layer in (module[0], module[2]):
        layer.weight.requires_grad_(False)
    return module


def spectral(features, classes):
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(features, 8))
    return nn.Sequential(layer, nn.Linear(8, classes))


def old_spectral(features, classes):
    return nn.Sequential(
        nn.utils.spectral_norm(nn.Linear(features, 8)), nn.Linear(8, classes)
    )


class Counts(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.last = nn.Linear(features, classes)
        self.register_buffer("seen", torch.zeros(features))

    def forward(self, x):
        self.seen += x.sum(0)
        return self.last(x)


class Random(Counts):
    def forward(self, x):
        return nn.functional.dropout(self.last(x), 0.5)


def counts(features, classes):
    return Counts(features, classes)


def random(features, classes):
    return Random(features, classes)


def all_frozen(features, classes):
    return nn.Linear(features, classes).requires_grad_(False)
"""

HEAD = 64 * 8 + 8 + 8 * 3 + 3


@pytest.fixture
def build(tmp_path: Path):
    source = tmp_path / "mine.py"
    source.write_text(FINE_TUNING)

    def built(name: str, precision: str = "float64", seed: int = 0) -> Network:
        return Network.build(
            f"{source}:{name}", features=36, classes=3, precision=precision, seed=seed
        )

    return built


def party(network: Network, label: str) -> PartyData:
    rng = np.random.default_rng(ord(label))
    return PartyData(
        features=network.to_tensor(rng.standard_normal((30, 36))),
        labels=torch.as_tensor(rng.integers(0, 3, 30)),
        divisor=30,
        batches=NoiseStream.from_seed(5, "batches", label),
        noise=NoiseStream.from_seed(5, "noise", label),
    )


def training(**changes) -> LocalTraining:
    plain = {"steps": 3, "sampling_rate": 0.5, "noise_multiplier": 1.0, "learning_rate": 0.1}
    return small_networks.training(
        **(plain | {"optimiser": "adam", "per_example_method": "vmap"} | changes)
    )


def bits(module: nn.Module, *, trained: bool) -> dict[str, bytes]:
    """Of what is trained, or of all the rest: frozen parameters and buffers."""
    own = {name for name, p in module.named_parameters() if p.requires_grad}
    state = module.state_dict()
    return {n: t.numpy().tobytes() for n, t in state.items() if (n in own) == trained}


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_frozen_backbone_keeps_its_bits_and_takes_no_noise(build, precision) -> None:
    network = build("net", precision)
    assert network.dimension == len(network.start()) == HEAD
    frozen, head = bits(network.module, trained=False), bits(network.module, trained=True)
    moved = train_party(network, network.start(), party(network, "a"), training()).theta[0]
    assert moved.shape == (HEAD,)
    assert (moved != network.start()).all()  # noise on every coordinate that is released
    assert bits(network.module, trained=False) == frozen
    assert not set(bits(network.module, trained=True).values()) & set(head.values())


def test_parties_together_train_the_head_alone_as_each_does_alone(build) -> None:
    network = build("net")
    assert choose_way(network) == "vmap"
    frozen = bits(network.module, trained=False)
    data = [party(network, label) for label in "abc"]
    together = train_parties(
        network, network.start(), TrainingParties.from_parties(data), training()
    )
    assert together.theta.shape == (3, HEAD)
    assert bits(network.module, trained=False) == frozen
    for row, label in enumerate("abc"):
        alone = train_party(network, network.start(), party(network, label), training())
        np.testing.assert_allclose(together.theta[row], alone.theta[0], rtol=1e-9, atol=1e-9)


def test_training_without_clipping_moves_the_head_alone_too(build) -> None:
    network = build("net")
    frozen = bits(network.module, trained=False)
    config = training(clip_norm=None, noise_multiplier=0.0)
    moved = train_party(network, network.start(), party(network, "a"), config).theta[0]
    assert moved.shape == (HEAD,)
    assert bits(network.module, trained=False) == frozen


def test_a_layer_that_is_frozen_in_part_has_a_way(build) -> None:
    network = build("biases")
    assert network.dimension == 8 + 3
    assert choose_way(network) == "vmap"


def test_frozen_layers_are_the_same_whatever_a_job_draws_its_start_from(build) -> None:
    one, other = build("net", seed=1), build("net", seed=2)
    assert bits(one.module, trained=False) == bits(other.module, trained=False)
    assert one.frozen_digest == other.frozen_digest != build("biases").frozen_digest
    assert Network.build("mlp", features=4, classes=2, hidden=(3,)).frozen_digest == ""


def test_a_party_with_other_frozen_layers_declines(build) -> None:
    network = build("net")
    task = describe_task(small_networks.averaging(network, training()))
    same = decode_task(task, device="cpu", own_models={"mine.py:net": network.kind})
    assert same.model.frozen_digest == network.frozen_digest
    task["network"]["frozen"] = "0" * 64
    with pytest.raises(DecodingError, match="same file of weights"):
        decode_task(task, device="cpu", own_models={"mine.py:net": network.kind})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("spectral", "buffer 0.parametrizations.weight.0._u"),
        ("old_spectral", "buffer 0.weight_u"),
        ("counts", "buffer seen"),
        ("random", "draws random numbers"),
        ("all_frozen", "parameters to train"),
    ],
)
def test_modules_that_a_forward_pass_changes_are_refused_by_name(build, name, message) -> None:
    with pytest.raises(NetworkError, match=message):
        build(name)
