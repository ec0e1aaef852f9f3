"""A server that cannot be reached, or is another: each cause in words of its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from attending import World

from parley.deploy import pki
from parley.deploy.party_check import check_items
from parley.deploy.pki import make_server_certificate
from parley.deploy.private_files import PkiError
from parley.deploy.processes import ProcessError
from parley.deploy.reaching import check_reachable


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.close()


def certificate(world, monkeypatch, days):
    """The server's certificate as if it were made so many days from now."""
    real = datetime.now(UTC)

    class Then(datetime):
        @classmethod
        def now(cls, tz=None):
            return real + timedelta(days=days)

    monkeypatch.setattr(pki, "datetime", Then)
    server, authority = world.root / "server", world.root / "authority"
    make_server_certificate(
        server / "server.pem",
        server / "server.key",
        authority=authority / "ca.crt",
        authority_key=authority / "ca.key",
        hosts=["127.0.0.1"],
    )
    monkeypatch.undo()


def test_a_name_that_does_not_resolve_is_said_with_the_option_for_another(world):
    with pytest.raises(ProcessError, match=r"name nowhere\.invalid does not .*--server HOST:PORT"):
        check_reachable("nowhere.invalid:9092", world.home(0) / "ca.crt")


def test_a_port_where_nobody_listens_is_said(world):
    with pytest.raises(ProcessError, match=r"Connection refused\. Is `parley server` running"):
        check_reachable(world.address, world.home(0) / "ca.crt")


def test_the_server_of_another_deployment_is_not_believed(world, tmp_path):
    world.open()
    other = World(tmp_path / "other")
    check_reachable(world.address, world.home(0) / "ca.crt")
    with pytest.raises(PkiError, match="Either it is another deployment's"):
        check_reachable(world.address, other.home(0) / "ca.crt")


@pytest.mark.parametrize(
    ("days", "said"), [(30, "begins later than this machine's clock"), (-500, "has expired by")]
)
def test_a_clock_beyond_the_certificates_slack_is_named(world, monkeypatch, days, said):
    certificate(world, monkeypatch, days)
    world.open()
    with pytest.raises(PkiError, match=said):
        check_reachable(world.address, world.home(0) / "ca.crt")


def test_a_partys_check_is_right_with_its_server_and_names_what_is_wrong(world):
    world.open()
    folder = world.home("north")

    def wrong():
        items = list(check_items(folder))
        assert items[-1].what in {"this party at the server", "server"}
        return {item.what: item.said for item in items if item.status}

    assert set(wrong()) == {"data"}  # a new party.toml serves none
    key = folder / "party.key"
    key.chmod(0o640)
    assert "chmod 600" in wrong()["keys"]
    key.chmod(0o600)
    key.write_text("no key")
    assert "Expected a private key" in wrong()["certificate and clock"]
