"""Decide who may call a deployment's server, by comparing client certificates with the roster.

A party's certificate contains the party's name and the fingerprint of its Ed25519 identity. Both
must match the current roster. The certificate of a removed party, or of a replaced identity, is
refused. It does not help that the authority once signed it and that it has not expired.
"""

from __future__ import annotations

from pathlib import Path

from parley.client.contract.roster import Deployment, RosterParty
from parley.deploy.certificate_checks import parse_subject
from parley.deploy.certificate_making import certify, make_client_request
from parley.deploy.private_files import PkiError
from parley.safe_io.error_translation import translate_errors
from parley.safe_io.file_writing import write_file
from parley.secure_agg.primitives import digest

_PARTY, _OPERATOR = "party", "operator"
_TAG = b"parley/identity-fingerprint"


class NotAdmitted(Exception):
    """A caller that is not authorized. The text contains what was expected and found, all of it
    public.
    """


def compute_fingerprint(identity: bytes) -> str:
    """Return the 64 hex digits that name an identity."""
    return digest(_TAG, identity).hex()


def certify_party(request: bytes, party: RosterParty, *, authority: Path) -> bytes:
    """Return the certificate of a party of the roster, signed with the key in the authority's
    folder.
    """
    serial = compute_fingerprint(party.identity)
    return certify(request, role=_PARTY, name=party.name, serial=serial, authority=authority)


def make_operator(home: Path, name: str, *, authority: Path) -> None:
    """Create an operator's key and certificate, `operator.key` and `operator.pem`, in `home`."""
    asked = make_client_request(home / "operator.key")
    pem = certify(asked, role=_OPERATOR, name=name, authority=authority)
    write_file(home / "operator.pem", pem)


def admit_party(deployment: Deployment, pem: bytes) -> int:
    """Return the index of the party that a certificate names. TLS has checked its issuer and dates.

    Raises:
        NotAdmitted: the certificate is for another role, or its party or identity is not in the
            roster.
    """
    role, name, serial = _parse_subject(pem)
    if role != _PARTY:
        raise NotAdmitted(f"Expected a party's certificate, got one for {role or 'no role'}.")
    for index, party in enumerate(deployment.parties):
        if party.name == name:
            if compute_fingerprint(party.identity) == serial:
                return index
            raise NotAdmitted(
                f"The certificate of {party.name} is for another identity than the roster's. It is "
                "older than the party's keys, or belongs to another party."
            )
    raise NotAdmitted(f"The roster of {deployment.id[:16]}… has no party {name[:63]}.")


def admit_operator(pem: bytes) -> str:
    """Return the operator's name in a certificate; raise NotAdmitted if it is for another role."""
    role, name, _ = _parse_subject(pem)
    if role != _OPERATOR:
        raise NotAdmitted(f"Expected an operator's certificate, got one for {role or 'no role'}.")
    return name


def _parse_subject(pem: bytes) -> tuple[str, str, str]:
    with translate_errors(PkiError, NotAdmitted):
        found = parse_subject(pem)
    return found["role"], found["name"], found["serial"]
