"""A port that parties attend to."""

import pytest
from attending import World


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.close()
