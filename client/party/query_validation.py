"""Check of queries against a party's policy."""

from __future__ import annotations

from parley.client.algorithms.query_release import QueryRelease
from parley.client.contract.refusals import Reason
from parley.client.party.dataset_config import DatasetConfig
from parley.client.party.owner_policy import OwnerPolicy
from parley.client.party.run_validation import require, require_at_most, require_subset
from parley.privacy.accounting.threat_model import Unit


def check_queries(policy: OwnerPolicy, dataset: DatasetConfig, algorithm: QueryRelease) -> None:
    """Check a batch of queries against the policy. Other algorithms pass.

    To a party a batch is a job of one round, so `epsilon-per-job` bounds each batch.

    Raises:
        Declined: the policy does not accept a query, a column or the number of cells.
    """
    batch, counting = algorithm.batch, algorithm.counting
    kinds = sorted({query.kind for query in batch.queries})
    require_subset(Reason.ALGORITHM, "queries", policy.queries, kinds)
    if policy.query_columns is not None:
        require_subset(Reason.ALGORITHM, "columns", policy.query_columns, sorted(batch.columns))
    if counting.unit is Unit.PERSON:
        require(Reason.UNIT, "records of a person", dataset.records_per_id, counting.most)
    is_allowed = policy.by_party or not counting.parties
    require(Reason.ALGORITHM, "an answer", "of all parties", "one by party", is_allowed)
    require_at_most(Reason.ALGORITHM, "cells", policy.most_cells, algorithm.dimension)
