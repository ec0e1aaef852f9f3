"""Export a certified run as an entry of the public registry of DP deployments
(registry.opendp.org).

The keys are those of `schemas/deployments-schema.yaml` in opendp/deployments-registry-data (commit
057e5d81), after Nanayakkara, Ghazi & Vadhan 2025 (arXiv:2509.13509). Facts of the run are filled in
with the words of its report. Its curators provide the others in a file (`RegistryAbout`). An entry
is JSON, which YAML can read. It is a draft, which the registry's board reviews.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from parley.certificate.certificate_statement import (
    CertificateError,
    CertificateStatement,
    CertifiedGuarantee,
)
from parley.presentation import result_text
from parley.presentation.disclosure_tables import build_disclosure_table
from parley.presentation.run_paragraphs import (
    describe_noise,
    describe_public_facts,
    describe_secure_sum,
    format_algorithm_name,
    list_trust_assumptions,
)
from parley.privacy.accounting.rounding import format_rounded_up
from parley.privacy.accounting.threat_model import Unit
from parley.safe_io.json_writing import format_json
from parley.safe_io.os_errors import describe_cause
from parley.safe_io.plurals import format_noun
from parley.safe_io.toml_reading import load_toml
from parley.server.jobs.run_section import is_in_process
from parley.server.records.json_record import JsonRecord, JsonRecordError
from parley.server.records.run_summary import RunSummary
from parley.server.statements import attack_rate_text
from parley.server.statements.guarantee_text import (
    FIXED_RELEASES_NOTE,
    conversion,
    format_account,
    format_epsilon_delta,
    format_relation,
    format_scope,
)


class Curator(JsonRecord):
    """An organisation that publishes the model."""

    data_curator_name: str = Field(min_length=1)
    data_curator_type: Literal["Government", "Industry", "Nonprofit"]


class RegistryAbout(JsonRecord):
    """Facts that are not part of a run; the keys are the registry's.

    Attributes:
        publication_date: YYYY-MM-DD.
        registry_authors: Authors of the entry.
        justification: Reason for these parameters.
    """

    name: str = Field(min_length=1)
    data_curators: tuple[Curator, ...] = Field(min_length=1)
    description: str = Field(min_length=1)
    intended_use: str = Field(min_length=1)
    data_product_region: str = Field(min_length=1)
    data_product_sector: (
        Literal["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"] | None
    ) = None
    publication_date: str = Field(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$")
    registry_authors: tuple[str, ...] = Field(min_length=1)
    justification: str | None = None


def read_about(path: Path) -> RegistryAbout:
    """Read the TOML file with the facts that are not part of a run.

    Raises:
        CertificateError: it is not TOML, or a key is missing, unknown or of another kind.
    """
    try:
        return RegistryAbout.parse(format_json(load_toml(path)), path)
    except OSError as error:
        raise CertificateError(f"Cannot read {path}: {describe_cause(error)}.") from error
    except tomllib.TOMLDecodeError as error:
        raise CertificateError(f"{path} is not TOML: {error}.") from error
    except JsonRecordError as error:
        said = str(error).replace("as JSON ", "")
        raise CertificateError(f"{said} examples/about.toml has all keys.") from error


def build_entry(
    statement: CertificateStatement, run: RunSummary, about: RegistryAbout
) -> dict[str, Any]:
    """Return the registry's entry of a run, with ε from its certified statement."""
    basic = about.to_json()
    authors, justification = basic.pop("registry_authors"), basic.pop("justification", None)
    basic["data_product_type"] = "Synthetic data" if run.synthetic else "Machine learning model"
    slug = re.sub(r"[^a-z0-9]+", "-", about.name.lower()).strip("-")
    deployment = {
        "basic": basic,
        "dp_variant": {
            "variant_name": "Approximate DP" if statement.guarantees[0].delta else "Pure DP",
            "data_domain": (
                "Records that follow the run's public schema. Values outside its ranges are "
                "clamped; a category outside its lists counts as none of them."
            ),
            "unprotected_quantities": describe_public_facts(run),
        },
        "privacy_loss": _build_loss(statement.guarantees, run),
        "deployment_model": _build_model(run),
        "implementation": _build_implementation(statement, run, justification),
        "administrative": {"status": "Draft", "registry_authors": authors, "tier": 3},
    }
    return {"url_slug": slug, "deployment": deployment}


