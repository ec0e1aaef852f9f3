"""Audits of units, winners chosen, records that lie: honest ones stand, faults are found."""

from __future__ import annotations

from dataclasses import replace

import audited_choices
import pytest
from audit_matrix import SCHEMA
from audited_choices import CHOICES, audit_choice

from parley.client.queries.count_queries import Count
from parley.client.queries.query_batch import Counting
from parley.privacy.accounting.threat_model import NOISE_POINTS, Neighbouring, Unit
from parley.server.planning.query_planner import NOISE_REPLACEMENTS
from parley.simulations.audit.audit_job_shrinking import AuditError
from parley.simulations.audit.audit_target import build_query_target
from parley.simulations.audit.guarantee_audit import Effort, audit_guarantee, list_views
from parley.simulations.audit.neighbouring_worlds import build_neighbours

ASKED = (Count(by=("ward",)),)
CASES = [
    (Counting(unit=Unit.PERSON, most=3), Neighbouring.REPLACE_ONE, 3),
    (Counting(unit=Unit.PERSON, most=3), Neighbouring.ADD_OR_REMOVE_ONE, 4),
    (Counting(unit=Unit.PARTY, most=2, clip="l1"), Neighbouring.REPLACE_ONE, 6),
    (Counting(unit=Unit.PARTY, most=2, clip="l1"), Neighbouring.ADD_OR_REMOVE_ONE, 6),
]


def report(counting, relation, records, *, counted=None, point="server"):
    """Of the claim's first view, from entropy; `counted`: how records count in truth."""
    batch = build_query_target(
        ASKED, SCHEMA, epsilon=1.0, law="laplace", neighbouring=relation, records=records,
        counting=counting, noise_point=NOISE_POINTS[point],
    )  # fmt: skip
    claim, *_ = list_views(batch)
    if counted is not None:
        # The grid's bound, too, which cuts what no party may contribute.
        wide = replace(claim.plan, encoding=replace(claim.plan.encoding, bound=8.0))
        claim = replace(claim, plan=wide, algorithm=replace(claim.algorithm, counting=counted))
    return audit_guarantee(claim, Effort(trials=5000))


@pytest.mark.parametrize(("counting", "relation", "records"), CASES)
def test_the_claim_of_a_unit_stands_and_is_nearly_reached(counting, relation, records):
    told = report(counting, relation, records)
    assert told.verdict == "not-refuted"
    assert max(each.fraction_of_claim or 0 for each in told.results) > 0.6


ONE = Counting(unit=Unit.PARTY, most=1, clip="l1")
THREE = replace(ONE, most=3)


@pytest.mark.parametrize(
    ("counting", "records", "counted", "relation", "point"),
    [
        (
            *(Counting(unit=Unit.PERSON, most=1), 3, Counting(unit=Unit.PERSON, most=3)),
            *(Neighbouring.REPLACE_ONE, "server"),
        ),
        (ONE, 6, THREE, Neighbouring.REPLACE_ONE, "server"),
        (ONE, 6, THREE, Neighbouring.REPLACE_ONE, "share"),
        (ONE, 6, THREE, Neighbouring.ADD_OR_REMOVE_ONE, "server"),
    ],
)
def test_noise_for_fewer_records_than_count_is_found_out(
    counting, records, counted, relation, point
):
    told = report(counting, relation, records, counted=counted, point=point)
    assert told.verdict == "refuted"


def test_a_party_that_is_not_there_is_one_less_and_adds_no_share():
    party = {"counting": ONE, "epsilon": 1.0, "neighbouring": Neighbouring.ADD_OR_REMOVE_ONE}
    worlds = build_neighbours(build_query_target(ASKED, SCHEMA, records=6, **party), "corners")
    assert (worlds.inside.parties, worlds.outside.parties) == (2, 1)
    split = build_query_target(ASKED, SCHEMA, records=6, noise_point=NOISE_POINTS["share"], **party)
    with pytest.raises(AuditError, match="noise on the sum if a party is removed"):
        build_neighbours(split, "corners")


@pytest.mark.parametrize("law", CHOICES)
def test_what_is_claimed_is_neither_refuted_nor_far_from_what_is_seen(law):
    report = audit_choice(law, Effort(trials=4000, seed=1, confidence=1 - 1e-5))
    (result,) = report.results
    assert report.verdict == "not-refuted"
    assert (report.claim.epsilon, report.claim.law) == (1.0, law)
    # Above half of ε: a release that cost twice its claim would be refuted.
    assert 0.5 < result.epsilon_lower <= 1.0


@pytest.mark.parametrize("law", CHOICES)
def test_a_way_that_costs_twice_its_claim_is_refuted_and_confirmed(law, monkeypatch):
    plan_batch = audited_choices.plan_batch

    def cheaper(queries, terms, *, epsilon, **rest):
        honest = plan_batch(queries, terms, epsilon=epsilon, **rest)
        twice = plan_batch(queries, terms, epsilon=2 * epsilon, **rest)
        return _Charged(twice, honest.event)

    monkeypatch.setattr(audited_choices, "plan_batch", cheaper)
    report = audit_choice(law, Effort(trials=1000, seed=1))
    assert report.claim.epsilon == 1.0
    assert report.verdict == "refuted"


class _Charged:
    """A planned batch that says that it costs something else."""

    def __init__(self, planned, event):
        self._planned, self.event = planned, event

    def __getattr__(self, name):
        return getattr(self._planned, name)


def test_every_way_without_noise_on_the_sum_is_audited():
    assert set(CHOICES) == set(NOISE_REPLACEMENTS)
