"""Make the keys and certificates of a deployment."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID

from parley.deploy.certificate_checks import (
    CLOCK_TOLERANCE,
    PEM,
    SUBJECT_NAMES,
    load_certificate,
    load_private_key,
    parse_host,
)
from parley.deploy.private_files import PkiError, write_private
from parley.safe_io.file_writing import write_file

_AUTHORITY_DAYS, _LEAF_DAYS = 3650, 397


def make_authority(folder: Path, *, name: str) -> None:
    """Create a certificate authority. `ca.crt` is public; `ca.key` stays with the person who made
    it.
    """
    private, subject = ec.generate_private_key(ec.SECP256R1()), _build_subject(name=name)
    public = private.public_key()
    built = (
        _create_builder(subject, subject, public, _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_build_key_usage(certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
        .sign(private, hashes.SHA256())
    )
    _save_key(private, folder / "ca.key")
    write_file(folder / "ca.crt", built.public_bytes(PEM))


def make_server_certificate(folder: Path, *, authority: Path, hosts: Sequence[str]) -> None:
    """Create `server.key`, and `server.pem` for `hosts` (names and IP addresses)."""
    if not hosts:
        raise PkiError("Expected at least one host name for the server's certificate, got none.")
    private = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([parse_host(host) for host in hosts])
    subject, usage = _build_subject(name=hosts[0][:64]), ExtendedKeyUsageOID.SERVER_AUTH
    pem = _sign_certificate(authority, subject, private.public_key(), usage, _LEAF_DAYS, names)
    _save_key(private, folder / "server.key")
    write_file(folder / "server.pem", pem)


def make_client_request(key: Path) -> bytes:
    """Create a client's key at `key` and return its certificate request (PKCS #10, PEM)."""
    private = ec.generate_private_key(ec.SECP256R1())
    _save_key(private, key)
    unnamed = x509.CertificateSigningRequestBuilder(x509.Name([]))
    return unnamed.sign(private, hashes.SHA256()).public_bytes(PEM)


def certify(
    request: bytes,
    *,
    role: str,
    name: str,
    authority: Path,
    serial: str = "",
    days: int = _LEAF_DAYS,
) -> bytes:
    """Return a client's certificate (PEM) for the key in a request or in an older certificate.

    Args:
        request: PEM. Only the key is used; the subject in a request is ignored.
        authority: The folder of the authority that signs.

    Raises:
        PkiError: not a request, not signed by its own key, or another kind of key.
    """
    subject = _build_subject(role=role, name=name, serial=serial)
    return _sign_certificate(
        authority, subject, _load_request_key(request), ExtendedKeyUsageOID.CLIENT_AUTH, days
    )


def _load_request_key(pem: bytes) -> ec.EllipticCurvePublicKey:
    try:
        if b"CERTIFICATE REQUEST" in pem:
            request = x509.load_pem_x509_csr(pem)
            if not request.is_signature_valid:
                raise ValueError("a request that is not signed by its key")
            key = request.public_key()
        else:
            key = x509.load_pem_x509_certificate(pem).public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise PkiError(f"Expected a certificate request, got something else: {error}.") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise PkiError(
            "Expected a certificate request with a key on P-256, got one with another key."
        )
    return key


def make_identity(path: Path) -> bytes:
    """Create a party's Ed25519 identity (64 hex digits on disk) and return its public key."""
    private = ed25519.Ed25519PrivateKey.generate()
    write_private(path, private.private_bytes_raw().hex().encode())
    return private.public_key().public_bytes_raw()


def _save_key(key: ec.EllipticCurvePrivateKey, path: Path) -> None:
    unencrypted = serialization.NoEncryption()
    write_private(path, key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, unencrypted))


def _sign_certificate(
    authority: Path,
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    usage: x509.ObjectIdentifier,
    days: int,
    *more: x509.ExtensionType,
) -> bytes:
    """Return a certificate (PEM) that cannot sign other certificates."""
    issuer = load_certificate(authority / "ca.crt")
    signer = load_private_key(authority / "ca.key")
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    leaf = (
        _create_builder(subject, issuer.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_build_key_usage(certificates=False), critical=True)
    )
    for extension in (by, *more, x509.ExtendedKeyUsage([usage])):
        leaf = leaf.add_extension(extension, critical=False)
    return leaf.sign(signer, hashes.SHA256()).public_bytes(PEM)


def _create_builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_TOLERANCE)
        .not_valid_after(now + timedelta(days=days))
    )


def _build_subject(**said: str) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(SUBJECT_NAMES[word], text) for word, text in said.items() if text]
    )


def _build_key_usage(*, certificates: bool) -> x509.KeyUsage:
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
