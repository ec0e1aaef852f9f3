"""Check of queries against a party's policy."""

from __future__ import annotations

from parley.client.algorithms.query_release import QueryRelease
from parley.client.contract.refusals import Reason
from parley.client.party.dataset_config import DatasetConfig
from parley.client.party.owner_policy import OwnerPolicy
from parley.client.party.run_validation import require
from parley.privacy.accounting.threat_model import Unit


def check_queries(policy: OwnerPolicy, dataset: DatasetConfig, algorithm: QueryRelease) -> None:
    """Check a batch of queries against the policy. Other algorithms pass.

    To a party a batch is a job of one round, so `epsilon-per-job` bounds each batch.

    Raises:
        Declined: the policy does not accept a query, a column or the number of cells.
    """
    batch, counting = algorithm.batch, algorithm.counting
    kinds = {query.kind for query in batch.queries}
    are_accepted = kinds <= set(policy.queries)
    require(Reason.ALGORITHM, "queries", ", ".join(policy.queries), sorted(kinds), are_accepted)
    allowed = policy.query_columns
    if allowed is not None:
        are_allowed = batch.columns <= set(allowed)
        require(Reason.ALGORITHM, "columns", ", ".join(allowed), sorted(batch.columns), are_allowed)
    if counting.unit is Unit.PERSON:
        require(Reason.UNIT, "records of a person", dataset.records_per_id, counting.most)
    is_allowed = policy.by_party or not counting.parties
    require(Reason.ALGORITHM, "an answer", "of all parties", "one by party", is_allowed)
    cells, max_cells = algorithm.dimension, policy.most_cells
    require(Reason.ALGORITHM, "cells", f"<= {max_cells}", cells, cells <= max_cells)
