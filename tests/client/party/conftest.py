"""Parties that proposals are made to."""

import pytest


@pytest.fixture(scope="module")
def world(tmp_path_factory, wired):
    return wired.World(tmp_path_factory.mktemp("parties"), reopen=False)


@pytest.fixture(scope="module")
def network_world(tmp_path_factory, wired):
    overrides = ("algorithm.kind=fedavg", "model.kind=mlp", "model.hidden=[3]")
    overrides += ("dp-sgd.local-steps=2", "dp-sgd.sampling-rate=0.01", "privacy.noise=gaussian")
    return wired.World(tmp_path_factory.mktemp("parties"), overrides=overrides, reopen=False)
