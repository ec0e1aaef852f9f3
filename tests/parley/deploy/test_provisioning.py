"""A deployment's folders: made, renewed, changed; keys that a party makes itself."""

from __future__ import annotations

import shutil
import tomllib
from dataclasses import replace

import pytest
import tomli_w
from commands import invoked
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from parley.client.contract.roster import RosterError, load_deployment, render_deployment
from parley.deploy.authorization import NotAdmitted, admit_operator, admit_party
from parley.deploy.certificate_checks import check_dates
from parley.deploy.deployment_folder_checks import check_server, find_own_party
from parley.deploy.private_files import PkiError
from parley.deploy.provisioning import (
    accept,
    add_party,
    make_deployment,
    make_own_keys,
    propose_keys,
    remove_party,
    renew_certificates,
    rotate_party,
)
from parley.deploy.server_address import DeployError, parse_address

NAMES = ["north", "south", "east"]


def pem(folder, name):
    return (folder / "parties" / name / "party.pem").read_bytes()


def roster(folder):
    return load_deployment(folder / "deployment.toml")


def own_name(home):
    """Whose folder it is, its keys and certificate checked."""
    return find_own_party(home, roster(home)).name


def test_a_new_deployment_passes_its_own_checks_and_nobody_has_anothers_secret(folder):
    assert check_server(folder).deployment.server_address == "fl.example.org:9192"
    assert [own_name(folder / "parties" / name) for name in NAMES] == NAMES
    own = {path.name for path in (folder / "parties" / "north").iterdir()}
    assert own == {
        "ca.crt", "deployment.toml", "identity.key", "party.key", "party.pem", "party.toml",
    }  # fmt: skip
    server = {path.name for path in (folder / "server").iterdir()}
    assert server == {
        "ca.crt", "server.pem", "server.key", "server.toml", "deployment.toml", "runs",
        "operator.key", "operator.pem",
    }  # fmt: skip
    for key in folder.rglob("*.key"):
        assert key.stat().st_mode & 0o777 == 0o600


def test_a_certificate_admits_its_own_party_and_no_other_role(folder):
    deployment = roster(folder / "server")
    assert [admit_party(deployment, pem(folder, name)) for name in NAMES] == [0, 1, 2]
    operator = (folder / "operator" / "operator.pem").read_bytes()
    assert admit_operator(operator) == "operator"
    with pytest.raises(NotAdmitted, match="got one for operator"):
        admit_party(deployment, operator)
    with pytest.raises(NotAdmitted, match="got one for party"):
        admit_operator(pem(folder, "north"))
    for nobody in ((folder / "server" / "server.pem").read_bytes(), b"", b"no certificate"):
        with pytest.raises(NotAdmitted):
            admit_party(deployment, nobody)
        with pytest.raises(NotAdmitted):
            admit_operator(nobody)


def test_the_keys_of_an_earlier_identity_admit_nobody(folder, tmp_path):
    before, old, north = pem(folder, "north"), tmp_path / "old", folder / "parties" / "north"
    shutil.copytree(north, old)
    rotated = rotate_party(folder, "north")
    assert admit_party(rotated, pem(folder, "north")) == 0
    with pytest.raises(NotAdmitted, match="for another identity than the roster's"):
        admit_party(rotated, before)
    assert (own_name(north), roster(north)) == ("north", rotated)
    assert check_server(folder).deployment == rotated
    shutil.copy(folder / "server" / "deployment.toml", old)
    with pytest.raises(DeployError, match="belongs to another deployment"):
        own_name(old)
    with pytest.raises(DeployError, match="one of the parties north, south, east, got west"):
        rotate_party(folder, "west")


def test_a_party_that_is_removed_is_admitted_no_more_and_the_others_are(folder):
    left = remove_party(folder, "south")
    assert [party.name for party in left.parties] == ["north", "east"]
    assert admit_party(left, pem(folder, "east")) == 1
    with pytest.raises(NotAdmitted, match="has no party south"):
        admit_party(left, pem(folder, "south"))
    with pytest.raises(DeployError, match="Expected one of the parties north, east, got south"):
        remove_party(folder, "south")
    with pytest.raises(DeployError, match="Expected at least 2 parties"):
        remove_party(folder, "east")


