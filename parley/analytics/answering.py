"""From a release's line to its answers: all that is needed stands in the session's folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parley.analytics.answer import Answer, Charge
from parley.analytics.intervals import ByParty, Intervals, Made
from parley.client.queries.base import Facts, Query, Shown
from parley.client.queries.batch import batch_from
from parley.privacy.accounting.events import Event
from parley.privacy.accounting.noise_points import INSIDE
from parley.privacy.ledger.budget import DatasetBudget
from parley.server.planning.queries import INSTEAD
from parley.server.planning.query_terms import Terms
from parley.server.rounds.session import Released


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
        released: its line.
        terms: of the session.
        event: that was charged.
        run: the session's name in the ledger.
        budget: that was charged.
        asked: the queries as a person put them; None: as they were released.
        intervals: what they shall cover, where the query's can.
    """
    batch = batch_from(released.batch)
    facts = replace(terms.facts, records=released.records)
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
    )
    vector = released.vector()
    instead = released.law in INSTEAD
    places = (slice(None),) if instead else batch.slices(facts.schema)
    asked_of = _parties(released, terms, batch.cells(facts.schema))
    put = asked or batch.queries
    answers = []
    for own, query, weight, place in zip(put, batch.queries, batch.weights, places, strict=True):
        made: Made | ByParty | None = None
        applied = Intervals()
        if instead and isinstance(query, Shown):
            table = query.answer_shown(vector[place], released.epsilon, facts)
        else:
            whole = Made(
                query=query,
                noisy=vector,
                weight=weight,
                law=released.law,
                scale=released.scale,
                facts=facts,
                tables=max(len(asked_of), 1),
                cut=terms.counting.clip != "",
            )
            parts = tuple(
                (name, replace(whole, noisy=vector[own_cells][place], facts=own_facts))
                for name, own_cells, own_facts in asked_of
            )
            made = ByParty(parts=parts) if parts else replace(whole, noisy=vector[place])
            table, applied = made.table(intervals)
        answers.append(
            Answer(
                query=own,
                table=table,
                law=released.law,
                scale=released.scale / weight,
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


def _parties(released: Released, terms: Terms, cells: int) -> list[tuple[str, slice, Facts]]:
    """Of an answer by party: every survivor's name, where its cells lie, and what is public."""
    found = []
    for place in released.present if released.by_party else ():
        own = replace(terms.facts, records=terms.sizes[place] if terms.sizes else None)
        found.append((terms.names[place], slice(place * cells, (place + 1) * cells), own))
    return found
