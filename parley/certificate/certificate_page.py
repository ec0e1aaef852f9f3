"""Write a certificate as one HTML page that prints on a sheet of A4.

The page shows the facts of `certificate.json`. It is not signed itself, and says so.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from parley.certificate.certificate_statement import CertificateStatement, CertifiedGuarantee
from parley.certificate.verification import verify_certificate
from parley.report.components import ReportTable, write_page
from parley.safe_io.file_reading import read_bytes
from parley.safe_io.plurals import format_noun
from parley.server.jobs.running import is_in_process
from parley.server.records import attacker_text, guarantee_text
from parley.server.records.number_format import format_epsilon


def write_certificate_page(certificate: Path, target: Path) -> None:
    """Verify a certificate file and write its page.

    Raises:
        CertificateError: a check failed.
        OSError: the page cannot be written.
    """
    result = verify_certificate(certificate)
    facts = result.certificate.statement
    write_page(
        target,
        "certificate.html.j2",
        package="parley.certificate",
        facts=facts,
        what=_describe_run(facts),
        guarantees=[_build_guarantee(guarantee) for guarantee in facts.guarantees],
        limits=_list_limits(facts),
        signer=result.certificate.signer,
        file_name=certificate.name,
        file_sha256=hashlib.sha256(read_bytes(certificate)).hexdigest(),
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


def _build_guarantee(guarantee: CertifiedGuarantee) -> dict[str, Any]:
    """Return the texts and tables of one unit's guarantee."""
    charged = guarantee_text.format_epsilon_delta(guarantee.epsilon, guarantee.delta)
    rows = [[guarantee.adversary.words, charged, "charged and checked from the entries"]]
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
    return {
        "epsilon": f"ε = {format_epsilon(guarantee.epsilon)}",
        "scope": f"{charged}, {guarantee_text.format_scope(guarantee)}.",
        "adversaries": ReportTable(
            caption="Whom the promise protects against",
            head=["Adversary", "Privacy loss", "Source"],
            rows=rows,
        ),
        "rates": None
        if guarantee.found is None
        else ReportTable(
            caption=attacker_text.format_caption(
                guarantee.found, guarantee.unit, guarantee.neighbouring, guarantee.adversary
            ),
            head=[heading.capitalize() for heading in attacker_text.HEADER],
            rows=attacker_text.build_rows(guarantee.found, guarantee.unit),
        ),
        "assumptions": guarantee.assumptions,
    }
