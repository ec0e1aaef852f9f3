"""Issue the certificate of a run that ended, from its folder and its ledger."""

from __future__ import annotations

import hashlib
import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from parley.certificate.certificate_statement import (
    MAX_NAMED,
    CertificateError,
    CertificateStatement,
    CertifiedGuarantee,
    ComputedWork,
    SignedCertificate,
    sign_statement,
)
from parley.client.data.schema import Schema
from parley.client.own_code.own_code_names import get_public_name
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.rounding import format_exact
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.hash_chain import ChainHead
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.recorded_entries import EntryState
from parley.safe_io.file_reading import MAX_MODEL_BYTES, open_regular_file
from parley.server.records.guarantee_costs import compute_attacker_rates
from parley.server.records.guarantee_facts import GuaranteeSummary
from parley.server.records.run_folder import RunFolder
from parley.server.records.run_folder_opening import locate_ledger, open_run_folder
from parley.server.records.run_reader import read_summary
from parley.server.records.run_summary import LedgerHead, RunSummary
from parley.server.statements import guarantee_text
from parley.version import __version__


def load_signing_key(path: Path) -> bytes:
    """Load the Ed25519 key in a file (64 hex digits). If it is missing, create it for its owner
    only.

    Raises:
        CertificateError: the file contains something else, or other users may read it.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        private = secrets.token_bytes(32)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "w", encoding="ascii") as opened:
            opened.write(private.hex() + "\n")
        return private
    if path.stat().st_mode & 0o077:
        raise CertificateError(
            f"Expected a key that only its owner may read. Run chmod 600 {path}."
        )
    try:
        private = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except ValueError:
        private = b""
    if len(private) != 32:
        raise CertificateError(f"Expected an Ed25519 key of 64 hex digits in {path}.")
    return private


def compute_file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    try:
        with open_regular_file(path, max_bytes=MAX_MODEL_BYTES) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise CertificateError(f"Expected {path.name} in {path.parent}, got none.") from error


@dataclass(frozen=True, kw_only=True)
class RecordedCharges:
    """A run's charges per unit, and the times of its first and its last entry."""

    spent: dict[Unit, Composition]
    first: str
    last: str


def load_charges(ledger_path: str | Path, run_id: str, head: LedgerHead) -> RecordedCharges:
    """Return a run's charges, from an intact ledger that contains the head.

    Raises:
        CertificateError: the ledger is not intact.
    """
    spent: dict[Unit, Composition] = {}
    times: list[str] = []
    with Ledger.open(ledger_path, create=False, read_only=True) as ledger:
        if problems := ledger.verify(anchor=ChainHead(records=head.records, hash=head.hash)):
            raise CertificateError(f"Expected a valid ledger for {run_id}, got: {problems[0]}")
        # Read the whole verified log: the file's index is not verified and could omit entries.
        for recorded in ledger.list_entries():
            if recorded.entry.run_id == run_id and recorded.state is not EntryState.VOIDED:
                unit = recorded.entry.key.unit
                spent[unit] = spent.get(unit, Composition()).add(recorded.entry.event)
                times += [recorded.reserved_at, recorded.settled_at or recorded.reserved_at]
    # Times of ISO 8601 in UTC are in order as texts.
    return RecordedCharges(spent=spent, first=min(times, default=""), last=max(times, default=""))


def describe_work(folder: RunFolder, summary: RunSummary, charges: RecordedCharges) -> ComputedWork:
    """Return what a run computed, from its folder and its ledger."""
    text, source = folder.schema, str(folder.path / "schema.toml")
    schema = Schema.from_toml(text, source=source) if text else None
    return ComputedWork(
        model=get_public_name(summary.model),
        label=next(iter(schema.labels), None) if schema else None,
        columns=tuple(schema.features)[:MAX_NAMED] if schema else None,
        column_count=len(schema.features) if schema else None,
        first_release=_cut_to_seconds(charges.first),
        last_release=_cut_to_seconds(charges.last),
    )


def _cut_to_seconds(time: str) -> str:
    return datetime.fromisoformat(time).isoformat(timespec="seconds")


def issue_certificate(run: Path, private: bytes, *, ledger: str | None = None) -> SignedCertificate:
    """Issue the certificate of a run: build its statement and sign it."""
    return sign_statement(build_statement(run, ledger=ledger), private)


def build_statement(run: Path, *, ledger: str | None = None) -> CertificateStatement:
    """Return the certified facts of a run.

    Args:
        ledger: Path or URL of its ledger, if its job names a URL.

    Raises:
        CertificateError: the run did not end, its noise was seeded, its ledger is not intact, or
            the entries do not prove the run's figures.
    """
    folder, job = open_run_folder(run)
    summary = read_summary(run)
    if summary is None or summary.ledger_head is None:
        raise CertificateError(f"Expected a run that ended, got {run}, which has no summary.")
    if any(of.noise.seeded is not False for of in summary.guarantees):
        raise CertificateError(
            "Expected noise from the operating system's entropy, got seeded noise. It protects no "
            "one, so there is nothing to certify."
        )
    place = locate_ledger(run, job, given=ledger)
    charges = load_charges(place, folder.run_id, summary.ledger_head)
    return CertificateStatement(
        issued=datetime.now(UTC).isoformat(timespec="seconds"),
        parley_version=__version__,
        run_id=folder.run_id,
        engine=summary.engine,
        status=summary.status,
        algorithm=summary.algorithm,
        parties=summary.parties,
        rounds=summary.rounds,
        rounds_done=summary.rounds_done,
        model_sha256=compute_file_digest(run / "model.safetensors"),
        job_sha256=compute_file_digest(run / "job.toml"),
        ledger_head=summary.ledger_head,
        guarantees=tuple(_build_guarantee(summary, of, charges.spent) for of in summary.guarantees),
        work=describe_work(folder, summary, charges),
    )


def _build_guarantee(
    summary: RunSummary, guarantee: GuaranteeSummary, spent: dict[Unit, Composition]
) -> CertifiedGuarantee:
    own = spent.get(guarantee.unit, Composition())
    conversion, epsilon = own.compute_lowest_epsilon(guarantee.delta)
    if not own.releases or conversion == "none":
        raise CertificateError(
            f"Expected entries of {summary.run_id} for one {guarantee.unit} with a finite ε at δ = "
            f"{format_exact(guarantee.delta)}, got {own.releases} without one."
        )
    return CertifiedGuarantee(
        unit=guarantee.unit,
        neighbouring=guarantee.neighbouring,
        epsilon=epsilon,
        delta=guarantee.delta,
        conversion=conversion,
        adversary=guarantee_text.get_charged_adversary(guarantee),
        colluders=None if guarantee.noise.shares is None else guarantee.noise.shares.colluders,
        spent=own.to_json(),
        accounts=tuple(row for row in guarantee.accounts if not row.charged),
        assumptions=("not known",) if guarantee.assumptions is None else guarantee.assumptions,
        found=compute_attacker_rates(own),
    )
