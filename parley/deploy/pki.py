"""Keys and certificates of a deployment, and the checks before anything is started with them.

Four kinds, each with one purpose:

- the certificate authority and the server's certificate (ECDSA P-256, X.509): TLS. Parties hold
  `ca.crt` and believe a server only on its word;
- a certificate of each party and operator (ECDSA P-256, X.509): the server knows who calls. A
  party's names the party and the fingerprint of its identity (`parley.deploy.peers`);
- an identity of each party (Ed25519): it signs the masking protocol's keys, so that not even the
  server can put itself between two parties.

Private keys are written with mode 0600 and refused with a looser one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from parley.deploy.private_files import PkiError, check_private, write_private

_AUTHORITY_DAYS, _LEAF_DAYS = 3650, 397
# A clock that is a little behind must not refuse a certificate made a moment ago.
_BACKDATED = timedelta(minutes=5)


def make_authority(certificate: Path, key: Path, *, name: str) -> None:
    """Makes a certificate authority: `certificate` is public, `key` stays with who made it."""
    private = ec.generate_private_key(ec.SECP256R1())
    subject = _common_name(name)
    built = (
        _builder(subject, subject, private.public_key(), _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), False)
        .sign(private, hashes.SHA256())
    )
    write_private(key, _pem(private))
    certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))


def make_server_certificate(
    certificate: Path,
    key: Path,
    *,
    authority: Path,
    authority_key: Path,
    hosts: Sequence[str],
    days: int = _LEAF_DAYS,
) -> None:
    """Makes the server's key and its certificate for `hosts` (names and IP addresses)."""
    if not hosts:
        raise PkiError("Expected at least one host name for the server's certificate, got none.")
    issuer, signer = _authority(authority, authority_key)
    private = ec.generate_private_key(ec.SECP256R1())
    built = (
        _leaf(_common_name(hosts[0][:64]), issuer, signer, private.public_key(), days)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .sign(signer, hashes.SHA256())
    )
    write_private(key, _pem(private))
    certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))


def client_request(key: Path) -> bytes:
    """Makes a client's key at `key` and returns what asks for its certificate (PKCS #10, PEM)."""
    private = ec.generate_private_key(ec.SECP256R1())
    write_private(key, _pem(private))
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .sign(private, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )


def certify(
    asked: bytes,
    *,
    role: str,
    name: str,
    serial: str,
    authority: Path,
    authority_key: Path,
    days: int = _LEAF_DAYS,
) -> bytes:
    """A client's certificate (PEM) for the key of a request, or of an older certificate.

    Args:
        asked: PEM. Of a request only the key is taken; what it calls itself is not read.
        role: the subject's organizational unit.
        name: its common name.
        serial: its serial number attribute: of a party the fingerprint of its identity.
        authority: the authority's certificate.
        authority_key: its key.
        days: how long it is valid.

    Raises:
        PkiError: no request, one that its own key did not sign, or another kind of key.
    """
    issuer, signer = _authority(authority, authority_key)
    public = _asked_key(asked)
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            *([x509.NameAttribute(NameOID.SERIAL_NUMBER, serial)] if serial else []),
        ]
    )
    built = (
        _leaf(subject, issuer, signer, public, days)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False)
        .sign(signer, hashes.SHA256())
    )
    return built.public_bytes(serialization.Encoding.PEM)


def _asked_key(asked: bytes) -> ec.EllipticCurvePublicKey:
    try:
        if b"CERTIFICATE REQUEST" in asked:
            request = x509.load_pem_x509_csr(asked)
            if not request.is_signature_valid:
                raise ValueError("a request that its key did not sign")
            key = request.public_key()
        else:
            key = x509.load_pem_x509_certificate(asked).public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise PkiError(f"Expected a certificate request, got something else: {error}.") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise PkiError(
            "Expected a certificate request with a key on P-256, got one with another key."
        )
    return key


def common_subject(pem: bytes) -> dict[str, str]:
    """Role, name and serial number in a certificate's subject; what is not there once is missing.

    Raises:
        PkiError: it is no certificate.
    """
    try:
        subject = x509.load_pem_x509_certificate(pem).subject
    except ValueError as error:
        raise PkiError("Expected a PEM certificate, got something else.") from error
    found: dict[str, str] = {}
    for word, oid in (
        ("role", NameOID.ORGANIZATIONAL_UNIT_NAME),
        ("name", NameOID.COMMON_NAME),
        ("serial", NameOID.SERIAL_NUMBER),
    ):
        values = subject.get_attributes_for_oid(oid)
        if len(values) == 1 and isinstance(values[0].value, str):
            found[word] = values[0].value
    return found


