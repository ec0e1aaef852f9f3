"""A batch of queries as it is audited: the release that a session plans, of few public records."""

from __future__ import annotations

from collections.abc import Sequence

from parley.client.algorithms.queries import QueryRelease
from parley.client.data.schema import Schema
from parley.client.queries.base import Facts, Query
from parley.client.queries.counting import Counting
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.accounting.noise_points import NOISE_POINTS, NoisePoint
from parley.server.planning.queries import plan_batch
from parley.server.planning.query_terms import Terms
from parley.simulations.audit.audited import Audited
from parley.simulations.audit.shapes import LEARNERS, Shape


def asked(
    queries: Sequence[Query],
    schema: Schema,
    *,
    epsilon: float,
    delta: float = 1e-5,
    neighbouring: Neighbouring = Neighbouring.REPLACE_ONE,
    noise_point: NoisePoint = NOISE_POINTS["server"],
    law: str = "auto",
    shares: Sequence[float] | None = None,
    records: int = 2,
    counting: Counting | None = None,
    seed: int | None = None,
) -> Audited:
    """One batch of queries, by the planner of sessions.

    Args:
        queries, epsilon, law, shares: as a session is asked for them.
        schema, delta, neighbouring, noise_point: of the session.
        records: of each party of a world.
        counting: how they count: the unit; None: records.
        seed: of the worlds; None for entropy.

    Raises:
        QueryError, SchemaError, CalibrationError, RingTooSmall: as asking would.
    """
    split = noise_point.in_contributions
    parties = 5 if split else 2
    how = counting or Counting()
    private = how.private(neighbouring)
    terms = Terms(
        facts=Facts(
            schema=schema,
            neighbouring=how.relation(neighbouring),
            records=None if private else parties * records,
        ),
        parties=parties,
        min_records=1 if private else records,
        most_records=records,
        min_survivors=4 if split else 1,
        corrupt=1 if split else 0,
        noise_point=noise_point,
        delta=delta,
        seeded=seed is not None,
        counting=how,
        relation=neighbouring,
    )
    planned = plan_batch(
        queries, terms, epsilon=epsilon, run_id="audit", number=1, law=law, shares=shares
    )
    guarantee = planned.plan.primary
    return Audited(
        job=None,
        shape=Shape(parties=parties, records=records, features=1),
        algorithm=QueryRelease(
            batch=planned.batch,
            neighbouring=neighbouring,
            counting=planned.counting,
            schema=schema,
        ),
        plan=planned.plan,
        guarantee=guarantee,
        charged=guarantee,
        against=guarantee.against,
        learner=LEARNERS["nothing"],
        rounds=1,
        changed=(),
        release=", ".join(query.kind for query in queries),
    )
