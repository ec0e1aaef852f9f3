"""The norm that clips bounds the gradient that is added, at any θ: also at those sought for it.

A server chooses θ, an adversary the records. Random ones say little: what fails fails where terms
cancel, or where squares leave the range of their precision. So θ is driven there.
"""

from collections.abc import Iterator
from functools import cache

import pytest
import torch
from torch import nn

from parley.client.dp_sgd.clipping import WAYS, clip_slack, losses, trainable
from parley.client.dp_sgd.clipping_many import parties_ghost
from parley.client.models.networks import Network

pytestmark = pytest.mark.filterwarnings("ignore")

CLIP, RECORDS, CLASSES = 1.0, 4, 4
PRECISIONS = [torch.float32, torch.float64]


def own_norm(
    module: nn.Module, x: torch.Tensor, y: torch.Tensor, way: str, clip: float = CLIP
) -> list[float]:
    """Of what each record adds to a sum when it is alone in a batch."""
    return [
        float(WAYS[way](module, x[[row]], y[[row]], clip)[0].double().norm())
        for row in range(len(x))
    ]


def moved_by(module: nn.Module, x: torch.Tensor, y: torch.Tensor, way: str) -> float:
    """How far the sum of a batch moves when its first record is taken away."""
    whole, rest = WAYS[way](module, x, y, CLIP)[0], WAYS[way](module, x[1:], y[1:], CLIP)[0]
    return float((whole.double() - rest.double()).norm())


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
        each = losses(module(x), y)
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
@pytest.mark.parametrize("way", ["ghost", "vmap"])
def test_no_record_adds_more_than_the_clip_norm_where_its_terms_cancel(way, dtype) -> None:
    for module, x, y in hostile(dtype):
        for norm in own_norm(module, x, y, way):
            assert norm <= CLIP  # NaN is not
        if dtype == torch.float64:  # in float32 only batches of one shape keep it: below
            assert moved_by(module, x, y, way) <= CLIP


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("way", ["ghost", "vmap", "loop"])
def test_no_record_moves_the_others_where_batches_are_padded_to_one_shape(way, dtype) -> None:
    # Of two shapes a product may be rounded in two ways: what cancels is then another vector.
    for module, x, y in hostile(dtype):
        places, there = torch.tensor([1, 2, 3, 0]), torch.tensor([1, 1, 1, 0], dtype=dtype)
        whole = WAYS[way](module, x, y, CLIP, torch.ones_like(there))[0]
        rest = WAYS[way](module, x[places], y[places], CLIP, there)[0]
        assert float((whole.double() - rest.double()).norm()) <= CLIP


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_no_record_adds_more_where_parties_are_together(dtype) -> None:
    for module, x, y in hostile(dtype):
        theta = nn.utils.parameters_to_vector(trainable(module).values()).detach().repeat(4, 1)
        way = parties_ghost(module, x[0])
        mask = torch.ones(4, 1, dtype=dtype)
        sums, _ = way.sums(theta, way.prepare(x)[:, None], y[:, None], mask, CLIP)
        for norm in sums.double().norm(dim=1):
            assert float(norm) <= CLIP


def scaled(way: str, dtype: torch.dtype, *, tiny: int, huge: int, clip: float) -> Iterator[float]:
    """What a record adds where inputs of a layer are 2^−tiny and its outputs' gradients 2^huge."""
    torch.manual_seed(0)
    for bias in (True, False):
        network = nn.Sequential(
            nn.Linear(6, 8, bias=bias), nn.Tanh(), nn.Linear(8, 4, bias=bias)
        ).to(dtype)
        with torch.no_grad():
            network[2].weight.mul_(2.0**huge)
        x = torch.randn(3, 6, dtype=dtype) * 2.0**-tiny
        y = torch.randint(0, 4, (3,))
        if way != "together":
            yield from own_norm(network, x, y, way, clip)
            continue
        theta = nn.utils.parameters_to_vector(network.parameters()).detach().repeat(3, 1)
        closed = parties_ghost(network, x[0])
        mask = torch.ones(3, 1, dtype=dtype)
        sums, _ = closed.sums(theta, x[:, None], y[:, None], mask, clip)
        yield from (float(norm) for norm in sums.double().norm(dim=1))


@pytest.mark.parametrize("way", ["ghost", "together", "vmap"])
@pytest.mark.parametrize(
    ("dtype", "tiny", "huge", "clip"),
    [
        (torch.float32, 76, 58, 2.0**-36),  # the product, 2⁻¹⁸, of a square that is 0
        (torch.float32, 84, 84, 1.0),  # 0·∞
        (torch.float64, 540, 505, 2.0**-40),
        (torch.float64, 560, 560, 1.0),
    ],
)
def test_squares_that_underflow_beside_ones_that_are_huge_do_not_hide_a_gradient(
    way, dtype, tiny, huge, clip
) -> None:
    assert all(norm <= clip for norm in scaled(way, dtype, tiny=tiny, huge=huge, clip=clip))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_norms_of_random_networks_of_any_scale_are_no_shorter_than_the_gradients(
    seed, dtype
) -> None:
    torch.manual_seed(seed)
    network = Network.build("cnn", features=256, classes=CLASSES, precision="float64").module
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(10 ** float(torch.empty(()).uniform_(-4, 6)))
    network = network.to(dtype)
    x, y = torch.randn(RECORDS, 256, dtype=dtype), torch.randint(0, CLASSES, (RECORDS,))
    for way in ("ghost", "vmap", "loop"):
        assert all(norm <= CLIP for norm in own_norm(network, x, y, way))


def test_layers_too_wide_for_the_margin_make_norms_longer() -> None:
    narrow = nn.Linear(4000, 10)
    assert clip_slack(narrow) == clip_slack(nn.Linear(10**6, 10).double()) == 1
    # A million squares of float32 may lose a 2²⁰·2⁻²⁴ part of their sum: a sixteenth.
    assert 1 + 2.0**-5 < clip_slack(nn.Linear(2**20, 10)) < 1 + 2.0**-3
