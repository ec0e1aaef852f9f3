"""Answer queries that take several steps, where each release depends on the answers before it.

All steps together cost the requested price. For Gaussian noise, μ² adds up (Dong, Roth & Su 2022,
Corollary 3.3), so a step with a share p of the budget has √p of its μ. For Laplace noise, ε adds
up.
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
    """Raise QueryError for a query with steps that is in a batch or asked per party."""
    stepped = next((each for each in queries if each.step_shares), None)
    if stepped is not None and (len(queries) > 1 or by_party):
        got = "each party's own answer" if by_party else f"{len(queries)} queries together"
        raise QueryError(
            f"Expected {stepped.kind} as a single query of all parties together, got {got}. It is "
            f"asked in {len(stepped.step_shares)} steps, and each step depends on the one before."
        )


def release_in_steps(
    release: Callable[..., list[Answer]],
    session: ReleaseSession,
    query: Query,
    total_plan: PlannedBatch,
    *,
    epsilon: float,
) -> Answer:
    """Release a query's steps and return the answer of the last one.

    Args:
        release: Releases queries with a plan and a price.
        total_plan: Plan of the first step if it had the whole budget.
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
        noise = CellNoise(law=made.law, scale=made.scale)
        noisy, weight = made.parts[0].noisy, made.weight
        steps.append(AnsweredQuery(query=query, noisy=noisy, weight=weight, noise=noise))
        if len(steps) < count:
            query = query.build_next_step(steps, session.schema)
    return with_earlier(answers)[-1]


def split_price(
    total_plan: PlannedBatch, shares: Sequence[int], *, epsilon: float, delta: float
) -> list[float]:
    """Return the price of each step, from shares in percent, so that all steps together cost ε."""
    mu = Composition.from_events([total_plan.event]).mu
    if mu is not None:
        below = mu * (1 - 2.0**-30)  # each step has its own calibration
        each = [compute_gaussian_epsilon(below * math.sqrt(share / 100), delta) for share in shares]
        # Slightly less, with seven digits.
        return [float(f"{one * (1 - 5e-7):.7g}") for one in each]
    return [_round_down(to_fraction(epsilon) * share / 100) for share in shares]


def _round_down(price: Fraction) -> float:
    found = float(price)
    return found if to_fraction(found) <= price else math.nextafter(found, 0)


def with_earlier(answers: Sequence[Answer]) -> tuple[Answer, ...]:
    """Return the answers, in order of release, with the charges of earlier steps attached."""
    found = list[Answer]()
    for each in answers:
        own = each
        if found and each.query.is_step_after(found[-1].query):
            own = replace(each, earlier=(*found[-1].earlier, found[-1].ledger))
        found.append(own)
    return tuple(found)
