"""From a release's line to its answers: all that is needed stands in the session's folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parley.analytics.answer import Answer, Charge
from parley.analytics.answer_intervals import Intervals, Made, Part
from parley.client.contract.assumptions import of_queries
from parley.client.queries.base import Query, Shown
from parley.client.queries.consistency import Agreed, Agreement
from parley.client.queries.query_batch import batch_from
from parley.privacy.accounting.privacy_events import Event
from parley.privacy.accounting.threat_model import INSIDE
from parley.privacy.estimation.noise_intervals import Reach
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.mechanisms.selection import SELECTIONS
from parley.server.planning.query_planner import INSTEAD
from parley.server.planning.session_terms import Terms
from parley.server.rounds.query_session import Released


def answers_of(
    released: Released,
    terms: Terms,
    *,
    event: Event,
    run: str,
    budget: DatasetBudget,
    asked: Sequence[Query] | None = None,
    intervals: Intervals,
) -> list[Answer]:
    """The answers of one release.

    Args:
        event: that was charged, under the name `run`, to `budget`.
        asked: the queries as a person put them; None: as they were released.
    """
    batch = batch_from(released.batch)
    point = terms.noise_point if batch.reports is None else INSIDE
    charge = Charge(
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
        assumptions=of_queries(
            budget.unit,
            reported=batch.reports is not None,
            chosen=released.law in SELECTIONS,
            draft=terms.facts.schema.assumption,
        ),
    )
    whole = _parts(released, terms, batch.cells(terms.facts.schema))
    instead = released.law in INSTEAD
    places = (slice(None),) if instead else batch.slices(terms.facts.schema)
    agreed = [_agreed(released, terms, part) for part in whole]
    answers = []
    for number, (own, query, weight, place) in enumerate(
        zip(asked or batch.queries, batch.queries, batch.weights, places, strict=True)
    ):
        parts = tuple(
            replace(part, noisy=part.noisy[place], agreed=counts[number])
            for part, counts in zip(whole, agreed, strict=True)
        )
        made, applied, scale = None, Intervals(), released.scale / query.steps(weight)
        if instead and isinstance(query, Shown):
            table = query.answer_shown(parts[0].noisy, released.epsilon, parts[0].facts)
        else:
            made = Made(
                query=query,
                parts=parts,
                weight=weight,
                law=released.law,
                scale=released.scale,
                parties=1 if released.by_party else released.survivors,
                cut=terms.counting.clip != "",
            )
            table, applied = made.table(intervals)
            scale *= made.nearer
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
                made=made,
                by_party=released.by_party,
            )
        )
    return answers


def _agreed(released: Released, terms: Terms, part: Part) -> list[Agreed | None]:
    """Each query's counts, made to agree with the others'."""
    batch = batch_from(released.batch)
    if released.law in INSTEAD:
        return [None] * len(batch.queries)
    return Agreement(
        batch=batch,
        facts=part.facts,
        noise=Reach.of(released.law, scale=released.scale),
        cut=terms.counting.clip != "",
    ).counts(part.noisy)


def _parts(released: Released, terms: Terms, cells: int) -> list[Part]:
    """All integers of a release; by party every survivor's `cells`, and what is public of them."""
    vector = released.vector()
    if not released.by_party:
        facts = replace(terms.facts, records=released.records)
        return [Part(party="", noisy=vector, facts=facts)]
    return [
        Part(
            party=terms.names[place],
            noisy=vector[place * cells : (place + 1) * cells],
            facts=replace(terms.facts, records=terms.sizes[place] if terms.sizes else None),
        )
        for place in released.present
    ]
