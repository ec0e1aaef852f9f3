"""Define a certificate's statement, its canonical text, and its signature.

    signature = Ed25519("parley-certificate-1" ‖ 0 ‖ canonical JSON of the statement)

The statement binds the digests of model and job, and the head of the ledger's chain. For each unit
of privacy it binds the composition of all entries with ε at δ. The file has exactly one valid text.
The reader renders it again and compares every byte, so no byte can be changed, not even a space. No
value of a record, no path and no party is named in it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from parley.privacy.accounting.threat_model import Adversary, Neighbouring, Unit
from parley.privacy.ledger.hash_chain import encode_canonical_json
from parley.safe_io.file_reading import decode_text
from parley.safe_io.json_writing import format_json
from parley.safe_io.os_errors import describe_cause
from parley.secure_agg.primitives import derive_signing_public_key, is_valid_signature, sign
from parley.server.records.guarantee_facts import AdversaryAccount, AttackerRate
from parley.server.records.json_record import JsonRecord, JsonRecordError
from parley.server.records.run_summary import LedgerHead

_TAG = b"parley-certificate-1\x00"
_MAX_BYTES = 1 << 22
MAX_NAMED = 1000
"""Maximum number of columns that a certificate names."""


class CertificateError(ValueError):
    """A certificate that cannot be issued, or that is not valid."""


class CertifiedGuarantee(JsonRecord):
    """The charges for one unit of privacy.

    Attributes:
        epsilon, delta: Charged values, by the named conversion, against `adversary`.
        colluders: Maximum number of parties that collude with the server; None if the noise is one
            trusted server's.
        accounts: Values against the other adversaries, as the run computed them.
        assumptions: Assumptions beyond the proof.
        found: How often an attacker recognises one unit and groups, from the entries.
    """

    unit: Unit
    neighbouring: Neighbouring
    epsilon: float = Field(gt=0)
    delta: float = Field(ge=0, lt=1)
    conversion: str
    adversary: Adversary
    colluders: int | None = Field(ge=0)
    spent: dict[str, Any]
    accounts: tuple[AdversaryAccount, ...]
    assumptions: tuple[str, ...]
    found: tuple[AttackerRate, ...] | None = None

    @property
    def adversary_text(self) -> str:
        """The charged adversary, with the number of parties that may collude."""
        if self.adversary is Adversary.COLLUDERS and self.colluders is not None:
            return f"{self.adversary.words} (at most {self.colluders})"
        return self.adversary.words


def _check_time(text: str) -> str:
    if datetime.fromisoformat(text).astimezone(UTC).isoformat(timespec="seconds") != text:
        raise ValueError("Expected a time in UTC to the second")
    return text


_Time = Annotated[
    str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$"), AfterValidator(_check_time)
]


class ComputedWork(JsonRecord):
    """What a run computed, in names of its public schema. It holds no value of a record.

    Attributes:
        model: kind of the model, or the name of the user's own.
        label: column that the model predicts; None if it predicts none, or no schema is known.
        columns: names of the columns that are read, without the label; the first `MAX_NAMED` of
            `column_count`. None if the run folder has no schema, as a server's has not.
        first_release, last_release: UTC, ISO 8601; the times in the ledger at which the run's first
            entry was reserved and its last one settled.
    """

    model: str
    label: str | None = None
    columns: tuple[str, ...] | None = None
    column_count: int | None = Field(None, ge=0)
    first_release: _Time
    last_release: _Time


class CertificateStatement(JsonRecord):
    """The certified facts of a run.

    Attributes:
        work: What was computed; None in certificates from before it was stated.
        engine: Engine of the run; "fast" and "flower" are simulations in one place.
        rounds_done: Rounds done, out of `rounds`; `status` is how the run ended.
    """

    format: Literal["parley-certificate-1"] = "parley-certificate-1"
    issued: str
    parley_version: str
    run_id: str
    engine: str
    status: str
    algorithm: str
    parties: int
    rounds: int
    rounds_done: int
    model_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    job_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    ledger_head: LedgerHead
    work: ComputedWork | None = None
    guarantees: tuple[CertifiedGuarantee, ...] = Field(min_length=1)

    def encode_message(self) -> bytes:
        """Return the bytes that are signed."""
        return _TAG + encode_canonical_json(self.to_json()).encode("ascii")


class SignedCertificate(JsonRecord):
    """A statement, the signer's Ed25519 public key, and the signature, in hex."""

    statement: CertificateStatement
    signer: str = Field(pattern=r"^[0-9a-f]{64}$")
    signature: str = Field(pattern=r"^[0-9a-f]{128}$")

    def to_text(self) -> str:
        """Return the content of the file."""
        return format_json(self.to_json(), indent=2) + "\n"


def sign_statement(statement: CertificateStatement, private: bytes) -> SignedCertificate:
    """Sign the statement with an Ed25519 key of 32 bytes."""
    return SignedCertificate(
        statement=statement,
        signer=derive_signing_public_key(private).hex(),
        signature=sign(private, statement.encode_message()).hex(),
    )


def parse_certificate(content: bytes, where: object) -> SignedCertificate:
    """Parse a certificate file and verify its signature with the key that it names.

    Raises:
        CertificateError: it is not a certificate, has another version, or was changed.
    """
    if len(content) > _MAX_BYTES:
        raise CertificateError(f"{where}: Expected a certificate, got {len(content)} bytes.")
    try:
        certificate = SignedCertificate.parse(decode_text(content, where), where)
    except (JsonRecordError, OSError) as error:
        raise CertificateError(
            f"{where}: not a certificate of this version: {describe_cause(error)}"
        ) from error
    if certificate.to_text().encode("utf-8") != content:
        raise CertificateError(
            f"{where}: Expected the text that Parley writes, got another: the certificate was "
            "changed."
        )
    public, signature = bytes.fromhex(certificate.signer), bytes.fromhex(certificate.signature)
    if not is_valid_signature(public, signature, certificate.statement.encode_message()):
        raise CertificateError(
            f"{where}: Expected a signature by key {certificate.signer}, got another: "
            "the certificate was changed, or another key signed it."
        )
    return certificate
