"""Networks on another device than the CPU: nothing is left behind, and the sums are the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from parley.client.dp_sgd.local_training import train_parties, train_party
from parley.client.dp_sgd.torch_clipping import compute_clipped_sum
from parley.client.dp_sgd.training_data import PartyData, TrainingParties
from parley.client.dp_sgd.training_settings import LocalTraining
from parley.client.models.layer_checks import NetworkError
from parley.client.models.networks import Network
from parley.privacy.sampling.random_stream import NoiseStream

needs_cuda = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device, torch.cuda.is_available() is False"
)


class LeavesOneOut(nn.Module):
    """A layer that the forward pass never uses: its gradient is zero, on the right device."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(4, 3)
        self.spare = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


def networks() -> list[tuple[nn.Module, tuple[int, ...]]]:
    torch.manual_seed(0)
    return [
        (nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), (4,)),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3)), (1, 8, 8)),
        (LeavesOneOut(), (4,)),
    ]


def test_a_layer_left_out_has_a_gradient_of_zero() -> None:
    network, _ = networks()[2]
    total, _ = compute_clipped_sum(network, torch.randn((6, 4)), torch.randint(0, 3, (6,)), 0.5)
    assert total[:15].all()
    assert not total[15:].any()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_cuda_it_is_refused_by_name_and_auto_takes_the_cpu() -> None:
    with pytest.raises(NetworkError, match=r"run\.device = 'cuda'"):
        Network.build("mlp", features=4, classes=3, hidden=(5,), device="cuda")
    assert Network.build("mlp", features=4, classes=3, device="auto").device.type == "cpu"


@needs_cuda
@pytest.mark.parametrize("at", range(3))
def test_the_clipped_sums_are_those_of_the_cpu(at) -> None:
    network, shape = networks()[at]
    network = network.double()
    x = torch.randn((7, *shape), dtype=torch.float64)
    y = torch.randint(0, 3, (7,))
    there, norms = compute_clipped_sum(network, x, y, 0.5)
    total, other = compute_clipped_sum(network.cuda(), x.cuda(), y.cuda(), 0.5)
    np.testing.assert_allclose(total, there, atol=1e-6)
    np.testing.assert_allclose(other, norms, atol=1e-9)


DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]
"""On the CPU the tests compare two equal runs, so that they stay in step with the code."""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["mlp", "cnn"])
@pytest.mark.parametrize("private", [True, False])
def test_training_on_a_device_is_training_on_the_cpu_with_the_same_noise(
    kind, private, device
) -> None:
    config = LocalTraining(
        steps=3,
        sampling_rate=0.5,
        clip_norm=1.0 if private else None,
        noise_multiplier=1.0 if private else 0.0,
        optimiser="adam",
        learning_rate=0.1,
        momentum=0.0,
        per_example_method="vmap",
        micro_batch=16,
    )
    rows = np.random.default_rng(0).normal(size=(40, 256)) / 20
    labels = np.arange(40) % 3

    def trained(device: str) -> tuple[np.ndarray, np.ndarray]:
        network = Network.build(
            kind, features=256, classes=3, hidden=(8,), precision="float64", device=device
        )

        def party(seed: int) -> PartyData:
            return PartyData(
                features=network.to_tensor(rows),
                labels=torch.as_tensor(labels, device=network.device),
                divisor=40,
                batches=NoiseStream.from_seed(seed, "batches"),
                noise=NoiseStream.from_seed(seed, "noise"),
            )

        start = network.start()
        several = train_parties(
            network, start, TrainingParties.from_parties([party(1), party(2)]), config
        )
        return train_party(network, start, party(1), config).theta, several.theta

    for here, there in zip(trained("cpu"), trained(device), strict=True):
        assert np.allclose(here, there, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("unit", ["record", "party", "both"])
def test_a_run_on_a_device_releases_and_charges_what_one_on_the_cpu_does(
    tmp_path, unit, device
) -> None:
    from parley.server.jobs.job_file import load_job
    from parley.simulations.engine.fast_engine import simulate

    base = ["algorithm.kind=fedavg", "model.kind=mlp", "model.hidden=[8]", "algorithm.rounds=2"]
    base += ["parties.count=3", "dp-sgd.sampling-rate=0.25", "run.seed=1", f"privacy.unit={unit}"]
    runs = [
        simulate(load_job(overrides=[*base, f"run.device={where}"]), out=tmp_path / f"{number}")
        for number, where in enumerate(("cpu", device))
    ]
    assert runs[0].summary.primary.epsilon == runs[1].summary.primary.epsilon
    assert np.allclose(runs[0].theta, runs[1].theta, atol=1e-6)
