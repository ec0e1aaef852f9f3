from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta

import pytest

from parley.deploy.certificate_checks import check_server_certificate
from parley.deploy.certificate_making import make_authority, make_identity, make_server_certificate
from parley.deploy.private_files import PkiError, check_private, write_private
from parley.secure_agg.primitives import derive_signing_public_key


@pytest.fixture
def authority(tmp_path):
    make_authority(tmp_path, name="test")
    make_server_certificate(tmp_path, authority=tmp_path, hosts=("fl.example.org", "10.0.0.7"))
    return tmp_path


def check(folder, **more):
    check_server_certificate(folder / "ca.crt", folder / "server.pem", **more)


@pytest.mark.parametrize("host", ["fl.example.org", "10.0.0.7"])
def test_a_certificate_is_good_for_each_of_its_hosts_with_a_clock_a_little_behind(authority, host):
    check(authority, host=host)
    check(authority, host=host, now=datetime.now(UTC) - timedelta(minutes=2))


def test_another_host_is_named_with_those_it_has_and_none_is_refused(authority):
    with pytest.raises(PkiError, match=r"for evil\.example\.org, got one for fl\.example\.org, 10"):
        check(authority, host="evil.example.org")
    with pytest.raises(PkiError, match="at least one host"):
        make_server_certificate(authority, authority=authority, hosts=())


@pytest.mark.parametrize(
    ("hours", "said"),
    [(24 * 398, r"expired on .* Renew it: parley deploy renew"), (-1, r"valid from .* Set the cl")],
)
def test_a_certificate_of_another_time_says_when_and_what_to_do(authority, hours, said):
    with pytest.raises(PkiError, match=said):
        check(authority, now=datetime.now(UTC) + timedelta(hours=hours))


def test_what_is_no_certificate_or_anothers_is_refused(authority, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    make_authority(other, name="test")
    with pytest.raises(PkiError, match="It belongs to another deployment"):
        check_server_certificate(other / "ca.crt", authority / "server.pem")
    (authority / "server.pem").write_text("hello")
    with pytest.raises(PkiError, match="Expected a PEM certificate"):
        check(authority)
    (authority / "server.pem").unlink()
    with pytest.raises(PkiError, match=r"Cannot read certificate .*server\.pem"):
        check(authority)


def test_a_server_whose_authority_is_away_keeps_its_keys(authority):
    before = (authority / "server.key").read_bytes()
    (authority / "ca.key").unlink()
    with pytest.raises(PkiError, match=r"Cannot read key .*ca\.key"):
        make_server_certificate(authority, authority=authority, hosts=["fl.example.org"])
    assert (authority / "server.key").read_bytes() == before


def test_secrets_are_for_their_owner_alone(authority):
    identity = authority / "identity.key"
    public = make_identity(identity)
    assert derive_signing_public_key(bytes.fromhex(identity.read_text())) == public
    for name in ("ca.key", "server.key", "identity.key"):
        assert stat.S_IMODE((authority / name).stat().st_mode) == 0o600, name
        check_private(authority / name)
    identity.chmod(0o640)
    with pytest.raises(PkiError, match=r"got mode 0640\. Run: chmod 600"):
        check_private(identity)
    write_private(identity, b"over a loose file")
    check_private(identity)
