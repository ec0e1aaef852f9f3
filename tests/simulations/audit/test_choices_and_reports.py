"""What is done in the place of noise on a sum is audited, too: winners chosen, records that lie."""

from __future__ import annotations

import numpy as np
import pytest

from parley.audit_bounds import Hits, pair_bound
from parley.client.data.schema import Schema
from parley.client.data.table_block import TableBlock
from parley.client.queries.base import Facts, Query
from parley.client.queries.choose_best import ChooseBest
from parley.client.queries.response import Response
from parley.privacy.accounting.guarantee import Neighbouring, NoisePoint
from parley.privacy.mechanisms.randomised_response import RandomisedResponse
from parley.privacy.mechanisms.selection import SELECTIONS
from parley.privacy.sampling.randomness import Randomness
from parley.server.planning.queries import INSTEAD, Terms, plan_batch
from parley.simulations.engine.faults import parse_faults
from parley.simulations.engine.query_cohort import BlockQueries

SCHEMA = Schema.from_toml(
    """
[columns]
one = { kind = "numeric", range = [0, 1] }
other = { kind = "numeric", range = [0, 1] }
sex = { kind = "categorical", categories = ["Female", "Male"], missing = "Male" }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)
TRIALS, EPSILON = 4000, 1.0
SURE = 1 - 1e-5

CASES: dict[str, tuple[Query, dict, dict]] = {
    # query, the canary inside, and outside
    **{
        law: (
            ChooseBest(of=("one", "other")),
            {"one": 0.0, "other": 1.0},
            {"one": 1.0, "other": 0.0},
        )
        for law in SELECTIONS
    },
    RandomisedResponse.law: (Response(column="sex"), {"sex": 0}, {"sex": 1}),
}


def released(law, query, rows, seed):
    """What the server shows of these records, again and again: by planner, cohort and release."""
    whole = [{"one": 0.0, "other": 0.0, "sex": 1, **row} for row in rows]
    block = TableBlock(
        schema=SCHEMA,
        columns={name: np.array([row[name] for row in whole]) for name in whole[0]},
        offsets=np.array([0, len(whole)]),
    )
    facts = Facts(schema=SCHEMA, neighbouring=Neighbouring.REPLACE_ONE, records=len(whole))
    terms = Terms(
        facts=facts,
        parties=1,
        min_records=1,
        most_records=len(whole),
        min_survivors=1,
        corrupt=0,
        noise_point=NoisePoint.SERVER,
        delta=0.0,
        seeded=True,
    )
    planned = plan_batch([query], terms, epsilon=EPSILON, run_id="audit", number=1, law=law)
    assert planned.event.epsilon == EPSILON
    randomness = Randomness.from_seed(seed)
    cohort = BlockQueries(
        block=block,
        corrupt=0,
        masked=False,
        faults=parse_faults("", seed=0),
        randomness=randomness,
    )
    total = planned.plan.encoding.decode(cohort.ask(planned, {}, attempt=0).total)
    stream = randomness.server(1)
    while True:
        yield planned.released(total, facts, stream)


def hits(law, query, canary, seed):
    """How often the event shows, of so many worlds."""
    if isinstance(query, Response):
        # Records answer for themselves: as many canaries as worlds. Seen: those that say Female.
        return Hits(hits=next(released(law, query, [canary] * TRIALS, seed))[0], trials=TRIALS)
    # Three others are for the first: the second's win is rare, and tells most.
    worlds = released(law, query, [{"one": 1.0}] * 3 + [canary], seed)
    return Hits(hits=sum(next(worlds)[0] == 1 for _ in range(TRIALS)), trials=TRIALS)


@pytest.mark.parametrize("law", CASES)
def test_what_is_claimed_is_neither_refuted_nor_far_from_what_is_seen(law):
    query, inside, outside = CASES[law]
    seen = {
        "hits_in": hits(law, query, inside, seed=1),
        "hits_out": hits(law, query, outside, seed=2),
    }
    lower = pair_bound(**seen, confidence=SURE, delta=0.0).epsilon_lower
    # Above half of ε: a release that cost twice its claim would be refuted.
    assert 0.5 * EPSILON < lower <= EPSILON, seen


def test_every_way_without_noise_on_the_sum_is_audited():
    assert set(CASES) == set(INSTEAD)
