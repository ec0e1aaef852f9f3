"""Recurrent layers in plain operations compute what torch's own kernels compute."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from parley.client.dp_sgd.torch_clipping import choose_way, compute_record_gradients
from parley.client.dp_sgd.training_settings import VMAP
from parley.client.models.networks import Network
from parley.client.models.recurrent_layers import unroll_recurrent_layers

OPTIONS = list(itertools.product((1, 2), *[(False, True)] * 3))


def unrolled(layer: nn.Module) -> nn.Module:
    other = copy.deepcopy(layer)
    unroll_recurrent_layers(other)
    assert type(other) is not type(layer)
    return other


def tensors(found) -> list[Tensor]:
    if isinstance(found, Tensor):
        return [found]
    return [tensor for part in found for tensor in tensors(part)]


def check_equal(found, expected) -> None:
    for one, other in zip(tensors(found), tensors(expected), strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (nn.LSTM, {}),
        (nn.LSTM, {"proj_size": 3}),
        (nn.GRU, {}),
        (nn.RNN, {}),
        (nn.RNN, {"nonlinearity": "relu"}),
    ],
)
def test_a_layer_returns_what_torch_returns(kind, more) -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 7, 4, dtype=torch.float64)
    for layers, both_ways, rows_first, bias in OPTIONS:
        layer = kind(
            4, 5, num_layers=layers, bidirectional=both_ways, batch_first=rows_first, bias=bias,
            dtype=torch.float64, **more,
        )  # fmt: skip
        own = unrolled(layer)
        check_equal(own(x), layer(x))
        check_equal(own(x[0]), layer(x[0]))
        state = layer(x)[1]
        check_equal(own(x, state), layer(x, state))


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_a_cell_returns_what_torch_returns(kind) -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 4, dtype=torch.float64)
    for bias in (False, True):
        cell = kind(4, 5, bias=bias, dtype=torch.float64)
        own = unrolled(cell)
        check_equal(own(x), cell(x))
        check_equal(own(x[0]), cell(x[0]))
        check_equal(own(x, cell(x)), cell(x, cell(x)))


class Sequences(nn.Module):
    """A recurrent layer of 2 steps of 3 values, then a cell."""

    def __init__(self, layer: nn.Module, cell: nn.Module, classes: int) -> None:
        super().__init__()
        self.layer, self.cell, self.last = layer, cell, nn.Linear(5, classes)

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.layer(x.view(len(x), 2, 3))[0]
        state = self.cell(outputs[:, -1])
        scores: Tensor = self.last(state[0] if isinstance(state, tuple) else state)
        return scores


def lstm(features: int, classes: int) -> nn.Module:
    layer = nn.LSTM(3, 5, num_layers=2, batch_first=True, dropout=0.3)
    return Sequences(layer, nn.LSTMCell(5, 5), classes)


def gru(features: int, classes: int) -> nn.Module:
    return Sequences(nn.GRU(3, 5, batch_first=True), nn.GRUCell(5, 5), classes)


def rnn(features: int, classes: int) -> nn.Module:
    return Sequences(nn.RNN(3, 5, batch_first=True), nn.RNNCell(5, 5), classes)


@pytest.mark.filterwarnings("ignore:Dropout")
@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_gradients_of_each_record_are_those_of_torchs_own_kernels(name: str) -> None:
    network = Network.build(f"{__name__}:{name}", features=6, classes=3, precision="float64")
    assert choose_way(network) == VMAP
    torch.manual_seed(1)
    x, y = torch.randn(5, 6, dtype=torch.float64), torch.arange(5) % 3
    found = compute_record_gradients(network.module, x, y)
    own = globals()[name](6, 3).double().eval()  # torch's kernels, without dropout
    own.load_state_dict(network.module.state_dict())
    for row in range(5):
        loss = nn.functional.cross_entropy(own(x[[row]]), y[[row]])
        expected = torch.autograd.grad(loss, list(own.parameters()))
        flat = torch.cat([gradient.reshape(-1) for gradient in expected]).numpy()
        np.testing.assert_allclose(found[row], flat, rtol=1e-8, atol=1e-11)


def test_packed_sequences_are_refused_with_what_to_do() -> None:
    layer = unrolled(nn.GRU(3, 4, batch_first=True))
    packed = nn.utils.rnn.pack_sequence([torch.zeros(2, 3)])
    with pytest.raises(TypeError, match="PackedSequence: pad sequences"):
        layer(packed)
