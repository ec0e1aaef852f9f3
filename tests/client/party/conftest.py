"""Parties that proposals are made to."""

import pytest
from agreements import NETWORK


@pytest.fixture(scope="module")
def world(tmp_path_factory, wired):
    return wired.World(tmp_path_factory.mktemp("parties"), reopen=False)


@pytest.fixture(scope="module")
def network_world(tmp_path_factory, wired):
    overrides = (*NETWORK, "dp-sgd.sampling-rate=0.01")
    return wired.World(tmp_path_factory.mktemp("parties"), overrides=overrides, reopen=False)
