"""Losses that draw: K noisy versions of a record, one gradient, clipped as a loop clips it."""

import numpy as np
import pytest
import torch
from record_loop import loop_sums
from small_networks import training
from torch import nn

from parley.client.dp_sgd.batch_sums import compute_party_sum, draw_normals
from parley.client.dp_sgd.torch_clipping import choose_way, compute_clipped_sum
from parley.client.models.layer_checks import NetworkError
from parley.client.models.networks import Network
from parley.privacy.sampling.random_stream import NoiseStream, Randomness

K = 3


class Linear(nn.Module):
    """Denoises K noisy versions of a row of nine numbers."""

    draws = K * 9

    def __init__(self, *_):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(9, 6), nn.Tanh(), nn.Linear(6, 9))

    def given(self, noisy):
        return self.layers(noisy)

    def record_losses(self, x, y, draws):
        noisy = x[:, None] + draws.view(-1, K, 9)
        return (self.given(noisy) - x[:, None]).square().mean(dim=(1, 2)) * (1 + y)


class Conv(Linear):
    def __init__(self, *_):
        super().__init__()
        self.layers = nn.Conv2d(1, 1, 3, padding=1)

    def given(self, noisy):
        found = self.layers(noisy.reshape(-1, 1, 3, 3))  # K folded into the batch
        return found.reshape(noisy.shape)


class VersionsFirst(Conv):
    """Folds K too, but a version's records stand together: rows of one record are apart."""

    def given(self, noisy):
        found = self.layers(noisy.transpose(0, 1).reshape(-1, 1, 3, 3))
        return found.reshape(K, -1, 9).transpose(0, 1)


class Mixing(Linear):
    def given(self, noisy):
        return self.layers(noisy - noisy.mean(dim=0))


class Many(Linear):
    draws = -1


class Broken(Linear):
    def record_losses(self, x, y, draws):
        return super().record_losses(x, y, draws) / x[:, 0].sub(x[:, 0])


class Undrawn(Broken):
    """Takes no draws, and has scores."""

    draws = 0

    def __init__(self, *_):
        super().__init__()
        self.layers = nn.Linear(9, 2)

    def forward(self, x):
        return self.layers(x)

    def record_losses(self, x, y, draws):
        return (self.layers(x).sum(dim=1) - 1e9).exp().log()


def network(name):
    return Network.build(f"{__name__}:{name}", features=9, classes=2)


@pytest.mark.parametrize("name", ["Linear", "Conv", "VersionsFirst", "Mixing"])
def test_every_record_is_clipped_as_if_it_were_alone_with_its_draws(name):
    """Also where versions stand before their records, or a loss looks at other records."""
    own = network(name)
    assert choose_way(own) == "vmap"
    rows, drawn = torch.randn(7, 9).double().numpy(), torch.randn(7, 9 * K).double().numpy()
    batch = own.with_draws(rows, drawn), torch.tensor([0, 1, 1, 0, 1, 0, 0]), 0.02
    found, norms = compute_clipped_sum(own.module, *batch, losses=own.losses)
    loop, expected = loop_sums(own.module, *batch, losses=own.losses)
    np.testing.assert_allclose(norms, expected, rtol=1e-5)
    np.testing.assert_allclose(found, loop, rtol=1e-4, atol=1e-7)


def test_a_number_of_draws_that_is_none_is_refused():
    with pytest.raises((NetworkError, ValueError), match="Expected draws"):
        network("Many")


@pytest.mark.parametrize("name", ["Broken", "Undrawn"])
def test_a_loss_that_is_not_finite_is_refused_with_what_it_gave(name):
    with pytest.raises(NetworkError, match=r"finite at the start, got \[-?inf, -?inf\]"):
        network(name)


def test_a_step_is_the_clipped_sum_of_the_records_with_their_own_draws():
    own = network("Linear")
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((12, 9)), rng.integers(0, 2, 12)
    batch = np.array([1, 4, 5, 11])
    how = training(steps=1, sampling_rate=0.5, clip_norm=0.05, per_example_method="vmap")
    theta = own.start()
    found = compute_party_sum(
        own, theta, rows, labels, batch, how, public=12, pad=True,
        draws=NoiseStream.from_seed(3, "draws"),
    )  # fmt: skip
    draws = draw_normals(NoiseStream.from_seed(3, "draws"), 4 * 27).reshape(4, 27)
    own.set_parameters(own.to_tensor(theta).clone())
    expected = np.zeros(own.dimension)
    for place, drawn in zip(batch, draws, strict=True):
        loss = own.losses(
            own.module,
            own.with_draws(rows[place][None], drawn[None]),
            torch.tensor([labels[place]]),
        )
        parts = torch.autograd.grad(loss.sum(), list(own.module.parameters()))
        flat = np.concatenate([part.detach().numpy().ravel() for part in parts])
        expected += flat * min(1, 0.05 / np.linalg.norm(flat))
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-6)
    with pytest.raises(ValueError, match="Expected a stream"):
        compute_party_sum(own, theta, rows, labels, batch, how, public=12, pad=True)


def test_draws_are_standard_normal_and_each_partys_and_steps_own():
    seeded = Randomness.from_seed(1)
    one = draw_normals(seeded.open_loss_draws(1, 1, 0), 40_000)
    assert abs(one.mean()) < 0.03
    assert one.std() == pytest.approx(1, abs=0.02)
    others = [
        draw_normals(seeded.open_loss_draws(*place), 5)
        for place in ((1, 1, 1), (1, 2, 0), (2, 1, 0))
    ]
    assert not any(np.array_equal(one[:5], other) for other in others)
    np.testing.assert_array_equal(one[:5], draw_normals(seeded.open_loss_draws(1, 1, 0), 5))
