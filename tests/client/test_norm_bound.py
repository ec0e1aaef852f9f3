"""The norm that clips bounds the gradient that is added, at any θ: also at those sought for it.

A server chooses θ, an adversary the records. Random ones say little: what fails fails where terms
cancel, or where squares leave the range of their precision. So θ is driven there.
"""

from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np
import pytest
import small_networks
import torch
from torch import nn

from parley.client.algorithms.pca_projection import project_rows
from parley.client.dp_sgd import local_training
from parley.client.dp_sgd.batch_sums import compute_party_sum, compute_union_sums
from parley.client.dp_sgd.local_training import train_parties
from parley.client.dp_sgd.torch_clipping import compute_clipped_sum, get_trainable
from parley.client.dp_sgd.training_data import PartyData, TrainingParties
from parley.client.dp_sgd.training_settings import LocalTraining
from parley.client.models.networks import Network
from parley.client.models.record_losses import cross_entropy
from parley.privacy.sampling.random_stream import NoiseStream

pytestmark = pytest.mark.filterwarnings("ignore")

CLIP, RECORDS, CLASSES = 1.0, 4, 4
PRECISIONS = [torch.float32, torch.float64]


def own_norm(
    module: nn.Module, x: torch.Tensor, y: torch.Tensor, clip: float = CLIP
) -> list[float]:
    """Of what each record adds to a sum when it is alone in a batch."""
    return [
        float(np.linalg.norm(compute_clipped_sum(module, x[[row]], y[[row]], clip)[0]))
        for row in range(len(x))
    ]


def config(way: str = "vmap") -> LocalTraining:
    whole = {"steps": 1, "sampling_rate": 1.0, "clip_norm": CLIP, "noise_multiplier": 0.0}
    return small_networks.training(
        **whole, learning_rate=1.0, per_example_method=way, micro_batch=2048
    )


def as_network(module: nn.Module, x: torch.Tensor, classes: int = CLASSES) -> Network:
    """The module at its own θ, as parties train it."""
    theta = nn.utils.parameters_to_vector(get_trainable(module).values()).detach().double().numpy()
    return Network(
        kind="own", features=x.shape[1], classes=classes, module=module, device=x.device,
        initial=theta,
    )  # fmt: skip


def moved_by(network: Network, x: torch.Tensor, y: torch.Tensor, way: str = "vmap") -> float:
    """How far the sum of a batch moves when its first record is taken away."""
    rows, labels, theta = x.numpy(), y.numpy(), network.start()
    whole, rest = (
        compute_party_sum(
            network, theta, rows, labels, np.arange(first, len(x)), config(way),
            public=len(x), pad=False,
        )
        for first in (0, 1)
    )  # fmt: skip
    return float(np.linalg.norm(whole - rest))


def start(features: int = 400) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """The built-in cnn where its second convolution sees the same patch at every place."""
    torch.manual_seed(0)
    network = Network.build("cnn", features=features, classes=CLASSES, precision="float64")
    first, second = (m for m in network.module if isinstance(m, nn.Conv2d))
    with torch.no_grad():
        first.bias.fill_(40)  # tanh is 1, wherever it looks
        second.weight.zero_()
        second.bias.zero_()
    x = torch.rand(RECORDS, features, dtype=torch.float64) / 20
    return network.module, x, torch.randint(0, CLASSES, (RECORDS,))