def _build_loss(guarantees: tuple[CertifiedGuarantee, ...], run: RunSummary) -> dict[str, Any]:
    """Return the first guarantee as numbers, and all guarantees in words."""
    first = guarantees[0]
    figures = {"epsilon": first.epsilon, "delta": first.delta}
    counted = {"number_of_privacy_units": run.parties} if first.unit is Unit.PARTY else {}
    return counted | {
        "privacy_unit": first.unit.words,
        "privacy_unit_details": "; ".join(format_relation(of) for of in guarantees),
        "privacy_parameters": {k: float(format_rounded_up(v)) for k, v in figures.items() if v},
        "privacy_parameters_details": _format_list(
            line for of in guarantees for line in _list_parts(of)
        ),
    }


def _list_parts(guarantee: CertifiedGuarantee) -> Iterator[str]:
    stated = (
        f"{format_epsilon_delta(guarantee.epsilon, guarantee.delta)}, {format_scope(guarantee)}"
    )
    yield (
        f"{stated}: charged, against {guarantee.adversary.words} (by "
        f"{conversion(guarantee.conversion)})"
    )
    for row in guarantee.accounts:
        yield (f"{format_account(row)}, {format_scope(guarantee)}: against {row.adversary.words}")
    if guarantee.found:
        yield f"An attacker {attack_rate_text.format_attack(guarantee.found, guarantee.unit)}"


def _build_model(run: RunSummary) -> dict[str, str]:
    simulated = is_in_process(run.engine)
    seen = [row for of in run.guarantees for row in build_disclosure_table(run, of).rows]
    where = "This run was a simulation in one place. " if simulated else ""
    return {
        "model_name": "Federated",
        "model_name_details": f"{where}{describe_secure_sum(run, simulated=simulated)}",
        "trust_assumptions": _format_list(list_trust_assumptions(run, simulated=simulated)),
        "actors": _format_list(
            f"{who}: sees {sees}; can learn: {learns}" for who, sees, learns in seen
        ),
        "release_type": "One release",
        "release_type_details": (
            f"The models of all {run.rounds_done} rounds are covered by the same account. Every "
            "later release from the same records adds to it."
        ),
        "data_source_type": "Static",
        "access_type": "Non-interactive",
    }


def _build_implementation(
    statement: CertificateStatement, run: RunSummary, justification: str | None
) -> dict[str, str]:
    entries = " and ".join(f"{of.spent['releases']} per {of.unit}" for of in statement.guarantees)
    head = statement.ledger_head
    measured = [result_text.format_evaluation(run), result_text.format_public_test(run)]
    found = {
        "preprocessing_and_hyperparameter_tuning": (
            "Columns, ranges and categories come from a public schema, settings from the job. The "
            "account includes every release of this run from the records. It does not include "
            "other uses of the records before the run."
        ),
        "mechanisms": _format_list(describe_noise(run, of) for of in run.guarantees)
        + "\n\nThe noise is drawn from the operating system's entropy; sums are taken of "
        f"integers modulo 2^{run.secure_aggregation.ring_bits}. Parley {statement.parley_version}.",
        "composition": (
            f"Releases ({entries}) are those of one plan. ε is stated {FIXED_RELEASES_NOTE}, by "
            "the lowest bound of the accountants that are proved for them; each release may depend "
            "on earlier results. A ledger reserves each before it is made."
        ),
        "post_processing": "Models are computed only from noisy sums.",
        "justification": justification or "",
        "utility": "; ".join(filter(None, measured)),
        "additional_information": f"{format_algorithm_name(run)}, {run.parties} "
        f"{format_noun(run.parties, 'party')}, run {statement.run_id}, {statement.status}. SHA-256 "
        f"of the model {statement.model_sha256}, of the job {statement.job_sha256}; head of the "
        f"ledger's chain {head.hash} after {head.records} {format_noun(head.records, 'record')}.",
    }
    return {key: text for key, text in found.items() if text}


def _format_list(texts: Any) -> str:
    """Return a Markdown list, which the registry shows, with each text once."""
    return "\n".join(f"- {text}" for text in dict.fromkeys(texts))
