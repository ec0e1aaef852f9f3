"""Load and check the keys and certificates of a deployment.

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
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from parley.deploy.private_files import PkiError, check_private
from parley.safe_io.os_errors import report_os_errors

# A machine whose clock is slightly behind must accept a certificate made a moment ago.
CLOCK_TOLERANCE = timedelta(minutes=5)
SUBJECT_NAMES = {
    "role": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "name": NameOID.COMMON_NAME,
    "serial": NameOID.SERIAL_NUMBER,
}
PEM = serialization.Encoding.PEM


def parse_subject(pem: bytes) -> dict[str, str]:
    """Return role, name and serial of a certificate's subject; empty for each that is not there
    once.
    """
    try:
        subject = x509.load_pem_x509_certificate(pem).subject
    except ValueError as error:
        raise PkiError("Expected a PEM certificate, got something else.") from error
    found = dict.fromkeys(SUBJECT_NAMES, "")
    for word, oid in SUBJECT_NAMES.items():
        values = subject.get_attributes_for_oid(oid)
        if len(values) == 1 and isinstance(values[0].value, str):
            found[word] = values[0].value
    return found


def check_dates(path: Path, *, now: datetime | None = None) -> float:
    """Return the number of days for which the certificate at `path` is still valid.

    Raises:
        PkiError: the certificate is missing, has expired, or is not valid yet (the clock is
            behind).
    """
    certificate, moment = load_certificate(path), now or datetime.now(UTC)
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
    if load_private_key(key).public_key() != leaf.public_key():
        raise PkiError(f"Expected {key} to be the key of {certificate}, got another key.")


def check_server_certificate(
    authority: Path, certificate: Path, *, host: str | None = None, now: datetime | None = None
) -> None:
    """Check dates, issuer and host of a server's certificate, with the `ca.crt` at `authority`."""
    check_dates(authority, now=now)
    _load_issued(certificate, authority, now)
    names = list_certificate_names(certificate)
    if host is not None and str(parse_host(host).value) not in names:
        raise PkiError(
            f"Expected a certificate for {host}, got one for {', '.join(names)}. Reach the server "
            "by one of these names, or renew the certificate for that name: `parley deploy renew "
            f"DIR --host {host}`."
        )


def list_certificate_names(path: Path) -> list[str]:
    """Return the host names and addresses in a server's certificate."""
    try:
        extensions = load_certificate(path).extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound as error:
        raise PkiError(
            f"Expected a server's certificate in {path}, got one without names."
        ) from error
    return [str(name.value) for name in names.value]


def _load_issued(path: Path, authority: Path, now: datetime | None) -> x509.Certificate:
    """Return the certificate at `path` after checking its dates and issuer."""
    leaf, issuer = load_certificate(path), load_certificate(authority)
    check_dates(path, now=now)
    try:
        leaf.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise PkiError(
            f"Expected {path} to be issued by {authority}, got another issuer. It belongs to "
            "another deployment."
        ) from error
    return leaf


def load_certificate(path: Path) -> x509.Certificate:
    """Read a certificate (PEM)."""
    try:
        with report_os_errors(PkiError, f"Cannot read certificate {path}"):
            return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise PkiError(f"Expected a PEM certificate in {path}, got something else.") from error


def load_private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read a private key that only its owner can read."""
    check_private(path)
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise PkiError(f"Expected a private key in {path}, got something else.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise PkiError(f"Expected an EC key in {path}, got {type(key).__name__}.")
    return key


def parse_host(host: str) -> x509.IPAddress | x509.DNSName:
    """Return a host as a certificate names it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
