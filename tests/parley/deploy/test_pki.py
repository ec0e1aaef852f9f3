from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta

import pytest

from parley.deploy.pki import (
    check_server_certificate,
    make_authority,
    make_identity,
    make_server_certificate,
)
from parley.deploy.private_files import PkiError, check_private, write_private
from parley.secure_agg.primitives import signing_public


@pytest.fixture
def authority(tmp_path):
    make_authority(tmp_path / "ca.crt", tmp_path / "ca.key", name="test")
    return tmp_path


def server(folder, hosts=("fl.example.org", "10.0.0.7"), **more):
    make_server_certificate(
        folder / "server.pem",
        folder / "server.key",
        authority=folder / "ca.crt",
        authority_key=folder / "ca.key",
        hosts=hosts,
        **more,
    )


def check(folder, **more):
    check_server_certificate(folder / "ca.crt", folder / "server.pem", **more)


@pytest.mark.parametrize("host", ["fl.example.org", "10.0.0.7"])
def test_a_certificate_is_good_for_each_of_its_hosts(authority, host):
    server(authority)
    check(authority, host=host)


def test_another_host_is_named_with_those_it_has(authority):
    server(authority)
    with pytest.raises(PkiError, match=r"for evil\.example\.org, got one for fl\.example\.org, 10"):
        check(authority, host="evil.example.org")


def test_a_missing_certificate_is_named(authority):
    with pytest.raises(PkiError, match=r"Cannot read certificate .*server\.pem"):
        check(authority)


def test_a_certificate_that_is_none_is_refused(authority):
    (authority / "server.pem").write_text("hello")
    with pytest.raises(PkiError, match="Expected a PEM certificate"):
        check(authority)


def test_an_expired_certificate_says_when_and_how_to_renew(authority):
    server(authority, days=30)
    later = datetime.now(UTC) + timedelta(days=31)
    with pytest.raises(PkiError, match=r"expired on .* Renew it: parley deploy renew"):
        check(authority, now=later)


def test_a_clock_that_is_behind_is_told_to_be_set(authority):
    server(authority)
    with pytest.raises(PkiError, match=r"valid from .* set the clock"):
        check(authority, now=datetime.now(UTC) - timedelta(hours=1))


def test_a_clock_that_is_a_little_behind_is_no_reason(authority):
    server(authority)
    check(authority, now=datetime.now(UTC) - timedelta(minutes=2))


def test_another_deployments_certificate_is_refused(authority, tmp_path):
    server(authority)
    other = tmp_path / "other"
    other.mkdir()
    make_authority(other / "ca.crt", other / "ca.key", name="test")
    with pytest.raises(PkiError, match="it belongs to another deployment"):
        check_server_certificate(other / "ca.crt", authority / "server.pem")


def test_a_certificate_needs_a_host(authority):
    with pytest.raises(PkiError, match="at least one host"):
        server(authority, hosts=())


def test_secrets_are_for_their_owner_alone(authority, tmp_path):
    server(authority)
    make_identity(tmp_path / "identity.key")
    for name in ("ca.key", "server.key", "identity.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name
        check_private(tmp_path / name)


def test_a_key_that_others_can_read_is_refused_with_the_command_that_mends_it(tmp_path):
    key = tmp_path / "identity.key"
    make_identity(key)
    key.chmod(0o640)
    with pytest.raises(PkiError, match=r"got mode 0640\. Run: chmod 600"):
        check_private(key)


def test_writing_a_secret_over_a_loose_file_tightens_it(tmp_path):
    path = tmp_path / "secret"
    path.write_text("x")
    path.chmod(0o644)
    write_private(path, b"y")
    check_private(path)


def test_a_missing_key_is_named(tmp_path):
    with pytest.raises(PkiError, match=r"Cannot read key .*identity\.key"):
        check_private(tmp_path / "identity.key")


def test_the_identity_is_the_protocols_own_kind(tmp_path):
    public = make_identity(tmp_path / "identity.key")
    assert signing_public(bytes.fromhex((tmp_path / "identity.key").read_text())) == public
