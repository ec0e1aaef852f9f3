from __future__ import annotations

import shutil
import tomllib

import pytest
import tomli_w
from typer.testing import CliRunner

from parley.cli import app
from parley.client.contract.roster import RosterError, load_deployment, render_deployment
from parley.client.party.consent_file import ConsentError
from parley.deploy.folders import DeployError, check_party, check_server
from parley.deploy.making import (
    accept,
    make_deployment,
    make_own_keys,
    propose_keys,
    renew_certificates,
    rotate_party,
)
from parley.deploy.private_files import PkiError


@pytest.fixture
def folder(tmp_path):
    home = tmp_path / "consortium"
    parties = ["north", "south", "east"]
    make_deployment(home, hosts=["fl.example.org"], parties=parties, port=9192)
    return home


def test_a_deployment_is_never_made_over_another(folder):
    with pytest.raises(DeployError, match="is not empty"):
        make_deployment(folder, hosts=["a"], parties=["x", "y"])


def test_a_party_folder_of_another_deployment_is_refused(folder, tmp_path):
    other = tmp_path / "other"
    make_deployment(other, hosts=["a"], parties=["north", "south"])
    shutil.copy(other / "server" / "deployment.toml", folder / "parties" / "north")
    with pytest.raises(DeployError, match="belongs to another deployment"):
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
    (folder / "parties" / "north" / "party.key").chmod(0o644)
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
    renew_certificates(folder, hosts=["new.example.org"])
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


def test_a_party_makes_its_own_keys_and_the_operator_never_has_them(folder, tmp_path):
    home = tmp_path / "north's machine"
    shutil.copytree(folder / "parties" / "north", home)
    entry = make_own_keys(home)
    secret = (home / "identity.key").read_text()
    assert secret != (folder / "parties" / "north" / "identity.key").read_text()
    assert secret.strip() not in entry.read_text()
    with pytest.raises(DeployError, match="belongs to another deployment"):
        check_party(home)  # until the roster says so
    proposed = propose_keys(folder, entry)
    assert load_deployment(folder / "server" / "deployment.toml") == proposed.before
    accept(folder, proposed)
    for public in ("server/deployment.toml", "parties/north/party.pem"):
        shutil.copy(folder / public, home)
    assert check_party(home).deployment == check_server(folder).deployment
    with pytest.raises(DeployError, match="accept it again"):
        accept(folder, proposed)


def keys_of(folder, tmp_path):
    """north's own new keys, as TOML's values."""
    home = tmp_path / "north's machine"
    shutil.copytree(folder / "parties" / "north", home)
    return tomllib.loads(make_own_keys(home).read_text())


def test_accepting_keys_changes_one_party_and_the_id_that_all_compare(folder, tmp_path):
    keys = keys_of(folder, tmp_path)
    entry = tmp_path / "entry.toml"
    entry.write_text(tomli_w.dumps(keys))
    before = load_deployment(folder / "server" / "deployment.toml")
    proposed = propose_keys(folder, entry)
    accept(folder, proposed)
    after = load_deployment(folder / "server" / "deployment.toml")
    assert proposed.name == "north"
    assert [party.name for party in after.parties] == [party.name for party in before.parties]
    assert after.parties[1:] == before.parties[1:]
    assert after.parties[0].identity.hex() == keys["identity"]
    assert (before.id, before.spoken) != (after.id, after.spoken)
    assert after.id == proposed.after.id
    assert before.consortium == after.consortium


INJECTED = '\n\n[[party]]\nname = "mallory"\nidentity = "{}"\n'.format("ab" * 32)