def test_a_party_that_is_added_is_the_last_and_the_others_keep_their_keys(folder):
    before = [pem(folder, name) for name in NAMES]
    grown = add_party(folder, "west")
    assert [party.name for party in grown.parties] == [*NAMES, "west"]
    assert [pem(folder, name) for name in NAMES] == before
    for name in ("north", "west"):
        assert own_name(folder / "parties" / name) == name
        assert roster(folder / "parties" / name) == grown
    with pytest.raises(DeployError, match=r"parley deploy rotate DIR west"):
        add_party(folder, "west")
    with pytest.raises(RosterError, match="Expected a party's name"):
        add_party(folder, "../up")


def test_renewed_certificates_are_of_the_same_keys_and_of_names_that_are_asked_for(folder):
    before = pem(folder, "north")
    shutil.rmtree(folder / "parties" / "east")  # sent away
    renewal = renew_certificates(folder)
    assert (renewal.parties, renewal.new_roster) == (("north", "south"), None)
    assert pem(folder, "north") != before
    assert own_name(folder / "parties" / "north") == "north"
    assert check_dates(folder / "parties" / "north" / "party.pem") > 396
    deployment = check_server(folder).deployment
    moved = replace(deployment, server_address="new.example.org:9192")
    (folder / "server" / "deployment.toml").write_text(render_deployment(moved))
    with pytest.raises(PkiError, match=r"for new\.example\.org.* renew DIR --host new"):
        check_server(folder)
    renew_certificates(folder, hosts=["new.example.org"])
    assert check_server(folder).deployment == moved


def test_a_new_host_is_written_into_every_roster_here_and_everyone_else_is_to_get_it(folder):
    before = roster(folder / "authority")
    shutil.rmtree(folder / "parties" / "east")  # sent away
    with pytest.raises(DeployError, match="without a port: the port stays"):
        renew_certificates(folder, hosts=["new.example.org:1"])
    assert roster(folder / "authority") == before
    said = invoked("deploy", "renew", folder, "--host", "2001:db8::7", "--host", "fl.example.org")
    assert said.exit_code == 0
    homes = [folder / name for name in ("authority", "server", "operator")]
    for home in (*homes, folder / "parties" / "north", folder / "parties" / "south"):
        assert roster(home) == replace(before, server_address="[2001:db8::7]:9192")
    assert not (folder / "parties" / "east").exists()
    assert check_server(folder).deployment.id == before.id
    assert own_name(folder / "parties" / "north") == "north"
    assert "address is now [2001:db8::7]:9192" in said.stdout
    assert f"Send everyone the new roster, {folder}/authority/deployment.toml" in said.stdout
    # Without a new address there is no roster to send.
    assert "roster" not in invoked("deploy", "renew", folder).stdout
    assert roster(folder / "authority").server_address == "[2001:db8::7]:9192"


