"""Queries that are asked in steps: each is a release, where the answers before it point.

What the steps cost together is the price that was asked. Of Gaussian noise μ² adds up (Dong, Roth &
Su 2022, Corollary 3.3), so that a step with a share p of the budget has √p of its μ; of Laplace
noise ε does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from parley.analytics.answer import Answer
from parley.analytics.query_api import ReleaseSession
from parley.client.queries.base import AnsweredQuery, Query, QueryError
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.gaussian_curve import compute_gaussian_epsilon
from parley.privacy.accounting.rounding import to_fraction
from parley.privacy.estimation.noise_intervals import CellNoise
from parley.server.planning.query_planner import PlannedBatch


def check_alone(queries: Sequence[Query], *, by_party: bool) -> None:
    """Refuses steps within a batch, or of each party. Raises QueryError."""
    stepped = next((each for each in queries if each.step_shares), None)
    if stepped is not None and (len(queries) > 1 or by_party):
        got = "each party's own answer" if by_party else f"{len(queries)} queries together"
        raise QueryError(
            f"Expected {stepped.kind} by itself, of all parties together, got {got}: it is asked "
            f"in {len(stepped.step_shares)} steps, each where the one before points."
        )


def release_in_steps(
    release: Callable[..., list[Answer]],
    session: ReleaseSession,
    query: Query,
    total_plan: PlannedBatch,
    *,
    epsilon: float,
) -> Answer:
    """The answer of the last of a query's steps.

    Args:
        release: asks queries, by their plan and price.
        total_plan: the first step, as if it had all of the budget.
    """
    steps, answers, count = list[AnsweredQuery](), list[Answer](), len(query.step_shares)
    for price in split_price(
        total_plan, query.step_shares, epsilon=epsilon, delta=session.terms.delta
    ):
        planned = session.plan([query], epsilon=price, law=total_plan.law)
        (answer,) = release([query], planned, epsilon=price)
        answers.append(answer)
        if (made := answer.source) is None:
            raise TypeError("Expected steps with noise on a sum.")
        noise = CellNoise.from_law(made.law, scale=made.scale)
        noisy, weight = made.parts[0].noisy, made.weight
        steps.append(AnsweredQuery(query=query, noisy=noisy, weight=weight, noise=noise))
        if len(steps) < count:
            query = query.build_next_step(steps, session.schema)
    return with_earlier(answers)[-1]


def split_price(
    total_plan: PlannedBatch, shares: Sequence[int], *, epsilon: float, delta: float
) -> list[float]:
    """What each step costs by itself, of shares in percent, so that all cost ε together."""
    mu = Composition.from_events([total_plan.event]).mu
    if mu is not None:
        below = mu * (1 - 2.0**-30)  # each is calibrated anew
        each = [compute_gaussian_epsilon(below * math.sqrt(share / 100), delta) for share in shares]
        return [float(f"{one * (1 - 5e-7):.7g}") for one in each]  # less, and not seventeen digits
    return [_round_down(to_fraction(epsilon) * share / 100) for share in shares]


def _round_down(price: Fraction) -> float:
    found = float(price)
    return found if to_fraction(found) <= price else math.nextafter(found, 0)


def with_earlier(answers: Sequence[Answer]) -> tuple[Answer, ...]:
    """Answers in the order of their releases: a step knows what those before it cost."""
    found = list[Answer]()
    for each in answers:
        own = each
        if found and each.query.is_step_after(found[-1].query):
            own = replace(each, earlier=(*found[-1].earlier, found[-1].ledger))
        found.append(own)
    return tuple(found)
