"""Define what parties report about themselves before a run, all of it public.

Columns and classes determine the model. Numbers of records are public if one record is replaced by
another and no party is hidden. Then they determine weights and sensitivity. No request computes on
a record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from parley.secure_agg.protocol_parameters import derive_parameters
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError

if TYPE_CHECKING:
    from parley.client.contract.roster import Deployment

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class PartyFacts:
    """What a party reports about itself before a run; all of it is public.

    Attributes:
        features: p, columns before an intercept.
        classes: K of its schema, 0 for −1/+1 labels and targets.
        records: n if it is public, else None.
        schema: digest, in hex, of what its columns and label mean.
        map: digest, in hex, of the public feature map; empty: none.
        asks: whether its owner may have to approve before it joins.
    """

    features: int
    classes: int
    schema: str
    map: str = ""
    records: int | None = None
    asks: bool = False

    def __post_init__(self) -> None:
        counts = 1 <= self.features < 2**31 and 0 <= self.classes < 2**31
        if not counts or not (self.records is None or 1 <= self.records < 2**40):
            raise ValueError("Expected numbers of columns, classes and records, got others.")
        if not all(map(_DIGEST.fullmatch, (self.schema, self.map or self.schema))):
            raise ValueError("Expected digests of schema and features in 64 hex digits.")


def get_dataset_name(job: Job) -> str:
    """Return the data's name in the server's ledger."""
    return job.privacy.dataset or job.data.name


def format_served_name(job: Job) -> str:
    """Return the parties' name for the job's data: its name, or its source in a name's letters.

    Raises JobError if the job names neither.
    """
    if not get_dataset_name(job):
        raise JobError(
            "Expected data.source or privacy.dataset, the name under which the parties serve "
            "the data, got neither."
        )
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", get_dataset_name(job)).strip("-._")[-63:]
    return plain.lstrip("-._") or "data"


def build_data_head(job: Job) -> dict[str, Any]:
    """Return which data a request is about, and how they are read."""
    return {
        "dataset": format_served_name(job),
        "label": job.algorithm.data_reading or job.model.label,
        "intercept": job.model.has_intercept,
        "features": job.model.feature_map,
        "blocks": list(job.data.blocks),
    }


def compute_min_present(parties: int, *, survivors: int, corrupt: int) -> int:
    """Return the minimum number of m parties for a round: each needs t neighbours besides itself.

    Raises:
        JobError: no parameters of the protocol are safe for that number.
    """
    try:
        found = derive_parameters(parties, corrupt=corrupt, dropped=parties // 10)
    except ValueError as error:
        raise JobError(f"Secure aggregation: {error}") from error
    return min(parties, max(survivors, found.threshold + 1))


def build_federation(
    job: Job, deployment: Deployment, facts: Mapping[int, PartyFacts]
) -> Federation:
    """Build the public facts for planning; absent parties contribute none of them."""
    least, parties = job.parties.min_records, len(deployment.parties)
    sizes = [own.records for own in facts.values() if own.records is not None]
    if job.privacy.has_private_sizes and least != "auto":
        return Federation(
            parties=parties, min_records=least, total_records=least * parties, max_records=least
        )
    if len(sizes) < len(facts):
        raise JobError(
            "Expected every party to disclose its number of records (public under replace-one), "
            f"got {len(sizes)} of {len(facts)}."
        )
    names = [deployment.parties[i].name for i in facts]
    known = Federation.from_sizes(np.array(sizes), None if least == "auto" else least, names)
    # As if the absent parties had the mean size: n̄ only scales the weights.
    total = round(known.total_records * parties / len(sizes))
    return replace(known, parties=parties, total_records=total)
