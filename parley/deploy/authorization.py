"""Who may call a deployment's server: what a client's certificate says, held against the roster.

A party's certificate names the party and the fingerprint of its Ed25519 identity. Both must be the
roster's of today: the certificate of a party that was removed, or whose identity was made anew, is
refused although the authority once signed it and it has not expired.
"""

from __future__ import annotations

from pathlib import Path

from parley.client.contract.roster import Deployment, RosterParty
from parley.deploy.pki import PkiError, certify, make_client_request, parse_subject
from parley.safe_io.file_writing import write_file
from parley.secure_agg.primitives import digest

_PARTY, _OPERATOR = "party", "operator"
_TAG = b"parley/identity-fingerprint"


class NotAdmitted(Exception):
    """Who calls is not who may: what was expected and what came, all of it public."""


def compute_fingerprint(identity: bytes) -> str:
    """64 hex digits that name an identity."""
    return digest(_TAG, identity).hex()


def certify_party(request: bytes, party: RosterParty, *, authority: Path) -> bytes:
    """The certificate of a party of the roster, signed in the folder of the authority."""
    serial = compute_fingerprint(party.identity)
    return certify(request, role=_PARTY, name=party.name, serial=serial, authority=authority)


def make_operator(home: Path, name: str, *, authority: Path) -> None:
    """Makes an operator's key and certificate, `operator.key` and `operator.pem` in `home`."""
    asked = make_client_request(home / "operator.key")
    pem = certify(asked, role=_OPERATOR, name=name, authority=authority)
    write_file(home / "operator.pem", pem)


def admit_party(deployment: Deployment, pem: bytes) -> int:
    """The index of the party whose certificate it is; TLS has checked its authority and its dates.

    Raises:
        NotAdmitted: another role's, or of a party or an identity that is not in the roster.
    """
    role, name, serial = _parse_subject(pem)
    if role != _PARTY:
        raise NotAdmitted(f"Expected a party's certificate, got one for {role or 'none'}.")
    for index, party in enumerate(deployment.parties):
        if party.name == name:
            if compute_fingerprint(party.identity) == serial:
                return index
            raise NotAdmitted(
                f"The certificate of {party.name} is for another identity than the roster's: it "
                "is older than the party's keys, or another party's."
            )
    raise NotAdmitted(f"The roster of {deployment.id[:16]}… has no party {name[:63]}.")


def admit_operator(pem: bytes) -> str:
    """The name of the operator whose certificate it is; NotAdmitted for another role's."""
    role, name, _ = _parse_subject(pem)
    if role != _OPERATOR:
        raise NotAdmitted(f"Expected an operator's certificate, got one for {role or 'none'}.")
    return name


def _parse_subject(pem: bytes) -> tuple[str, str, str]:
    try:
        found = parse_subject(pem)
    except PkiError as error:
        raise NotAdmitted(str(error)) from error
    return found["role"], found["name"], found["serial"]
