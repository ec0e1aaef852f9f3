"""Build the page of a certificate, which prints on a sheet of A4.

The page shows the facts of `certificate.json`. It is not signed itself, and says so.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from parley.certificate.certificate_statement import CertificateStatement, CertifiedGuarantee
from parley.certificate.verification import verify_certificate
from parley.presentation.document import (
    Code,
    Document,
    Facts,
    Items,
    Section,
    Table,
    Text,
    build_section,
)
from parley.safe_io.file_reading import read_bytes
from parley.safe_io.plurals import format_noun
from parley.server.jobs.run_section import is_in_process
from parley.server.statements import attacker_text, guarantee_text
from parley.server.statements.guarantee_text import Fact
from parley.server.statements.number_format import format_epsilon


def build_certificate_document(certificate: Path) -> Document:
    """Verify a certificate file and build its page, which prints on one sheet.

    Raises:
        CertificateError: a check failed.
    """
    verified = verify_certificate(certificate).certificate
    facts, name = verified.statement, certificate.name
    digests = (
        Fact("Signed by (Ed25519)", verified.signer),
        Fact(f"SHA-256 of {name}", hashlib.sha256(read_bytes(certificate)).hexdigest()),
        Fact("SHA-256 of the model", facts.model_sha256),
        Fact("SHA-256 of the job", facts.job_sha256),
        Fact("Head of the ledger", facts.ledger_head.hash),
    )
    return Document(
        overline=(
            f"Run {facts.run_id} · issued {facts.issued} · Parley {facts.parley_version} · status: "
            f"{facts.status}"
        ),
        headline="Privacy certificate"
        + (" of a simulation" if is_in_process(facts.engine) else ""),
        lede=_describe_run(facts),
        sections=[
            *map(_build_guarantee_section, facts.guarantees),
            build_section(
                "What the certificate cannot show",
                Text("For these you trust the signer:"),
                Items(_list_limits(facts)),
            ),
            build_section(
                "Signature",
                Text(
                    f"This page is not signed. It shows the facts of `{name}`, which is. Check "
                    "that file offline, with the signer's key from a source that you trust:"
                ),
                Code(f"parley certificate verify {name} --signer {verified.signer}"),
                Facts(digests),
            ),
        ],
        sheet=True,
    )


def _describe_run(facts: CertificateStatement) -> str:
    """Return what was computed and where, in two sentences."""
    parties = f"{facts.parties} {format_noun(facts.parties, 'party')}"
    rounds = f"{facts.rounds_done} of {facts.rounds} {format_noun(facts.rounds, 'round')}"
    place = (
        "This was a simulation: one process held all records"
        if is_in_process(facts.engine)
        else "Each party kept its records on its own machine"
    )
    return f"{parties} trained one model by {facts.algorithm}, {rounds}. {place}."


def _list_limits(facts: CertificateStatement) -> list[str]:
    """Return what no certificate can show, so that readers know what they trust the signer for."""
    limits = [
        "that these are all releases ever made from the records",
        "that the noise was drawn as the entries state",
        "the privacy losses that the run computed",
    ]
    if facts.rounds_done < facts.rounds:
        limits.append(
            f"that no answer decided to stop after round {facts.rounds_done}: ε is stated "
            f"{guarantee_text.FIXED_RELEASES_NOTE}"
        )
    return limits


def _build_guarantee_section(guarantee: CertifiedGuarantee) -> Section:
    """Return one unit's guarantee: its adversaries, an attacker's rates, its assumptions."""
    charged = guarantee_text.format_epsilon_delta(guarantee.epsilon, guarantee.delta)
    rows = [[guarantee.adversary_text, charged, "charged and checked from the entries"]]
    rows += [
        [
            row.adversary.words,
            "no bound is proved"
            if row.epsilon is None
            else guarantee_text.format_epsilon_delta(row.epsilon, row.delta),
            "computed by the run",
        ]
        for row in guarantee.accounts
        if row.adversary.words != guarantee.adversary.words
    ]
    adversaries = Table(
        caption="Whom the promise protects against",
        head=["Adversary", "Privacy loss", "Source"],
        rows=rows,
    )
    rates = None if guarantee.found is None else Table(
        caption=attacker_text.format_caption(
            guarantee.found, guarantee.unit, guarantee.neighbouring, guarantee.adversary
        ),
        head=[heading.capitalize() for heading in attacker_text.HEADER],
        rows=attacker_text.build_rows(guarantee.found, guarantee.unit),
    )  # fmt: skip
    assumed = guarantee.assumptions
    return build_section(
        f"Promise: ε = {format_epsilon(guarantee.epsilon)}",
        Text(f"{charged}, {guarantee_text.format_scope(guarantee)}."),
        adversaries,
        rates,
        Text("The promise assumes:") if assumed else None,
        Items(assumed) if assumed else None,
    )