@cache
def ascent() -> list[tuple[float, dict[str, torch.Tensor]]]:
    """θ along a gradient ascent on log ‖A‖²‖B‖²/‖BAᵀ‖²: what cancels over what is left."""
    module, x, y = start()
    second = next(m for m in module if isinstance(m, nn.Conv2d) and m.in_channels > 1)
    climbed = next(m for m in module if isinstance(m, nn.Linear)).weight
    optimiser = torch.optim.Adam([climbed], lr=0.02)
    slower = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.95)
    kept = []
    for step in range(480):
        seen: dict[str, torch.Tensor] = {}

        def keep(_: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
            seen.update(inputs=inputs[0], output=output)  # noqa: B023 - called in this step

        hook = second.register_forward_hook(keep)
        each = cross_entropy(module(x), y)
        hook.remove()
        backward = torch.autograd.grad(each.sum(), seen["output"], create_graph=True)[0].flatten(2)
        patches = nn.functional.unfold(seen["inputs"], second.kernel_size, stride=second.stride)
        left = (backward @ patches.mT).square().sum((1, 2)).clamp_min(1e-300)
        cancels = patches.square().sum((1, 2)) * backward.square().sum((1, 2)) / left
        optimiser.zero_grad()
        (-cancels.log().mean()).backward()
        optimiser.step()
        slower.step()
        if step % 40 == 39:
            state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
            kept.append((float(cancels.log().max()), state))
    return kept


def hostile(dtype: torch.dtype) -> Iterator[tuple[nn.Module, torch.Tensor, torch.Tensor]]:
    """Networks from every place of the ascent, small and at sizes that push clipping to work."""
    module, x, y = start()
    for _, state in ascent():
        for scale in (1.0, 1e4, 1e8, 1e12):
            module.double().load_state_dict(state)
            with torch.no_grad():
                next(m for m in module if isinstance(m, nn.Linear)).weight.mul_(scale)
            yield module.to(dtype), x.to(dtype), y


def test_the_ascent_comes_to_where_terms_cancel_to_the_last_bit() -> None:
    # ⟨BᵀB, AᵀA⟩ loses its value from 1/u on: e¹⁷ in float32, e³⁷ in float64.
    reached = [height for height, _ in ascent()]
    assert reached[0] < 16 < 38 < max(reached)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_no_record_adds_or_moves_more_than_the_clip_norm_where_its_terms_cancel(dtype) -> None:
    for module, x, y in hostile(dtype):
        for norm in own_norm(module, x, y):
            assert norm <= CLIP  # NaN is not
        for way in ("vmap", "exact"):
            assert moved_by(as_network(module, x), x, y, way) <= CLIP


def kinked(
    dtype: torch.dtype, features: int, units: int, classes: int, records: int
) -> tuple[Network, torch.Tensor, torch.Tensor]:
    """Equal records whose hidden units are 0 but for rounding: some batches switch some on.

    The bias of every unit is minus the least of what batches of 1 to all of them give it.
    """
    network = Network.build(
        "mlp", features=features, classes=classes, hidden=(units,),
        precision="float64" if dtype == torch.float64 else "float32",
    )  # fmt: skip
    _, first, _, last = network.module
    torch.manual_seed(0)
    x = torch.rand(1, features, dtype=dtype).repeat(records, 1)
    with torch.no_grad():
        first.weight.normal_().mul_(1e6)
        first.bias.zero_()
        found = [first(network.module[0](x[:size]))[0] for size in range(1, records + 1)]
        first.bias.copy_(-torch.stack(found).min(0).values)
        last.weight.mul_(1e9)  # what gets through is clipped
    return (
        as_network(network.module, x, classes),
        x,
        torch.zeros(records, dtype=torch.long),
    )


KINKS = [(60, 64, 3), (31, 33, 2), (7, 5, 3), (400, 10, 2)]
"""Widths whose rows are aligned and ones whose are not."""

AT_ONCE = (3, 4, 8)
"""Records of a batch, of which one less takes another kernel."""


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("shape", KINKS)
def test_no_record_switches_others_on_or_off_at_the_kink_of_a_relu(dtype, shape) -> None:
    # In batches of another size for every sum, removing one record moved it by up to 5 C.
    for records in AT_ONCE:
        network, x, y = kinked(dtype, *shape, records)
        assert moved_by(network, x, y) <= CLIP


def test_no_record_switches_others_by_what_the_server_projects_them_on() -> None:
    """Components at which every record cancels, and units that look at the digits that are left."""
    for (features, units, classes), records in product(KINKS, AT_ONCE):
        torch.manual_seed(1)
        rows = torch.rand(1, features, dtype=torch.float64).repeat(records, 1).numpy()
        components = torch.randn(features, units, dtype=torch.float64).numpy()
        components[-1] -= rows[0] @ components / rows[0, -1]
        network = Network.build(
            "mlp", features=units, classes=classes, hidden=(units,), precision="float64"
        )
        scale, first, _, last = network.module
        with torch.no_grad():
            seen = scale(torch.from_numpy(project_rows(rows, components)))
            first.weight.copy_(torch.eye(units) * 1e30)
            first.bias.copy_(-(seen[0] * 1e30))
            last.weight.mul_(1e9)
        theta = as_network(network.module, torch.zeros(1, units), classes).start()
        for label in range(classes):
            whole, rest = (
                compute_party_sum(
                    network, theta, x, np.full(len(x), label), np.arange(len(x)),
                    config(), public=records, pad=False,
                )
                for x in (project_rows(rows, components), project_rows(rows[1:], components))
            )  # fmt: skip
            assert np.linalg.norm(whole - rest) <= CLIP


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_no_record_switches_others_where_parties_are_in_one_pass(dtype) -> None:
    for records in AT_ONCE:
        network, x, y = kinked(dtype, *KINKS[0], records)
        places = np.arange(records)
        whole, rest = (
            compute_union_sums(
                network, network.start(), x.numpy(), y.numpy(), [places[first:2], places[2:]],
                config(), public=records,
            )
            for first in (0, 1)
        )  # fmt: skip
        moved = np.linalg.norm(whole - rest, axis=1)
        assert moved[0] <= CLIP
        # Another party's sum is added in another order: rounded otherwise, of the same terms.
        assert moved[1] <= 1e-9


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("parties", [1, 3])
def test_no_record_moves_the_sum_of_a_party_that_trains_alone_or_beside_others(
    dtype, parties, monkeypatch
) -> None:
    sums: list[torch.Tensor] = []
    monkeypatch.setattr(
        local_training, "_add_grid_noise", lambda total, *_: sums.append(total.clone()) or total
    )
    for records in AT_ONCE:
        network, x, y = kinked(dtype, *KINKS[0], records)
        for first in (0, 1):
            own = [
                PartyData(
                    features=x[first:],
                    labels=y[first:],
                    divisor=records,
                    batches=NoiseStream.from_seed(1),
                    noise=NoiseStream.from_seed(2),
                )
                for _ in range(parties)
            ]
            train_parties(network, network.start(), TrainingParties.from_parties(own), config())
        with_it, without = sums[-2:]
        assert float((with_it - without).norm(dim=1).max()) <= CLIP
