"""Build a release's answers from its line in the session's folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parley.analytics.answer import Answer, AnswerCharge
from parley.analytics.answer_intervals import AnswerSource, Intervals, NoisyCounts
from parley.client.contract.assumptions import list_query_assumptions
from parley.client.queries.base import NonAdditiveQuery, Query
from parley.client.queries.consistency import BatchConsistency, ConsistentCounts
from parley.client.queries.query_batch import decode_batch
from parley.privacy.accounting.privacy_events import PrivacyEvent
from parley.privacy.accounting.threat_model import PARTY_NOISE_POINT
from parley.privacy.estimation.noise_intervals import CellNoise
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.mechanisms.private_selection import SELECTIONS
from parley.server.planning.query_planner import NOISE_REPLACEMENTS
from parley.server.planning.session_terms import SessionTerms
from parley.server.rounds.query_session import ReleasedBatch


def decode_answers(
    released: ReleasedBatch,
    terms: SessionTerms,
    *,
    event: PrivacyEvent,
    run: str,
    budget: DatasetBudget,
    queries: Sequence[Query] | None = None,
    intervals: Intervals,
) -> list[Answer]:
    """Return the answers of one release.

    Args:
        event: The event that was charged to `budget` under the name `run`.
        queries: The queries as the caller asked them; None for those in the release.
    """
    batch = decode_batch(released.batch)
    point = terms.noise_point if batch.reporting_query is None else PARTY_NOISE_POINT
    charge = AnswerCharge(
        run=run,
        index=released.number,
        event=event,
        epsilon=released.epsilon,
        queries=len(batch.queries),
        spent=released.spent,
        left=released.left,
        budget=budget,
        against=point.adversary,
        seeded=terms.seeded,
        assumptions=list_query_assumptions(
            budget.unit,
            reported=batch.reporting_query is not None,
            chosen=released.law in SELECTIONS,
            draft=terms.facts.schema.assumption,
        ),
    )
    whole = _split_release(released, terms, batch.count_cells(terms.facts.schema))
    instead = released.law in NOISE_REPLACEMENTS
    places = (slice(None),) if instead else batch.list_slices(terms.facts.schema)
    agreed = [_make_consistent(released, terms, part) for part in whole]
    answers = []
    for number, (own, query, weight, place) in enumerate(
        zip(queries or batch.queries, batch.queries, batch.weights, places, strict=True)
    ):
        parts = tuple(
            replace(part, noisy=part.noisy[place], consistent=counts[number])
            for part, counts in zip(whole, agreed, strict=True)
        )
        made, applied, scale = None, Intervals(), released.scale / query.get_steps_per_unit(weight)
        if instead and isinstance(query, NonAdditiveQuery):
            table = query.answer_from_output(parts[0].noisy, released.epsilon, parts[0].facts)
        else:
            made = AnswerSource(
                query=query,
                parts=parts,
                weight=weight,
                law=released.law,
                scale=released.scale,
                parties=1 if released.by_party else released.survivors,
                clipped=terms.counting.clip != "",
            )
            table, applied = made.build_table(intervals)
            scale *= made.error_ratio
        answers.append(
            Answer(
                query=own,
                table=table,
                law=released.law,
                scale=scale,
                survivors=released.survivors,
                parties=released.parties,
                records=released.records,
                ledger=charge,
                intervals=applied,
                source=made,
                by_party=released.by_party,
            )
        )
    return answers


def _make_consistent(
    released: ReleasedBatch, terms: SessionTerms, part: NoisyCounts
) -> list[ConsistentCounts | None]:
    """Return each query's counts, made consistent with those of the batch's other queries."""
    batch = decode_batch(released.batch)
    if released.law in NOISE_REPLACEMENTS:
        return [None] * len(batch.queries)
    return BatchConsistency(
        batch=batch,
        facts=part.facts,
        noise=CellNoise(law=released.law, scale=released.scale),
        clipped=terms.counting.clip != "",
    ).make_consistent(part.noisy)


def _split_release(released: ReleasedBatch, terms: SessionTerms, cells: int) -> list[NoisyCounts]:
    """Return all integers of a release; by party, each survivor's `cells` with its public facts."""
    vector = released.to_vector()
    if not released.by_party:
        facts = replace(terms.facts, records=released.records)
        return [NoisyCounts(party="", noisy=vector, facts=facts)]
    return [
        NoisyCounts(
            party=terms.names[place],
            noisy=vector[place * cells : (place + 1) * cells],
            facts=replace(terms.facts, records=terms.sizes[place] if terms.sizes else None),
        )
        for place in released.present
    ]
