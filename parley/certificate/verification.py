"""Verify a certificate, and list what it proves and what it leaves open.

Offline, this checks the signature, and ε from the entries. With the run's folder it also checks
model, job and ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from parley.certificate.certificate_statement import (
    CertificateError,
    CertifiedGuarantee,
    SignedCertificate,
    parse_certificate,
)
from parley.certificate.issuance import compute_file_digest, describe_work, load_charges
from parley.privacy.accounting.attack_power import GROUP_SIZES
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.rounding import format_rounded_up
from parley.safe_io.file_reading import read_bytes
from parley.safe_io.os_errors import report_os_errors
from parley.server.records.guarantee_costs import compute_attacker_rates
from parley.server.records.run_folder_opening import locate_ledger, open_run_folder
from parley.server.records.run_reader import read_summary
from parley.server.statements import attack_rate_text
from parley.server.statements.guarantee_text import (
    FIXED_RELEASES_NOTE,
    format_epsilon_delta,
    format_scope,
)

_RELATIVE_TOLERANCE = 1e-9
"""Relative tolerance between the accountants of two machines."""


@dataclass(frozen=True, kw_only=True)
class VerificationResult:
    """The result of a verification. A failed check raises an error instead.

    Attributes:
        confirmed: Checked statements that hold.
        unchecked: Statements that were not, or cannot be, checked here.
    """

    certificate: SignedCertificate
    confirmed: tuple[str, ...]
    unchecked: tuple[str, ...]


def verify_certificate(
    file: Path, *, signer: str | None = None, run: Path | None = None, ledger: str | None = None
) -> VerificationResult:
    """Verify a certificate.

    Args:
        signer: The key (hex) that must have signed it.
        run: The run's folder, to compare model, job and ledger.
        ledger: Path or URL of its ledger, if its job names a URL.

    Raises:
        CertificateError: a check failed.
    """
    with report_os_errors(CertificateError, f"Cannot read certificate {file}"):
        content = read_bytes(file)
    certificate = parse_certificate(content, file)
    facts = certificate.statement
    held, left = [f"signed by key {certificate.signer}"], []
    if signer is None:
        left.append(
            "who owns that key: compare it with the signer's key, or name the signer's (--signer)"
        )
    elif signer.lower() != certificate.signer:
        raise CertificateError(f"{file}: Expected the signer {signer}, got {certificate.signer}.")
    for of in facts.guarantees:
        proved, unproved = _check_guarantee(file, of)
        held += proved
        left += [*unproved, *(f"assumed: {each}" for each in of.assumptions)]
    if run is None:
        left.append(
            f"that a model is the certified one (SHA-256 {facts.model_sha256}), its job "
            f"({facts.job_sha256}), its ledger, and that this was computed: name the run's folder "
            "(--run)"
        )
    else:
        held += _check_run_folder(file, certificate, run, ledger)
        if facts.work is not None and read_summary(run) is None:
            left.append(f"that the certified work was computed: {run} has no summary.json")
    if facts.rounds_done < facts.rounds:
        left.append(
            f"that no answer decided that the run ended after {facts.rounds_done} of "
            f"{facts.rounds} rounds: ε is stated {FIXED_RELEASES_NOTE}"
        )
    left.append(
        "that these entries are all releases ever made from these records, and that the noise was "
        "drawn as they state: the signer vouches for both"
    )
    return VerificationResult(certificate=certificate, confirmed=tuple(held), unchecked=tuple(left))


def _check_guarantee(file: Path, guarantee: CertifiedGuarantee) -> tuple[list[str], list[str]]:
    """Check the certified entries with the installed accountants; return confirmed and unchecked
    texts.
    """
    spent = format_epsilon_delta(guarantee.epsilon, guarantee.delta)
    stated = f"{spent}, {format_scope(guarantee)}, against {guarantee.adversary_text}"
    others = [
        f"{format_epsilon_delta(row.epsilon, row.delta)} for one {guarantee.unit} "
        f"against {row.adversary.words}: the run computed it"
        for row in guarantee.accounts
    ]
    try:
        entries = Composition.from_json(guarantee.spent)
        conversion, epsilon = entries.compute_lowest_epsilon(guarantee.delta)
    except (ValueError, KeyError, TypeError) as error:
        return [], [
            f"{stated}: this version of Parley does not know entries of this kind ({error})"
        ]
    if conversion == "none":
        return [], [f"{stated}: no accountant that is installed here is proved for them", *others]
    if guarantee.epsilon < epsilon * (1 - _RELATIVE_TOLERANCE):
        raise CertificateError(
            f"{file}: Expected at least ε = {format_rounded_up(epsilon)} for the certified entries "
            f"(by {conversion}, unit {guarantee.unit}), got ε = "
            f"{format_rounded_up(guarantee.epsilon)}: the entries cost more than the certificate "
            "claims."
        )
    held = [f"{stated}: {entries.releases} entries give this (by {conversion})"]
    if guarantee.found is None:
        return held, others
    known = compute_attacker_rates(entries)
    claims = [(row.members, row.alarms) for row in guarantee.found]
    if claims != [(row.members, row.alarms) for row in known]:
        raise CertificateError(
            f"{file}: Expected an attacker's success rates for {[*GROUP_SIZES]} together, got "
            "others."
        )
    for claimed, own in zip(guarantee.found, known, strict=True):
        if claimed.rate < own.rate * (1 - _RELATIVE_TOLERANCE):
            raise CertificateError(
                f"{file}: Expected that an attacker recognises {own.members} together in up to "
                f"{attack_rate_text.format_percent(own.rate)}, got "
                f"{attack_rate_text.format_percent(claimed.rate)}: the certificate claims less "
                "than its entries allow."
            )
    told = (
        f"an attacker {attack_rate_text.format_attack(guarantee.found, guarantee.unit)}: "
        "recomputed from these entries"
    )
    return [*held, told], others


def _check_run_folder(
    file: Path, certificate: SignedCertificate, run: Path, ledger_path: str | None
) -> list[str]:
    """Compare model, job and ledger of a run's folder with the certificate."""
    facts, (folder, job) = certificate.statement, open_run_folder(run)
    for name, expected in (
        ("model.safetensors", facts.model_sha256),
        ("job.toml", facts.job_sha256),
    ):
        if (came := compute_file_digest(run / name)) != expected:
            raise CertificateError(
                f"{file}: Expected {name} with SHA-256 {expected}, got {came} in {run}."
            )
    place = locate_ledger(run, job, given=ledger_path)
    charges = load_charges(place, facts.run_id, facts.ledger_head)
    stated = {of.unit: of.spent for of in facts.guarantees}
    if {unit: own.to_json() for unit, own in charges.spent.items()} != stated:
        raise CertificateError(f"{file}: Expected the certified entries in the ledger, got others.")
    held = [
        "model and job are the certified ones",
        "the ledger contains the head and these entries",
    ]
    summary = read_summary(run)
    if facts.work is None or summary is None:
        return held
    if describe_work(folder, summary, charges) != facts.work:
        raise CertificateError(
            f"{file}: Expected the certified model, label, columns and times in {run}, got others."
        )
    return [*held, "the run's folder and ledger have the certified model, columns and times"]