def test_what_a_request_calls_itself_is_not_read(folder, tmp_path):
    home = tmp_path / "north's machine"
    shutil.copytree(folder / "parties" / "north", home)
    keys = tomllib.loads(make_own_keys(home).read_text())
    private = serialization.load_pem_private_key((home / "party.key").read_bytes(), None)
    mallory = x509.CertificateSigningRequestBuilder(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "south")])
    ).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    asked = mallory.sign(private, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    entry = tmp_path / "entry.toml"
    entry.write_text(tomli_w.dumps(keys | {"request": asked.decode()}))
    accept(folder, propose_keys(folder, entry))
    made = x509.load_pem_x509_certificate(pem(folder, "north"))
    assert admit_party(roster(folder / "server"), pem(folder, "north")) == 0
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_keys_that_do_not_go_together_are_found_before_anything_is_started(folder, tmp_path):
    north, south = (folder / "parties" / name for name in ("north", "south"))
    for name in ("party.key", "party.pem"):
        kept = (north / name).read_bytes()
        shutil.copy(south / name, north / name)
        with pytest.raises(
            (DeployError, PkiError), match=r"got (another key|the certificate of south)"
        ):
            own_name(north)
        (north / name).write_bytes(kept)
    other = tmp_path / "other"
    make_deployment(other, hosts=["a"], parties=["north", "south"])
    shutil.copy(other / "server" / "deployment.toml", north)
    with pytest.raises(DeployError, match="belongs to another deployment"):
        own_name(north)


def test_a_deployment_changes_after_the_servers_folder_was_sent_away(folder, tmp_path):
    shutil.move(folder / "server", tmp_path / "elsewhere")
    shutil.move(folder / "operator", tmp_path / "operator")
    grown = add_party(folder, "west")
    assert roster(folder / "authority") == grown
    assert own_name(folder / "parties" / "west") == "west"
    rotate_party(folder, "north")
    assert len(remove_party(folder, "east").parties) == 3
    assert "north" in renew_certificates(folder).parties
    fresh = x509.load_pem_x509_certificate((folder / "server" / "server.pem").read_bytes())
    names = fresh.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "fl.example.org" in names.get_values_for_type(x509.DNSName)


@pytest.mark.parametrize("name", ["../up", "a/b", "x\ny", "", "-rf"])
def test_a_party_is_not_named_what_is_no_folders_name(tmp_path, name):
    with pytest.raises(RosterError, match="Expected a party's name"):
        make_deployment(tmp_path / "new", hosts=["h.example"], parties=["north", name])
    assert not (tmp_path / "new").exists()


def test_a_servers_folder_is_made_for_either_kind_of_address_and_never_over_another(tmp_path):
    made = make_deployment(tmp_path / "six", hosts=["::1"], parties=["a", "b"], port=9192)
    assert made.server_address == "[::1]:9192"
    assert check_server(tmp_path / "six").deployment == made
    with pytest.raises(DeployError, match="is not empty"):
        make_deployment(tmp_path / "six", hosts=["a"], parties=["x", "y"])
    with pytest.raises(DeployError, match="not a server's folder"):
        check_server(tmp_path)


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


@pytest.mark.parametrize(
    ("hosts", "parties"),
    [(["fl.example.org"], ["a", "a"]), (["fl.example.org"], [f"s{i}" for i in range(10_001)])],
)
def test_a_deployment_that_is_refused_leaves_no_folder(tmp_path, hosts, parties):
    with pytest.raises((DeployError, RosterError), match=r"different name|at most 10,000"):
        make_deployment(tmp_path / "d", hosts=hosts, parties=parties)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    "host",
    [
        *("fl.example.org:9092", "https://fl.example.org", "", "[::1"),
        *("fl..example.org", "999.1.1.1", "10.0.0", f"{'a' * 64}.org"),
    ],
)
def test_a_host_is_a_name_or_an_address_alone(tmp_path, host):
    with pytest.raises(DeployError, match="Give the port separately: --port 9092"):
        make_deployment(tmp_path / "d", hosts=[host], parties=["a", "b"])
    assert not (tmp_path / "d").exists()


def test_an_ipv6_host_in_brackets_is_reached_where_the_server_listens(tmp_path):
    deployment = make_deployment(tmp_path / "d", hosts=["[::1]"], parties=["a", "b"])
    assert deployment.server_address == "[::1]:9092"
    assert check_server(tmp_path / "d").listen == "::"
    assert parse_address(deployment.server_address) == ("::1", 9092)


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]", "::1", "https://a.b:9092", "a.b:0"])
def test_an_address_without_a_port_is_refused_before_any_call(folder, address):
    said = invoked("party", folder / "parties" / "north", "--server", address)
    assert said.exit_code == 2
    assert "HOST:PORT, such as fl.example.org:9092" in said.stdout + said.stderr
    assert "firewall" not in said.stdout + said.stderr


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
    before = roster(folder / "server")
    assert before == proposed.before
    accept(folder, proposed)
    after = roster(folder / "server")
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
    with pytest.raises(DeployError, match="Run the command again"):
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
    before = roster(folder / "server")
    with pytest.raises(
        (DeployError, PkiError), match=r"Expected (a party's|keys of|a certificate)"
    ):
        accept(folder, propose_keys(folder, entry))
    assert roster(folder / "server") == before


def test_keys_of_another_party_are_not_accepted_as_ones_own(folder, entry):
    south = roster(folder / "server").parties[1]
    keys = tomllib.loads(entry.read_text()) | {"identity": south.identity.hex()}
    entry.write_text(tomli_w.dumps(keys))
    with pytest.raises(RosterError, match=r"Expected a different .* north and south"):
        propose_keys(folder, entry)


def test_accept_shows_what_changes_and_asks(folder, entry):
    old, new = roster(folder / "server"), propose_keys(folder, entry)
    command = ["deploy", "accept", str(folder), str(entry)]
    said = invoked(*command, input="n\n")
    assert said.exit_code != 0
    assert roster(folder / "server") == old
    identities = (new.new.identity.hex(), new.old.identity.hex())
    assert all(word in said.output for word in (old.spoken, new.after.spoken, *identities))
    assert "north, and no other party" in said.output
    assert invoked(*command, input="y\n").exit_code == 0
    assert roster(folder / "server") == new.after
