"""What is wrong with a party's folder or its server, each item by itself."""

from __future__ import annotations

import contextlib
import shutil
import socket
import sqlite3
import ssl
import threading

import pytest
from typer.testing import CliRunner

from parley.cli import app
from parley.client.contract.protocol import Frame, encode_frame
from parley.client.contract.roster import load_deployment
from parley.deploy.folders import DeployError
from parley.deploy.making import make_deployment, rotate_party
from parley.deploy.party_check import check_items
from parley.deploy.private_files import PkiError
from parley.deploy.processes import ProcessError, free_ports
from parley.deploy.reaching import check_reachable
from parley.deploy.stream.caller import check_known
from parley.deploy.stream.port import Port
from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.ledger.ledger import Ledger
from parley.server.jobs.file import load_job
from parley.simulations.engine.local_parties import prepare_parties


@pytest.fixture
def folder(tmp_path):
    make_deployment(tmp_path / "made", hosts=["127.0.0.1"], parties=["north", "south"])
    return tmp_path / "made"


@pytest.fixture
def tls_server(tmp_path):
    """A TLS server on 127.0.0.1 with a deployment's certificate; yields (address, deployment)."""
    home = tmp_path / "tls"
    make_deployment(home, hosts=["127.0.0.1"], parties=["a", "b"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home / "server" / "server.pem", home / "server" / "server.key")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        ended = threading.Event()

        def accept():
            while not ended.is_set():
                try:
                    raw, _ = listener.accept()
                    context.wrap_socket(raw, server_side=True).close()
                except OSError:
                    continue

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", home
        ended.set()
        thread.join()


def test_the_right_server_is_reachable(tls_server):
    address, home = tls_server
    check_reachable(address, home / "server" / "ca.crt")


def test_another_deployments_server_is_recognised(tls_server, folder):
    with pytest.raises(PkiError, match="is not the one that"):
        check_reachable(tls_server[0], folder / "server" / "ca.crt")


def test_a_server_that_is_not_there_is_named(folder):
    (port,) = free_ports(1)
    with pytest.raises(ProcessError, match=f"Cannot reach the server at 127.0.0.1:{port}"):
        check_reachable(f"127.0.0.1:{port}", folder / "server" / "ca.crt")


@pytest.fixture
def door(folder):
    """The server's port of that deployment on 127.0.0.1; yields its address."""
    server = folder / "server"
    (port,) = free_ports(1)
    deployment = load_deployment(server / "deployment.toml")
    with Port(server, deployment, listen="127.0.0.1", port=port, say=lambda _: None):
        yield f"127.0.0.1:{port}"


def items(home, address):
    return {item.what: item for item in check_items(home, server=address)}


@pytest.fixture
def north(folder, tmp_path):
    """north's folder with records and a policy, all of it right."""
    home = folder / "parties" / "north"
    job = load_job(overrides=["parties.count=2"])
    prepare_parties(job, tmp_path / "prepared")
    for name in ("records.npz", "party.toml"):
        shutil.copy(tmp_path / "prepared" / "party-0" / name, home)
    return home


def test_all_is_right_where_all_is_right(north, door):
    found = items(north, door)
    assert {item.status for item in found.values()} == {0}
    assert found["this party at the server"].said == "known as north"
    assert load_deployment(north / "deployment.toml").spoken in found["roster"].said
    assert "228 records" in found["data set breast-cancer"].said


def test_a_missing_server_hides_nothing_about_the_folder(north):
    (port,) = free_ports(1)
    (north / "records.npz").unlink()
    (north / "ledger.sqlite").touch()  # it was killed before its first charge
    found = items(north, f"127.0.0.1:{port}")
    assert {what: item.status for what, item in found.items()} == {
        "keys": 0,
        "certificate and clock": 0,
        "roster": 0,
        "policy": 0,
        "data set breast-cancer": 2,
        "ledger": 0,
        "contributions": 0,
        "server": 1,
    }
    assert [what for what, item in found.items() if item.waits] == ["server"]


def spoil_key(north):
    (north / "identity.key").chmod(0o644)


def spoil_policy(north):
    (north / "party.toml").write_text("min-partys = 3\n")


def spoil_roster(north):
    path = north / "deployment.toml"
    path.write_text(path.read_text().replace('name = "south"', 'name = "sooth"'))


def spoil_data(north):
    (north / "records.npz").write_bytes(b"PK no arrays")


def spoil_ledger(north):
    path = north / "ledger.sqlite"
    with Ledger.open(path) as ledger:
        ledger.register(
            DatasetBudget(
                name="breast-cancer",
                fingerprint="sha256:0c4a",
                unit=Unit.RECORD,
                neighbouring=Neighbouring.REPLACE_ONE,
                epsilon=1.0,
                delta=1e-5,
            )
        )
    with contextlib.closing(sqlite3.connect(path)) as opened, opened:
        opened.execute("UPDATE parley_ledger_records SET body = replace(body, 'breast', 'least')")


def lose_a_contribution(north):
    (north / "state").mkdir(mode=0o700, exist_ok=True)
    kept = Frame(kind="round", head={}, blobs=(b"MemoryError at steps.py:7 ".ljust(200), b""))
    (north / "state" / "release-0a").write_bytes(encode_frame(kept))


def no_data(north):
    (north / "party.toml").write_text("")


@pytest.mark.parametrize(
    ("spoil", "wrong", "said"),
    [
        (spoil_key, {"keys"}, "chmod 600"),
        (spoil_policy, {"policy"}, "min-part"),
        (spoil_roster, {"roster", "server"}, "changed by hand"),
        (spoil_data, {"data set breast-cancer"}, "plain arrays"),
        (spoil_ledger, {"ledger"}, "was edited or damaged"),
        (lose_a_contribution, {"contributions"}, "release-0a: MemoryError at steps.py:7"),
        (no_data, {"data"}, "every job is declined"),
    ],
)
def test_each_fault_is_its_own_item(north, door, spoil, wrong, said):
    spoil(north)
    found = items(north, door)
    assert {what for what, item in found.items() if item.status} == wrong
    assert any(said in item.said for item in found.values() if item.status)


def test_a_refused_key_is_said_in_our_words_with_what_to_do(north, folder, door, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(north, old)
    rotate_party(folder, "north")  # after the server started: it has the old roster
    with pytest.raises(DeployError, match=r"refuses this caller.*another identity than the roster"):
        check_known(north, door, load_deployment(north / "deployment.toml"))
    assert check_known(old, door, load_deployment(old / "deployment.toml")) == "north"


def test_a_server_with_another_roster_is_noticed(folder, door, north):
    rotate_party(folder, "south")
    with pytest.raises(DeployError, match="ask the operator for the present"):
        check_known(north, door, load_deployment(north / "deployment.toml"))


def test_what_answers_and_is_no_server_of_ours_is_said(tls_server):
    address, home = tls_server
    north = home / "parties" / "a"
    with pytest.raises(ProcessError, match="gave this party no answer"):
        check_known(north, address, load_deployment(north / "deployment.toml"))


def test_the_command_prints_every_item_and_its_status_is_the_worst(north):
    (port,) = free_ports(1)
    done = CliRunner().invoke(
        app, ["party", str(north), "--check", "--server", f"127.0.0.1:{port}"]
    )
    assert done.exit_code == 1
    lines = done.output.splitlines()
    assert [line[:3] for line in lines if not line.startswith(" ")] == ["ok "] * 7 + ["NOT"]
    assert "Cannot reach the server" in lines[-1]
    (north / "party.toml").unlink()
    done = CliRunner().invoke(
        app, ["party", str(north), "--check", "--server", f"127.0.0.1:{port}"]
    )
    assert done.exit_code == 2
