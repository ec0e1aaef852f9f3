"""Build the page of a certificate, which prints on a sheet of A4.

The page shows the facts of `certificate.json`. It is not signed itself, and says so.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from parley.certificate.certificate_statement import (
    CertificateStatement,
    CertifiedGuarantee,
    ComputedWork,
)
from parley.certificate.verification import verify_certificate
from parley.client.algorithms.registry import get_title
from parley.presentation.disclosure_tables import build_attacker_table
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
from parley.server.jobs.section_registry import MODELS
from parley.server.statements import guarantee_text
from parley.server.statements.guarantee_text import Fact
from parley.server.statements.number_format import format_epsilon

_MAX_COLUMN_TEXT = 240
"""Length of the names of columns on the page, which is one sheet."""


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
            f"Run {facts.run_id} · issued {_format_minute(facts.issued)} UTC · "
            f"Parley {facts.parley_version} · status: {facts.status}"
        ),
        headline="Privacy certificate"
        + (" of a simulation" if is_in_process(facts.engine) else ""),
        lede=_describe_run(facts),
        sections=[
            _build_work_section(facts),
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


def _build_work_section(facts: CertificateStatement) -> Section:
    """Return what was computed, in the schema's names."""
    rounds = f"{facts.rounds_done} of {facts.rounds} {format_noun(facts.rounds, 'round')}"
    stated = [Fact("Algorithm", f"{get_title(facts.algorithm)}, {rounds}")]
    if (work := facts.work) is not None:
        title = MODELS[work.model].title if work.model in MODELS else work.model
        stated = [
            Fact("Model", f"{title}, predicts {work.label}" if work.label else title),
            Fact("Computed from", _format_columns(work)),
            *stated,
            Fact("Released", format_period(work)),
        ]
    return build_section("What was computed", Facts(stated))


def format_period(work: ComputedWork) -> str:
    """Return when the run released, to the minute.

    >>> times = {"first_release": "2026-11-27T08:05:32+00:00"}
    >>> format_period(ComputedWork(model="", last_release="2026-11-28T09:00:00+00:00", **times))
    '2026-11-27 08:05 to 2026-11-28 09:00 UTC'
    """
    first, last = map(_format_minute, (work.first_release, work.last_release))
    return f"{first} UTC" if first == last else f"{first} to {last} UTC"


def _format_minute(time: str) -> str:
    return datetime.fromisoformat(time).astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def _format_columns(work: ComputedWork) -> str:
    if work.columns is None:
        return "columns that this run's server does not know: each party has the schema"
    shown, used = [], 0
    for name in work.columns:
        used += len(name) + 2
        if used > _MAX_COLUMN_TEXT:
            break
        shown.append(name)
    count = work.column_count or 0
    columns = f"{count:,} {format_noun(count, 'column')}"
    if not shown:
        return columns
    rest = f" and {count - len(shown):,} more" if count > len(shown) else ""
    return f"{columns}: {', '.join(shown)}{rest}"


def _describe_run(facts: CertificateStatement) -> str:
    """Return who computed and where, in two sentences."""
    parties = f"{facts.parties} {format_noun(facts.parties, 'party')}"
    place = "Each party kept its records on its own machine"
    if is_in_process(facts.engine):
        place = "This was a simulation: one process held all records"
    return f"{parties} trained one model. {place}."


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
    for row in guarantee.accounts:
        if row.adversary.words != guarantee.adversary.words:
            loss = "no bound is proved"
            if row.epsilon is not None:
                loss = guarantee_text.format_epsilon_delta(row.epsilon, row.delta)
            rows.append([row.adversary.words, loss, "computed by the run"])
    adversaries = Table(
        caption="Whom the promise protects against",
        head=["Adversary", "Privacy loss", "Source"],
        rows=rows,
    )
    rates = None
    if guarantee.found is not None:
        rates = build_attacker_table(guarantee.found, guarantee, guarantee.adversary)
        rates = replace(rates, head=[heading.capitalize() for heading in rates.head])
    assumed = guarantee.assumptions
    return build_section(
        f"Promise: ε = {format_epsilon(guarantee.epsilon)}",
        Text(f"{charged}, {guarantee_text.format_scope(guarantee)}."),
        adversaries,
        rates,
        Text("The promise assumes:") if assumed else None,
        Items(assumed) if assumed else None,
    )
