"""Audit the mechanisms without additive noise: selection by exact scores, and randomised response.

These mechanisms add no noise to a sum, so no attack on a noisy sum fits. Each is repeated with the
product's own planner, cohort and release, on two data sets that differ by one record. One event,
chosen beforehand, is counted. It is the event with the largest loss if the claim is tight.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parley.client.algorithms.query_release import QueryRelease
from parley.client.data.query_party_block import RawPartyBlock
from parley.client.data.schema import Schema
from parley.client.party.party_session import PartySession
from parley.client.party.refusal_rules import RefusalRules
from parley.client.queries.base import Query, QueryFacts
from parley.client.queries.randomised_response import ResponseQuery
from parley.client.queries.selection_queries import ChooseBest
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.threat_model import NOISE_POINTS, Adversary, Neighbouring, Unit
from parley.privacy.audit.event_counts import Hits
from parley.privacy.mechanisms.private_selection import SELECTIONS
from parley.privacy.mechanisms.randomised_response import RandomisedResponse
from parley.server.planning.query_planner import plan_batch
from parley.server.planning.session_terms import SessionTerms
from parley.simulations.audit.audit_results import (
    CONFIRMED,
    AuditClaim,
    AuditReport,
    AuditResult,
    Finding,
    build_pair_finding,
    confirm_refutations,
)
from parley.simulations.audit.guarantee_audit import (
    Effort,
    compute_claimed_rates,
    describe_environment,
)
from parley.simulations.audit.world_batch import WorldRandomness
from parley.simulations.data.memory_check import get_peak_mib
from parley.simulations.engine.streamed_sum import SumRequest, sum_parties

EPSILON = 1.0

SCHEMA = Schema.from_toml("""
[columns]
one = { kind = "numeric", range = [0, 1] }
other = { kind = "numeric", range = [0, 1] }
sex = { kind = "categorical", categories = ["Female", "Male"], missing = "Male" }
sick = { kind = "label", positive = "yes", negative = "no" }
""")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A query without noise on its sum, and the record that differs between two worlds.

    Attributes:
        query: The query.
        inside, outside: The canary's columns.
        others: Columns of all other records.
        event: The answer that is counted.
        together: Whether every record answers separately, so that one sum of canaries is many
            worlds.
    """

    query: Query
    inside: Mapping[str, float]
    outside: Mapping[str, float]
    others: tuple[Mapping[str, float], ...] = ()
    event: int
    together: bool = False


CHOICES: dict[str, Choice] = {
    # Three other records vote for the first, so the second rarely wins, which reveals most.
    **{
        law: Choice(
            query=ChooseBest(of=("one", "other")),
            inside={"one": 0.0, "other": 1.0},
            outside={"one": 1.0, "other": 0.0},
            others=({"one": 1.0},) * 3,
            event=1,
        )
        for law in SELECTIONS
    },
    RandomisedResponse.law: Choice(
        query=ResponseQuery(column="sex"),
        inside={"sex": 0},
        outside={"sex": 1},
        event=0,
        together=True,
    ),
}
"""Choices by the mechanism that is claimed."""


def audit_choice(law: str, effort: Effort) -> AuditReport:
    """Audit one of `CHOICES` by the method `pair`, in `effort.trials` worlds of either kind."""
    began, source = time.perf_counter(), WorldRandomness(seed=effort.seed, names=("choice", law))
    trials, alpha = effort.trials or 50_000, 1 - effort.confidence
    effort = replace(effort, trials=trials)
    seen, claimed = _counted(law, trials, source)
    accountant, epsilon = claimed.compute_lowest_epsilon(0.0)
    limits = {"delta": 0.0, "claimed": epsilon}

    def again(_: list[str]) -> dict[str, Finding]:
        more, _ = _counted(law, 4 * trials, source.with_names("confirm"))
        return {"pair": build_pair_finding(more, alpha=CONFIRMED, **limits)}

    found = confirm_refutations({"pair": build_pair_finding(seen, alpha=alpha, **limits)}, again)[
        "pair"
    ]
    seconds = time.perf_counter() - began
    result = AuditResult(
        **vars(found),
        attack="corners",
        method="pair",
        trials_in=trials,
        trials_out=trials,
        trials_threshold=0,
        alpha=alpha,
        comparisons=1,
        seconds=seconds,
        trials_per_second=2 * trials / max(seconds, 1e-9),
        peak_mib=get_peak_mib(),
    )
    claim = AuditClaim(
        epsilon=epsilon,
        delta=0.0,
        unit=str(Unit.RECORD),
        neighbouring=str(Neighbouring.REPLACE_ONE),
        against=str(Adversary.READERS),
        law=law,
        curve=accountant,
        accountant=accountant,
        release=CHOICES[law].query.kind,
        rounds=1,
        mu=None,
    )
    rate = (1 - seen[0].hits / trials, seen[1].hits / trials)
    return AuditReport(
        claim=claim,
        results=(result,),
        environment={"changed": [], **describe_environment(effort, delta=0.0)},
        confidence=effort.confidence,
        roc={"corners": ((1.0, 0.0), (rate[1], rate[0]), (0.0, 1.0))},
        claimed_curve=compute_claimed_rates(claimed, 0.0),
    )


def _counted(
    law: str, trials: int, source: WorldRandomness
) -> tuple[tuple[Hits, Hits], Composition]:
    """Return how often the event occurs with the canary and without, and each release's claim."""
    choice = CHOICES[law]
    found, claimed = [], Composition()
    for name, canary in (("in", choice.inside), ("out", choice.outside)):
        rows = [canary] * trials if choice.together else [*choice.others, canary]
        worlds = _released(law, choice.query, rows, source.with_names(name))
        claimed = next(worlds)
        if choice.together:
            hits = int(next(worlds)[choice.event])
        else:
            hits = sum(next(worlds)[0] == choice.event for _ in range(trials))
        found.append(Hits(hits=hits, trials=trials))
    return (found[0], found[1]), claimed


def _released(
    law: str, query: Query, rows: list[Mapping[str, float]], source: WorldRandomness
) -> Iterator[Any]:
    """Yield the claim, then repeated releases of these records."""
    whole = [{"one": 0.0, "other": 0.0, "sex": 1, **row} for row in rows]
    block = RawPartyBlock(
        schema=SCHEMA,
        columns={name: np.array([row[name] for row in whole]) for name in whole[0]},
        offsets=np.array([0, len(whole)]),
    )
    facts = QueryFacts(schema=SCHEMA, neighbouring=Neighbouring.REPLACE_ONE, records=len(whole))
    terms = SessionTerms(
        facts=facts,
        parties=1,
        min_records=1,
        most_records=len(whole),
        min_survivors=1,
        corrupt=0,
        noise_point=NOISE_POINTS["server"],
        delta=0.0,
        seeded=source.seed is not None,
    )
    planned = plan_batch([query], terms, epsilon=EPSILON, run_id="audit", number=1, law=law)
    yield Composition().add(planned.event)
    randomness = source.get_chunk(0)
    columns: Any = block
    session = PartySession(
        block=columns,
        algorithm=QueryRelease(
            batch=planned.batch, neighbouring=Neighbouring.REPLACE_ONE, schema=SCHEMA
        ),
        rules=RefusalRules(units=frozenset()),
        randomness=randomness,
    )
    given = sum_parties(
        session, SumRequest(plan=planned.plan, state={}, kept=np.empty(0, dtype=np.int64))
    )
    total = planned.plan.encoding.decode(given.total)
    stream = randomness.open_server_noise(1)
    while True:
        yield planned.compute_release(total, facts, stream)
