"""Dropout is switched off with a warning, wherever torch keeps its rate."""

import warnings

import numpy as np
import pytest
from torch import nn

from parley.client.models.layer_checks import turn_off_dropout
from parley.client.models.networks import Network

TRANSFORMER = """
from torch import nn


class Net(nn.Module):
    rate = 0.1

    def __init__(self, features, classes):
        super().__init__()
        self.embed = nn.Linear(1, 8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, self.rate, batch_first=True)
        self.last = nn.Linear(8, classes)

    def forward(self, x):
        return self.last(self.encoder(self.embed(x.unsqueeze(-1))).mean(1))


class Plain(Net):
    rate = 0.0
"""


def test_a_stock_transformer_trains_as_if_it_had_no_dropout(tmp_path) -> None:
    (tmp_path / "net.py").write_text(TRANSFORMER)
    with pytest.warns(UserWarning, match=r"switched off in .*encoder\.dropout1"):
        network = Network.build(f"{tmp_path / 'net.py'}:Net", features=5, classes=3, seed=1)
    with warnings.catch_warnings(action="error"):
        plain = Network.build(f"{tmp_path / 'net.py'}:Plain", features=5, classes=3, seed=1)
    rows = network.to_tensor(np.random.default_rng(0).random((4, 5)))
    np.testing.assert_array_equal(network.initial, plain.initial)
    assert network.module.training
    assert bool((network.module(rows) == plain.module(rows)).all())


def test_rates_of_modules_and_attributes_become_0_and_frozen_layers_stay() -> None:
    frozen = nn.Sequential(nn.Dropout(0.5)).eval()
    module = nn.ModuleList(
        [nn.Dropout2d(0.2), nn.Dropout(0.0), nn.MultiheadAttention(4, 2, dropout=0.1), frozen]
    )
    assert turn_off_dropout(module) == ["0", "2"]
    assert (module[0].p, module[2].dropout, frozen[0].p) == (0.0, 0.0, 0.5)
