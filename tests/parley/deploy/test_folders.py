from __future__ import annotations

import shutil
import socket
import ssl
import threading

import pytest

from client.consent import ConsentError
from client.roster import RosterError, load_deployment, render_deployment
from parley.deploy.folders import (
    DeployError,
    accept_keys,
    check_party,
    check_reachable,
    check_server,
    make_deployment,
    make_own_keys,
    renew_certificate,
    rotate_party,
)
from parley.deploy.pki import PkiError
from parley.deploy.processes import ProcessError, free_ports


@pytest.fixture
def folder(tmp_path):
    home = tmp_path / "consortium"
    make_deployment(home, hosts=["fl.example.org"], parties=["north", "south", "east"], port=9192)
    return home


def test_a_new_deployment_passes_its_own_checks(folder):
    home = check_server(folder)
    assert (home.listen, home.port) == ("0.0.0.0", 9192)
    assert home.deployment.server_address == "fl.example.org:9192"
    for name in ("north", "south", "east"):
        party = check_party(folder / "parties" / name)
        assert party.name == name
        assert party.deployment == home.deployment


def test_nobody_gets_anothers_secret(folder):
    server = {path.name for path in (folder / "server").iterdir()}
    assert server == {
        "ca.crt", "server.pem", "server.key", "server.toml", "deployment.toml", "runs",
    }  # fmt: skip
    party = {path.name for path in (folder / "parties" / "north").iterdir()}
    assert party == {
        "ca.crt", "deployment.toml", "identity.key", "supernode.key", "supernode.pub", "party.toml",
    }  # fmt: skip


def test_a_deployment_is_never_made_over_another(folder):
    with pytest.raises(DeployError, match="is not empty"):
        make_deployment(folder, hosts=["a"], parties=["x", "y"])


def test_a_party_folder_of_another_deployment_is_refused(folder, tmp_path):
    other = tmp_path / "other"
    make_deployment(other, hosts=["a"], parties=["north", "south"])
    shutil.copy(other / "server" / "deployment.toml", folder / "parties" / "north")
    with pytest.raises(DeployError, match="belongs to another deployment"):
        check_party(folder / "parties" / "north")


def test_a_party_with_anothers_key_is_refused(folder):
    shutil.copy(folder / "parties" / "south" / "supernode.key", folder / "parties" / "north")
    with pytest.raises(DeployError, match="one of another party"):
        check_party(folder / "parties" / "north")


def test_two_parties_with_one_key_are_refused(folder):
    path = folder / "server" / "deployment.toml"
    text = path.read_text()
    deployment = load_deployment(path)
    north, south = deployment.parties[:2]
    path.write_text(text.replace(south.identity.hex(), north.identity.hex()))
    with pytest.raises(RosterError, match="north and south"):
        check_server(folder)


def test_a_data_path_that_is_not_there_is_named_on_its_own_machine(folder):
    home = folder / "parties" / "north"
    text = (home / "party.toml").read_text()
    (home / "party.toml").write_text(
        text
        + '\n[data.records]\npath = "no.csv"\nschema = "no.toml"\nepsilon = 1.0\ndelta = 1e-5\n'
    )
    with pytest.raises(DeployError, match=r"data set records of .*party\.toml at .*no\.csv"):
        check_party(home)


def test_a_policy_that_cannot_be_read_is_named(folder):
    home = folder / "parties" / "north"
    (home / "party.toml").write_text("min-survivor = 2\n")
    with pytest.raises(ConsentError, match="Did you mean min-survivors"):
        check_party(home)


def test_a_loose_key_is_refused(folder):
    (folder / "parties" / "north" / "supernode.key").chmod(0o644)
    with pytest.raises(PkiError, match="chmod 600"):
        check_party(folder / "parties" / "north")


def test_a_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(DeployError, match="not a party's folder"):
        check_party(tmp_path)
    with pytest.raises(DeployError, match="not a server's folder"):
        check_server(tmp_path)


def test_an_address_that_the_certificate_lacks_is_refused_on_the_server(folder):
    from dataclasses import replace

    path = folder / "server" / "deployment.toml"
    moved = replace(load_deployment(path), server_address="new.example.org:9192")
    path.write_text(render_deployment(moved))
    with pytest.raises(PkiError, match=r"for new\.example\.org"):
        check_server(folder)
    renew_certificate(folder, hosts=["new.example.org"])
    check_server(folder)


def test_a_rotated_key_replaces_the_old_one_everywhere(folder, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(folder / "parties" / "north", old)
    rotate_party(folder, "north")
    assert check_party(folder / "parties" / "north").deployment == check_server(folder).deployment
    shutil.copy(folder / "server" / "deployment.toml", old)
    with pytest.raises(DeployError, match="belongs to another deployment"):
        check_party(old)
    with pytest.raises(DeployError, match="Expected one of north, south, east, got west"):
        rotate_party(folder, "west")


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


def test_a_party_makes_its_own_keys_and_the_operator_never_has_them(folder, tmp_path):
    home = tmp_path / "north's machine"
    shutil.copytree(folder / "parties" / "north", home)
    entry = make_own_keys(home)
    secret = (home / "identity.key").read_text()
    assert secret != (folder / "parties" / "north" / "identity.key").read_text()
    assert secret.strip() not in entry.read_text()
    with pytest.raises(DeployError, match="belongs to another deployment"):
        check_party(home)  # until the roster says so
    accept_keys(folder, entry)
    shutil.copy(folder / "server" / "deployment.toml", home)
    assert check_party(home).deployment == check_server(folder).deployment


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "public keys"),
        ('name = "west"\nidentity = "00"\nnode = "x"', "public keys"),
        ('name = "north"\nidentity = "zz"\nnode = "x"', "public keys"),
    ],
)
def test_what_is_no_partys_public_keys_is_not_accepted(folder, tmp_path, text, said):
    (tmp_path / "entry.toml").write_text(text)
    before = (folder / "server" / "deployment.toml").read_text()
    with pytest.raises(DeployError, match=said):
        accept_keys(folder, tmp_path / "entry.toml")
    assert (folder / "server" / "deployment.toml").read_text() == before