def check_client_pair(
    authority: Path, certificate: Path, key: Path, *, now: datetime | None = None
) -> None:
    """Checks a client's certificate: its dates, its issuer, and that `key` is its key.

    Raises:
        PkiError: expired or not valid yet, another authority's, or of another key.
    """
    leaf, issuer = _certificate(certificate), _certificate(authority)
    _check_dates(certificate, leaf, now or datetime.now(UTC))
    _check_issued(certificate, leaf, authority, issuer)
    check_private(key)
    try:
        private = serialization.load_pem_private_key(key.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise PkiError(f"Expected a private key in {key}, got something else.") from error
    if private.public_key() != leaf.public_key():
        raise PkiError(
            f"Expected {key} to be the key of {certificate}, got a key that does not fit."
        )


def _check_issued(
    path: Path, leaf: x509.Certificate, authority: Path, issuer: x509.Certificate
) -> None:
    try:
        leaf.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise PkiError(
            f"Expected {path} to be issued by {authority}, got a stranger: it belongs to "
            "another deployment."
        ) from error


def certificate_days(path: Path, *, now: datetime | None = None) -> float:
    """Days until the certificate at `path` expires; below 0 where it has.

    Raises:
        PkiError: there is none.
    """
    moment = now or datetime.now(UTC)
    return (_certificate(path).not_valid_after_utc - moment) / timedelta(days=1)


def names_in(path: Path) -> list[str]:
    """The host names and addresses in a server's certificate.

    Raises:
        PkiError: there is none, or it has no names.
    """
    try:
        names = _certificate(path).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound as error:
        raise PkiError(f"Expected a server's certificate in {path}, got one without names.") from (
            error
        )
    return [str(name.value) for name in names.value]


def make_identity(path: Path) -> bytes:
    """Makes a party's Ed25519 identity (64 hex digits on disk) and returns its public key."""
    private = ed25519.Ed25519PrivateKey.generate()
    write_private(path, private.private_bytes_raw().hex().encode())
    return private.public_key().public_bytes_raw()


def check_server_certificate(
    authority: Path,
    certificate: Path | None = None,
    *,
    host: str | None = None,
    now: datetime | None = None,
) -> None:
    """Checks dates, and of a server's certificate also its issuer and its host.

    Raises:
        PkiError: missing, expired, not valid yet (a clock that is behind), another authority's,
            or without that host.
    """
    moment = now or datetime.now(UTC)
    issuer = _certificate(authority)
    _check_dates(authority, issuer, moment)
    if certificate is None:
        return
    leaf = _certificate(certificate)
    _check_dates(certificate, leaf, moment)
    _check_issued(certificate, leaf, authority, issuer)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if host is not None and _host(host) not in set(names):
        known = ", ".join(str(name.value) for name in names)
        raise PkiError(
            f"Expected a certificate for {host}, got one for {known}. Parties reach the server by "
            "one of these, or `parley deploy init --host` makes one with that name."
        )


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise PkiError(f"Cannot read certificate {path}: {error.strerror}.") from error
    except ValueError as error:
        raise PkiError(f"Expected a PEM certificate in {path}, got something else.") from error


def _check_dates(path: Path, certificate: x509.Certificate, moment: datetime) -> None:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if moment < begin:
        raise PkiError(
            f"Certificate {path} is valid from {begin:%Y-%m-%d %H:%M} UTC, this machine's clock "
            f"says {moment:%Y-%m-%d %H:%M} UTC: set the clock."
        )
    if moment > end:
        raise PkiError(
            f"Certificate {path} expired on {end:%Y-%m-%d %H:%M} UTC (this machine's clock says "
            f"{moment:%Y-%m-%d %H:%M} UTC). Renew it: parley deploy renew."
        )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
    )


def _authority(certificate: Path, key: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Whoever signs: its certificate and its key."""
    issuer = _certificate(certificate)
    check_private(key)
    try:
        signer = serialization.load_pem_private_key(key.read_bytes(), None)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise PkiError(f"Expected the authority's key in {key}, got something else.") from error
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise PkiError(f"Expected {key} to hold an EC key, got {type(signer).__name__}.")
    return issuer, signer


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _leaf(
    subject: x509.Name,
    issuer: x509.Certificate,
    signer: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePublicKey,
    days: int,
) -> x509.CertificateBuilder:
    """What every certificate has that signs no other."""
    return (
        _builder(subject, issuer.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(certificates=False), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False
        )
    )


def _usage(*, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
