"""Clipped sums of written gradients: those of a plain loop over records, in whole numbers."""

import math

import numpy as np
import pytest
import torch
from record_loop import loop_sums
from torch import nn

from parley.client.dp_sgd.torch_clipping import compute_clipped_sum
from parley.client.models.contribution_clipping import build_ball
from parley.client.models.layer_checks import NetworkError, check_layers
from parley.client.models.networks import Network

CLIP = 0.3


class Branches(nn.Module):
    """Linear layers that are not a chain."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.last = nn.Linear(5, 3), nn.Linear(5, 3), nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(torch.tanh(self.left(x)) * self.right(x).sigmoid())
        return scores


def networks() -> dict[str, tuple[nn.Module, int]]:
    torch.manual_seed(1)
    return {
        "built-in": (Network.build("mlp", features=5, classes=4, hidden=(6, 3)).module, 5),
        "branches": (Branches(), 5),
        "cnn": (Network.build("cnn", features=256, classes=4).module, 256),
        "norm": (
            nn.Sequential(nn.Linear(7, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 4)),
            7,
        ),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", networks())
def test_clipped_sums_are_those_of_a_plain_loop_but_for_what_whole_numbers_cut_off(name) -> None:
    network, features = networks()[name]
    network = network.double()
    x = torch.randn(9, features, dtype=torch.float64)
    y = torch.randint(0, 4, (9,))
    total, norms = compute_clipped_sum(network, x, y, CLIP)
    loop, expected = loop_sums(network, x, y, CLIP)
    ball, bits = build_ball(len(total), CLIP)
    np.testing.assert_allclose(total, loop, rtol=0, atol=9 * 2.0**-bits)
    np.testing.assert_allclose(norms, expected, rtol=1e-9)
    assert norms.max() > CLIP
    alone = np.array(
        [compute_clipped_sum(network, x[[row]], y[[row]], CLIP)[0] for row in range(9)]
    )
    whole = np.ldexp(alone, bits)
    assert (whole == np.rint(whole)).all()
    assert max(sum(int(v) ** 2 for v in row) for row in whole) <= ball.radius.l2_squared


BROKEN = [math.nan, math.inf, -math.inf]
"""Entries of rows whose gradients are not finite; a row of the largest float may be one, too."""


def with_broken_rows(x: torch.Tensor) -> torch.Tensor:
    """Row i of `[…, b, p]` holds `BROKEN[i]` somewhere; the rest are as they were."""
    x = x.clone()
    for row, entry in enumerate([*BROKEN, torch.finfo(x.dtype).max]):
        x[..., row, row % x.shape[-1]] = entry
        x[..., row, (row + 1) % x.shape[-1]] = entry
    return x


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", networks())
def test_a_record_whose_gradient_is_not_finite_adds_zero(name: str, dtype: torch.dtype) -> None:
    network, features = networks()[name]
    network = network.to(dtype)
    x, y = torch.randn(9, features, dtype=dtype), torch.randint(0, 4, (9,))
    x = with_broken_rows(x)
    total, norms = compute_clipped_sum(network, x, y, CLIP)
    finite = np.isfinite(norms)
    assert not finite[:3].any()
    assert finite[4:].all()
    without, _ = compute_clipped_sum(network, x[finite], y[finite], CLIP)
    np.testing.assert_allclose(total, without, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "instead"),
    [
        (nn.BatchNorm1d(4), "GroupNorm"),
        (nn.SyncBatchNorm(4), "GroupNorm"),
        (nn.InstanceNorm1d(4, track_running_stats=True), "GroupNorm"),
    ],
)
def test_layers_that_mix_records_are_refused_by_name(layer: nn.Module, instead: str) -> None:
    with pytest.raises(NetworkError, match=f"{type(layer).__name__}.*{instead}"):
        check_layers(nn.Sequential(nn.Linear(4, 4), layer))


def test_models_that_cannot_be_loaded_say_why(tmp_path) -> None:
    def build(kind: str) -> Network:
        return Network.build(kind, features=4, classes=2)

    with pytest.raises(NetworkError, match="model file at"):
        build("nowhere.py:net")
    with pytest.raises(NetworkError, match="Cannot import"):
        build("no_such_module_here:net")
    with pytest.raises(NetworkError, match="class or function 'net'"):
        build("math:net")
    with pytest.raises(NetworkError, match="16 × 16"):
        build("cnn")
    mine = tmp_path / "mine.py"
    mine.write_text(
        "import torch\ndef net(features, classes):\n"
        "    return torch.nn.Linear(features, classes)\n"
        "def wrong(features, classes):\n    return torch.nn.Linear(features, classes + 1)\n"
    )
    assert build(f"{mine}:net").dimension == 10
    with pytest.raises(NetworkError, match=r"shape \[2, 2\]"):
        build(f"{mine}:wrong")


def test_layers_in_eval_mode_keep_records_apart() -> None:
    check_layers(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).eval())
    with pytest.raises(NetworkError, match="GroupNorm"):  # no statistics of its own
        check_layers(nn.BatchNorm1d(4, track_running_stats=False).eval())
