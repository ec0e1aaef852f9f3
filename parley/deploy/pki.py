"""Keys and certificates of a deployment, and the checks before anything is started with them.

Three kinds, each with one purpose:

- the certificate authority and the server's certificate (ECDSA P-256, X.509): TLS. Parties hold
  `ca.crt` and believe a server only on its word;
- a SuperNode key of each party (ECDSA P-384, OpenSSH): Flower knows the node by it;
- an identity of each party (Ed25519): it signs the masking protocol's keys, so that not even the
  server can put itself between two parties.

Private keys are written with mode 0600 and refused with a looser one.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = [
    "PkiError",
    "check_node_key",
    "check_private",
    "check_server_certificate",
    "make_authority",
    "make_identity",
    "make_node_key",
    "make_server_certificate",
    "node_key",
    "node_line",
    "signed_by_node",
    "signs_as_node",
    "write_private",
]

_AUTHORITY_DAYS, _SERVER_DAYS = 3650, 397
# A clock that is a little behind must not refuse a certificate made a moment ago.
_BACKDATED = timedelta(minutes=5)


class PkiError(Exception):
    """A key or certificate that cannot be used, and what to do about it."""


def write_private(path: Path, content: bytes) -> None:
    """Writes a secret that only its owner can read, never readable in between."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.write(content)


def check_private(path: Path) -> None:
    """Raises PkiError unless the secret is there and nobody but its owner can read it."""
    try:
        mode = path.stat().st_mode & 0o777
    except OSError as error:
        raise PkiError(f"Cannot read key {path}: {error.strerror}.") from error
    if mode & 0o077:
        raise PkiError(
            f"Expected key {path} to be readable by its owner only (mode 0600), got mode "
            f"{mode:04o}. Run: chmod 600 {path}"
        )


def make_authority(certificate: Path, key: Path, *, name: str) -> None:
    """Makes a certificate authority: `certificate` is public, `key` stays with who made it."""
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
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
    days: int = _SERVER_DAYS,
) -> None:
    """Makes the server's key and its certificate for `hosts` (names and IP addresses)."""
    if not hosts:
        raise PkiError("Expected at least one host name for the server's certificate, got none.")
    issuer = _certificate(authority)
    check_private(authority_key)
    signer = serialization.load_pem_private_key(authority_key.read_bytes(), None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise PkiError(f"Expected {authority_key} to hold an EC key, got another kind.")
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    built = (
        _builder(subject, issuer.subject, private.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .add_extension(_usage(certificates=False), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False
        )
        .sign(signer, hashes.SHA256())
    )
    write_private(key, _pem(private))
    certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))


def make_node_key(path: Path, *, comment: str) -> str:
    """Makes a SuperNode's key, `path` and `path.pub`, and returns the public line."""
    private = ec.generate_private_key(ec.SECP384R1())
    write_private(
        path,
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        ),
    )
    public = private.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    line = f"{public.decode()} {comment}"
    path.with_suffix(".pub").write_text(line + "\n", encoding="utf-8")
    return line


def check_node_key(line: str) -> None:
    """Raises PkiError unless it is an OpenSSH line with a P-384 public key."""
    try:
        key = serialization.load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise PkiError("Expected an OpenSSH public key, got something else.") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise PkiError("Expected an OpenSSH public key on P-384, got another kind.")


def node_key(line: str) -> bytes:
    """A party's OpenSSH public key as Flower writes it: PEM, with its last line's end."""
    return _public(line).public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def node_line(path: Path) -> str:
    """The OpenSSH public key, without a comment, of the SuperNode's private key at `path`.

    Raises:
        PkiError: it is no private key on an elliptic curve.
    """
    public = _private(path).public_key()
    return public.public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    ).decode()


def signed_by_node(path: Path, message: bytes) -> bytes:
    """The ECDSA signature of a message with SHA-256, by the SuperNode's private key at `path`.

    Raises:
        PkiError: it is no private key on an elliptic curve.
    """
    return _private(path).sign(message, ec.ECDSA(hashes.SHA256()))


def signs_as_node(line: str, signature: bytes, message: bytes) -> bool:
    """Whether `signature` is that of `message` by a party's OpenSSH public key."""
    try:
        _public(line).verify(signature, message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def _public(line: str) -> ec.EllipticCurvePublicKey:
    key = serialization.load_ssh_public_key(line.encode())
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise TypeError(f"Expected an elliptic-curve key, got {type(key).__name__}.")
    return key


def _private(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), None)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise PkiError(f"Expected a private key in {path}, got something else.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise PkiError(f"Expected an elliptic-curve key in {path}.")
    return key


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
    try:
        leaf.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise PkiError(
            f"Expected {certificate} to be issued by {authority}, got another authority's: it "
            "belongs to another deployment."
        ) from error
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