@pytest.mark.parametrize(
    "change",
    [
        lambda keys: {"name": 'north"' + INJECTED},
        lambda keys: {"name": "north\n"},
        lambda keys: {"name": "../north"},
        lambda keys: {"identity": keys["identity"][:-2]},
        lambda keys: {"identity": keys["identity"] + '"' + INJECTED},
        lambda keys: {"party": [{"name": "mallory"}]},
        lambda keys: {"node": "ecdsa-sha2-nistp384 AAAA"},
        lambda keys: {"request": ["a", "b"]},
    ],
)
def test_a_partys_file_cannot_add_a_party_or_change_another(folder, tmp_path, change):
    keys = keys_of(folder, tmp_path)
    entry = tmp_path / "entry.toml"
    entry.write_text(tomli_w.dumps(keys | change(keys)))
    before = (folder / "server" / "deployment.toml").read_bytes()
    with pytest.raises(DeployError, match="Expected a party's public keys"):
        propose_keys(folder, entry)
    assert (folder / "server" / "deployment.toml").read_bytes() == before


def test_keys_of_another_party_are_not_accepted_as_ones_own(folder, tmp_path):
    keys = keys_of(folder, tmp_path)
    south = load_deployment(folder / "server" / "deployment.toml").parties[1]
    entry = tmp_path / "entry.toml"
    entry.write_text(tomli_w.dumps(keys | {"identity": south.identity.hex()}))
    with pytest.raises(RosterError, match=r"Expected a different .* north and south"):
        propose_keys(folder, entry)


def test_accept_shows_what_changes_and_asks(folder, tmp_path):
    keys = keys_of(folder, tmp_path)
    entry = tmp_path / "entry.toml"
    entry.write_text(tomli_w.dumps(keys))
    before = (folder / "server" / "deployment.toml").read_bytes()
    run = CliRunner()
    said = run.invoke(app, ["deploy", "accept", str(folder), str(entry)], input="n\n")
    assert said.exit_code != 0
    assert (folder / "server" / "deployment.toml").read_bytes() == before
    old, new = load_deployment(folder / "server" / "deployment.toml"), propose_keys(folder, entry)
    shown = (old.spoken, new.after.spoken, keys["identity"], old.parties[0].identity.hex())
    assert all(word in said.output for word in shown)
    assert "north, and no other party" in said.output
    assert (
        run.invoke(app, ["deploy", "accept", str(folder), str(entry)], input="y\n").exit_code == 0
    )
    assert load_deployment(folder / "server" / "deployment.toml") == new.after


@pytest.mark.parametrize("name", ["../up", "a/b", "x\ny", "", "-rf"])
def test_a_party_is_not_named_what_is_no_folders_name(tmp_path, name):
    with pytest.raises(RosterError, match="Expected a party's name"):
        make_deployment(tmp_path / "new", hosts=["h.example"], parties=["north", name])
    assert not (tmp_path / "new").exists()


def test_a_server_is_reached_at_an_address_of_six_bytes_or_of_sixteen(tmp_path):
    made = make_deployment(tmp_path / "six", hosts=["::1"], parties=["a", "b"], port=9192)
    assert made.server_address == "[::1]:9192"
    assert check_server(tmp_path / "six").deployment == made


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "public keys"),
        ('name = "west"\nidentity = "00"\nrequest = "x"', "public keys"),
        ('name = "north"\nidentity = "zz"\nrequest = "x"', "public keys"),
    ],
)
def test_what_is_no_partys_public_keys_is_not_accepted(folder, tmp_path, text, said):
    (tmp_path / "entry.toml").write_text(text)
    before = (folder / "server" / "deployment.toml").read_text()
    with pytest.raises(DeployError, match=said):
        propose_keys(folder, tmp_path / "entry.toml")
    assert (folder / "server" / "deployment.toml").read_text() == before


def test_a_deployment_with_keys_of_supernodes_says_what_to_use_instead(folder):
    path = folder / "server" / "deployment.toml"
    path.write_text(path.read_text() + 'node = "ecdsa-sha2-nistp384 AAAA"\n')
    with pytest.raises(RosterError, match=r"parley deploy init.*docs/flower\.md"):
        check_server(folder)
