"""What a party's owner lets queries ask: which kinds, which columns, how many cells, at what price.

A release of queries is a job of one round to a party: `epsilon-per-job` bounds each of them.
"""

from __future__ import annotations

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.queries import QueryRelease
from parley.client.contract.protocol import Declined, Reason
from parley.client.party.consent import Consent
from parley.client.party.data_set import DataSet
from parley.privacy.accounting.guarantee import Unit


def check_queries(consent: Consent, dataset: DataSet, algorithm: FederatedAlgorithm) -> None:
    """Holds a batch of queries against the policy; anything else passes.

    Raises:
        Declined: algorithm (a query, column or number of cells that is not accepted), or unit
            (persons with another number of records than this party keeps of each).
    """
    if not isinstance(algorithm, QueryRelease):
        return
    kinds = {query.kind for query in algorithm.batch.queries}
    if not kinds <= set(consent.queries):
        raise Declined(Reason.ALGORITHM, f"Expected queries of {', '.join(consent.queries)}.")
    allowed = consent.query_columns
    if allowed is not None and not algorithm.batch.columns <= set(allowed):
        raise Declined(Reason.ALGORITHM, f"Expected queries of columns {', '.join(allowed)}.")
    own = algorithm.counting
    if own.unit is Unit.PERSON and own.most != dataset.records_per_id:
        raise Declined(
            Reason.UNIT, f"Expected {dataset.records_per_id} records of a person, got {own.most}."
        )
    if own.parties and not consent.by_party:
        raise Declined(Reason.ALGORITHM, "Expected an answer of all parties, got one by party.")
    if algorithm.dimension > consent.most_cells:
        raise Declined(
            Reason.ALGORITHM,
            f"Expected at most {consent.most_cells} cells, got {algorithm.dimension}.",
        )
