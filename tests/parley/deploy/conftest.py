"""A deployment as folders, as a port that parties attend to, and as a server with its queue."""

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from attending import World

from parley.deploy import certificate_making
from parley.deploy.provisioning import make_deployment


@pytest.fixture
def folder(tmp_path):
    """The folders of a deployment of north, south and east."""
    home = tmp_path / "consortium"
    parties = ["north", "south", "east"]
    make_deployment(home, hosts=["fl.example.org"], parties=parties, port=9192)
    return home


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def in_days(monkeypatch):
    """Has certificates be made as if it were so many days from now."""
    real = datetime.now(UTC)

    @contextmanager
    def at(days):
        class Then(datetime):
            @classmethod
            def now(cls, tz=None):
                return real + timedelta(days=days)

        with monkeypatch.context() as patch:
            patch.setattr(certificate_making, "datetime", Then)
            yield

    return at
