"""Who may call a deployment's server: what a client's certificate says, held against the roster.

A party's certificate names the party and the fingerprint of its Ed25519 identity. Both must be the
roster's of today: the certificate of a party that was removed, or whose identity was made anew, is
refused although the authority once signed it and it has not expired.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from parley.client.contract.roster import Deployment, RosterParty
from parley.deploy.pki import certify, client_request, common_subject
from parley.deploy.private_files import PkiError
from parley.secure_agg.primitives import digest

PARTY, OPERATOR = "party", "operator"
_TAG = b"parley/identity-fingerprint"


class NotAdmitted(Exception):
    """Who calls is not who may: what was expected and what came, all of it public."""


@dataclass(frozen=True, kw_only=True)
class _Subject:
    role: str
    name: str
    serial: str


def fingerprint(identity: bytes) -> str:
    """64 hex digits that name an identity."""
    return digest(_TAG, identity).hex()


def certify_party(asked: bytes, party: RosterParty, *, authority: Path) -> bytes:
    """The certificate of a party of the roster, signed in the folder of the authority."""
    return certify(
        asked,
        role=PARTY,
        name=party.name,
        serial=fingerprint(party.identity),
        authority=authority / "ca.crt",
        authority_key=authority / "ca.key",
    )


def certify_operator(asked: bytes, name: str, *, authority: Path) -> bytes:
    """The certificate of an operator."""
    return certify(
        asked,
        role=OPERATOR,
        name=name,
        serial="",
        authority=authority / "ca.crt",
        authority_key=authority / "ca.key",
    )


def make_operator(home: Path, name: str, *, authority: Path) -> None:
    """Makes an operator's key and certificate, `operator.key` and `operator.pem` in `home`."""
    asked = client_request(home / "operator.key")
    (home / "operator.pem").write_bytes(certify_operator(asked, name, authority=authority))


def admit_party(deployment: Deployment, pem: bytes) -> int:
    """The index of the party whose certificate it is; TLS has checked its authority and its dates.

    Raises:
        NotAdmitted: another role's, or of a party or an identity that is not in the roster.
    """
    subject = _subject(pem)
    if subject.role != PARTY:
        raise NotAdmitted(f"Expected a party's certificate, got one for {subject.role or 'none'}.")
    for index, party in enumerate(deployment.parties):
        if party.name == subject.name:
            if fingerprint(party.identity) == subject.serial:
                return index
            raise NotAdmitted(
                f"The certificate of {party.name} is for another identity than the roster's: it "
                "is older than the party's keys, or another party's."
            )
    raise NotAdmitted(f"The roster of {deployment.id[:16]}… has no party {subject.name[:63]}.")


def admit_operator(pem: bytes) -> str:
    """The name of the operator whose certificate it is.

    Raises:
        NotAdmitted: another role's.
    """
    subject = _subject(pem)
    if subject.role != OPERATOR:
        raise NotAdmitted(
            f"Expected an operator's certificate, got one for {subject.role or 'none'}."
        )
    return subject.name


def admit_anyone(deployment: Deployment, pem: bytes) -> str:
    """The name of the operator, or of the party of the roster, whose certificate it is.

    Raises:
        NotAdmitted: it is nobody's of these.
    """
    if _subject(pem).role == OPERATOR:
        return admit_operator(pem)
    return deployment.parties[admit_party(deployment, pem)].name


def _subject(pem: bytes) -> _Subject:
    try:
        found = common_subject(pem)
    except PkiError as error:
        raise NotAdmitted(str(error)) from error
    return _Subject(**{word: found.get(word, "") for word in ("role", "name", "serial")})
