"""Convolutions and pools of maps: torch's own, to the bit where numbers are whole."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from parley.client.dp_sgd.convolution_windows import MaxPool, MeanPool
from parley.client.dp_sgd.exact_layer_detection import find_exact_layers

AXES = (nn.Conv1d, nn.Conv2d, nn.Conv3d), (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d), (
    nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d,
)  # fmt: skip


@st.composite
def maps(draw):
    """A layer on a map `[c, s₁, …]`, its shape, and whole numbers on it, many of them equal."""
    axes, kind = draw(st.integers(1, 3)), draw(st.integers(0, 2))

    def each(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(least, most)) for _ in range(axes))

    channels, sizes, kernel, stride = draw(st.integers(1, 3)), each(2, 6), each(1, 3), each(1, 3)
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    given = {"kernel_size": kernel, "stride": stride, "padding": padding}
    if kind < 2:
        given["dilation"] = each(1, 2)
    if kind == 0:
        if draw(st.booleans()) and set(stride) == {1}:
            given["padding"] = draw(st.sampled_from(["same", "valid"]))
        given |= {"in_channels": channels, "out_channels": 2, "bias": draw(st.booleans())}
    whole = np.random.default_rng(draw(st.integers(0, 99))).integers(-2, 3, (2, channels, *sizes))
    return AXES[kind][axes - 1](**given).double(), torch.tensor(whole, dtype=torch.float64)


@settings(deadline=None, max_examples=50)
@given(given=maps())
def test_windows_give_what_torch_gives_there_and_back(given) -> None:
    layer, x = given
    x.requires_grad_()
    try:
        expected = layer(x)
    except RuntimeError:  # a window that is larger than the map
        assume(False)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randint(-3, 4, parameter.shape))
    expected = layer(x)
    slopes = torch.randint(-3, 4, expected.shape).double()
    back = torch.autograd.grad(expected, x, slopes)[0]
    found = find_exact_layers(
        nn.Sequential(nn.Unflatten(1, x.shape[1:]), layer, nn.Flatten(), nn.Linear(3, 2))
    )
    row, own = x.detach().flatten(1).numpy(), slopes.flatten(1).numpy()
    if not isinstance(layer, AXES[0]):
        if found is None:
            raise AssertionError("Expected a chain.")
        (pool,) = found[0].transforms
        assert isinstance(pool, MaxPool if isinstance(layer, AXES[1]) else MeanPool)
        value, way_back = pool(row)
        exact = np.array_equal if isinstance(pool, MaxPool) else np.allclose
        assert exact(value, expected.detach().flatten(1).numpy())
        assert exact(way_back(own), back.flatten(1).numpy())
        return
    if found is None:  # as wide on both sides of an even window
        assert layer.padding == "same"
        return
    windows = found[0].windows
    weight = layer.weight.detach().flatten(1).numpy()
    seen = windows.extract_patches(row, np.ones((2, 0)))
    value = weight @ seen + (0 if layer.bias is None else layer.bias.detach().numpy()[:, None])
    assert np.array_equal(value.reshape(expected.shape), expected.detach().numpy())
    spread = windows.spread_patches(weight.T @ own.reshape(2, 2, -1))
    assert np.array_equal(spread, back.flatten(1).numpy())
