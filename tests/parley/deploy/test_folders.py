"""Keys that a party makes itself: a file from outside that changes that one party, or nothing."""

from __future__ import annotations

import shutil
import tomllib

import pytest
import tomli_w
from commands import invoked

from parley.client.contract.roster import RosterError, load_deployment
from parley.deploy.folders import DeployError, check_server, own_entry
from parley.deploy.making import accept, make_own_keys, propose_keys
from parley.deploy.pki import PkiError


@pytest.fixture
def machine(folder, tmp_path):
    """north's own machine, with its folder."""
    home = tmp_path / "north's machine"
    shutil.copytree(folder / "parties" / "north", home)
    return home


@pytest.fixture
def entry(machine):
    """The public keys that north made there."""
    return make_own_keys(machine)


def roster(folder):
    return load_deployment(folder / "server" / "deployment.toml")


def own_name(home):
    return own_entry(home, load_deployment(home / "deployment.toml")).name


def test_the_operator_never_has_the_keys_and_only_one_party_and_the_id_change(
    folder, machine, entry
):
    for name in ("identity.key", "party.key"):
        secret = (machine / name).read_text()
        assert secret != (folder / "parties" / "north" / name).read_text()
        assert secret.strip() not in entry.read_text()
    with pytest.raises(DeployError, match="belongs to another deployment"):
        own_name(machine)  # until the roster says so
    proposed = propose_keys(folder, entry)
    before = roster(folder)
    assert before == proposed.before
    accept(folder, proposed)
    after = roster(folder)
    assert after == proposed.after
    assert [party.name for party in after.parties] == [party.name for party in before.parties]
    assert after.parties[1:] == before.parties[1:]
    assert after.parties[0].identity.hex() == tomllib.loads(entry.read_text())["identity"]
    assert (before.id, before.spoken) != (after.id, after.spoken)
    assert before.consortium == after.consortium
    shutil.copy(folder / "server" / "deployment.toml", machine)
    with pytest.raises(DeployError, match="parley deploy accept"):
        own_name(machine)  # its certificate is still to come
    shutil.copy(folder / "parties" / "north" / "party.pem", machine)
    assert own_name(machine) == "north"
    assert check_server(folder).deployment == after
    with pytest.raises(DeployError, match="accept it again"):
        accept(folder, proposed)


INJECTED = '\n\n[[party]]\nname = "mallory"\nidentity = "{}"\n'.format("ab" * 32)


@pytest.mark.parametrize(
    "change",
    [
        {"name": 'north"' + INJECTED},
        {"name": "north\n"},
        {"name": "../north"},
        {"name": "west"},
        {"identity": "ab" * 31},
        {"identity": "zz" * 32},
        {"identity": "ab" * 32 + '"' + INJECTED},
        {"party": [{"name": "mallory"}]},
        {"node": "ecdsa-sha2-nistp384 AAAA"},
        {"request": ["a", "b"]},
        {"request": ""},
        {"request": "-----BEGIN CERTIFICATE REQUEST-----\nabc"},
        {"request": "x" * 5000},
        None,
    ],
)
def test_a_partys_file_cannot_add_a_party_or_change_another(folder, entry, change):
    keys = {} if change is None else tomllib.loads(entry.read_text()) | change
    entry.write_text(tomli_w.dumps(keys))
    before = roster(folder)
    with pytest.raises(
        (DeployError, PkiError), match=r"Expected (a party's|keys of|a certificate)"
    ):
        accept(folder, propose_keys(folder, entry))
    assert roster(folder) == before


def test_keys_of_another_party_are_not_accepted_as_ones_own(folder, entry):
    south = roster(folder).parties[1]
    keys = tomllib.loads(entry.read_text()) | {"identity": south.identity.hex()}
    entry.write_text(tomli_w.dumps(keys))
    with pytest.raises(RosterError, match=r"Expected a different .* north and south"):
        propose_keys(folder, entry)


def test_accept_shows_what_changes_and_asks(folder, entry):
    old, new = roster(folder), propose_keys(folder, entry)
    command = ["deploy", "accept", str(folder), str(entry)]
    said = invoked(*command, input="n\n")
    assert said.exit_code != 0
    assert roster(folder) == old
    identities = (new.new.identity.hex(), new.old.identity.hex())
    assert all(word in said.output for word in (old.spoken, new.after.spoken, *identities))
    assert "north, and no other party" in said.output
    assert invoked(*command, input="y\n").exit_code == 0
    assert roster(folder) == new.after
