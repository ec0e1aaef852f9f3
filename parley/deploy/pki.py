"""Create and check the keys and certificates of a deployment.

Each kind has one purpose:

- The certificate authority and the server's certificate (ECDSA P-256, X.509) are for TLS. Parties
  hold `ca.crt` and trust a server only if this authority signed its certificate.
- A certificate per party and operator (ECDSA P-256, X.509) identifies the caller to the server. A
  party's certificate contains its name and the fingerprint of its identity
  (`parley.deploy.authorization`).
- An identity per party (Ed25519) signs the masking protocol's keys. With it, not even the server
  can pose as a party to another party.

Private keys are written with mode 0600 and refused with a looser one. The authority's folder has
`ca.crt`, and `ca.key` if it signs.
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
from parley.safe_io.file_writing import write_file
from parley.safe_io.os_errors import describe_cause

_AUTHORITY_DAYS, _LEAF_DAYS = 3650, 397
# A machine whose clock is slightly behind must accept a certificate made a moment ago.
_CLOCK_TOLERANCE = timedelta(minutes=5)
_SUBJECT = {
    "role": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "name": NameOID.COMMON_NAME,
    "serial": NameOID.SERIAL_NUMBER,
}
_PEM = serialization.Encoding.PEM


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
    write_file(folder / "ca.crt", built.public_bytes(_PEM))


def make_server_certificate(folder: Path, *, authority: Path, hosts: Sequence[str]) -> None:
    """Create `server.key`, and `server.pem` for `hosts` (names and IP addresses)."""
    if not hosts:
        raise PkiError("Expected at least one host name for the server's certificate, got none.")
    private = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([_parse_host(host) for host in hosts])
    subject, usage = _build_subject(name=hosts[0][:64]), ExtendedKeyUsageOID.SERVER_AUTH
    pem = _sign_certificate(authority, subject, private.public_key(), usage, _LEAF_DAYS, names)
    _save_key(private, folder / "server.key")
    write_file(folder / "server.pem", pem)


def make_client_request(key: Path) -> bytes:
    """Create a client's key at `key` and return its certificate request (PKCS #10, PEM)."""
    private = ec.generate_private_key(ec.SECP256R1())
    _save_key(private, key)
    unnamed = x509.CertificateSigningRequestBuilder(x509.Name([]))
    return unnamed.sign(private, hashes.SHA256()).public_bytes(_PEM)


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


def parse_subject(pem: bytes) -> dict[str, str]:
    """Return role, name and serial of a certificate's subject; empty for each that is not there
    once.
    """
    try:
        subject = x509.load_pem_x509_certificate(pem).subject
    except ValueError as error:
        raise PkiError("Expected a PEM certificate, got something else.") from error
    found = dict.fromkeys(_SUBJECT, "")
    for word, oid in _SUBJECT.items():
        values = subject.get_attributes_for_oid(oid)
        if len(values) == 1 and isinstance(values[0].value, str):
            found[word] = values[0].value
    return found


def make_identity(path: Path) -> bytes:
    """Create a party's Ed25519 identity (64 hex digits on disk) and return its public key."""
    private = ed25519.Ed25519PrivateKey.generate()
    write_private(path, private.private_bytes_raw().hex().encode())
    return private.public_key().public_bytes_raw()


def check_dates(path: Path, *, now: datetime | None = None) -> float:
    """Return the number of days for which the certificate at `path` is still valid.

    Raises:
        PkiError: the certificate is missing, has expired, or is not valid yet (the clock is
            behind).
    """
    certificate, moment = _load_certificate(path), now or datetime.now(UTC)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if moment < begin:
        raise PkiError(
            f"Certificate {path} is valid from {begin:%Y-%m-%d %H:%M} UTC, but this machine's "
            f"clock shows {moment:%Y-%m-%d %H:%M} UTC. Set the clock."
        )
    if moment > end:
        raise PkiError(
            f"Certificate {path} expired on {end:%Y-%m-%d %H:%M} UTC (this machine's clock shows "
            f"{moment:%Y-%m-%d %H:%M} UTC). Renew it: parley deploy renew DIR."
        )
    return (end - moment) / timedelta(days=1)


def check_client_pair(folder: Path, name: str) -> None:
    """Check the dates of `name`.pem, that `ca.crt` issued it, and that `name`.key is its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    leaf = _load_issued(certificate, folder / "ca.crt", None)
    if _load_private_key(key).public_key() != leaf.public_key():
        raise PkiError(f"Expected {key} to be the key of {certificate}, got another key.")


def check_server_certificate(
    authority: Path, certificate: Path, *, host: str | None = None, now: datetime | None = None
) -> None:
    """Check dates, issuer and host of a server's certificate, with the `ca.crt` at `authority`."""
    check_dates(authority, now=now)
    _load_issued(certificate, authority, now)
    names = list_certificate_names(certificate)
    if host is not None and str(_parse_host(host).value) not in names:
        raise PkiError(
            f"Expected a certificate for {host}, got one for {', '.join(names)}. Reach the server "
            "by one of these names, or create a deployment with that name: `parley deploy init "
            "--host`."
        )


def list_certificate_names(path: Path) -> list[str]:
    """Return the host names and addresses in a server's certificate."""
    try:
        names = _load_certificate(path).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except x509.ExtensionNotFound as error:
        raise PkiError(
            f"Expected a server's certificate in {path}, got one without names."
        ) from error
    return [str(name.value) for name in names.value]


def _load_issued(path: Path, authority: Path, now: datetime | None) -> x509.Certificate:
    """Return the certificate at `path` after checking its dates and issuer."""
    leaf, issuer = _load_certificate(path), _load_certificate(authority)
    check_dates(path, now=now)
    try:
        leaf.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise PkiError(
            f"Expected {path} to be issued by {authority}, got another issuer. It belongs to "
            "another deployment."
        ) from error
    return leaf


def _load_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise PkiError(f"Cannot read certificate {path}: {describe_cause(error)}.") from error
    except ValueError as error:
        raise PkiError(f"Expected a PEM certificate in {path}, got something else.") from error


def _load_private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    check_private(path)
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise PkiError(f"Expected a private key in {path}, got something else.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise PkiError(f"Expected an EC key in {path}, got {type(key).__name__}.")
    return key


def _save_key(key: ec.EllipticCurvePrivateKey, path: Path) -> None:
    unencrypted = serialization.NoEncryption()
    write_private(path, key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, unencrypted))


def _sign_certificate(
    authority: Path,
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    usage: x509.ObjectIdentifier,
    days: int,
    *more: x509.ExtensionType,
) -> bytes:
    """Return a certificate (PEM) that cannot sign other certificates."""
    issuer, signer = (
        _load_certificate(authority / "ca.crt"),
        _load_private_key(authority / "ca.key"),
    )
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    leaf = (
        _create_builder(subject, issuer.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_build_key_usage(certificates=False), critical=True)
    )
    for extension in (by, *more, x509.ExtendedKeyUsage([usage])):
        leaf = leaf.add_extension(extension, critical=False)
    return leaf.sign(signer, hashes.SHA256()).public_bytes(_PEM)


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
        .not_valid_before(now - _CLOCK_TOLERANCE)
        .not_valid_after(now + timedelta(days=days))
    )


def _build_subject(**said: str) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(_SUBJECT[word], text) for word, text in said.items() if text]
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


def _parse_host(host: str) -> x509.IPAddress | x509.DNSName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
