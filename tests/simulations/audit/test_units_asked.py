"""Audits of queries that hide persons and parties: honest ones stand, too little noise is found."""

from dataclasses import replace

import pytest
from audit_matrix import SCHEMA

from parley.client.queries.batch import Counting
from parley.client.queries.counts import Count
from parley.privacy.accounting.guarantee import NOISE_POINTS, Neighbouring, Unit
from parley.simulations.audit.audited import asked
from parley.simulations.audit.measure import Effort, audit_guarantee, views
from parley.simulations.audit.neighbours import neighbours
from parley.simulations.audit.shapes import AuditError

ASKED = (Count(by=("ward",)),)
CASES = [
    (Counting(unit=Unit.PERSON, most=3), Neighbouring.REPLACE_ONE, 3),
    (Counting(unit=Unit.PERSON, most=3), Neighbouring.ADD_OR_REMOVE_ONE, 4),
    (Counting(unit=Unit.PARTY, most=2, clip="l1"), Neighbouring.REPLACE_ONE, 6),
    (Counting(unit=Unit.PARTY, most=2, clip="l1"), Neighbouring.ADD_OR_REMOVE_ONE, 6),
]


def report(counting, relation, records, *, counted=None, point="server"):
    """Of the claim's first view, from entropy; `counted`: how records count in truth."""
    batch = asked(
        ASKED, SCHEMA, epsilon=1.0, law="laplace", neighbouring=relation, records=records,
        counting=counting, noise_point=NOISE_POINTS[point],
    )  # fmt: skip
    claim, *_ = views(batch)
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
    worlds = neighbours(asked(ASKED, SCHEMA, records=6, **party), "corners")
    assert (worlds.inside.parties, worlds.outside.parties) == (2, 1)
    split = asked(ASKED, SCHEMA, records=6, noise_point=NOISE_POINTS["share"], **party)
    with pytest.raises(AuditError, match="noise on the sum where a party is removed"):
        neighbours(split, "corners")
