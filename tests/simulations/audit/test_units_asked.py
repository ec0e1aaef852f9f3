"""Audits of queries that hide persons and parties: honest ones stand, too little noise is found."""

from dataclasses import replace

import pytest

from parley.client.queries.count import Count
from parley.client.queries.counting import Counting
from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.simulations.audit.asked import asked
from parley.simulations.audit.matrix import SCHEMA
from parley.simulations.audit.measure import Effort, audit_guarantee, views

ASKED = (Count(by=("ward",)),)
CASES = [
    (Counting(unit=Unit.PERSON, most=3), Neighbouring.REPLACE_ONE, 3),
    (Counting(unit=Unit.PERSON, most=3), Neighbouring.ADD_OR_REMOVE_ONE, 4),
    (Counting(unit=Unit.PARTY, most=2, clip="l1"), Neighbouring.REPLACE_ONE, 6),
]


def report(counting, relation, records, *, counted=None):
    """Of the claim's only view, from entropy; `counted`: how records count in truth."""
    batch = asked(
        ASKED, SCHEMA, epsilon=1.0, law="laplace", neighbouring=relation, records=records,
        counting=counting,
    )  # fmt: skip
    (claim,) = views(batch)
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


@pytest.mark.parametrize(
    ("counting", "records", "counted"),
    [
        (Counting(unit=Unit.PERSON, most=1), 3, Counting(unit=Unit.PERSON, most=3)),
        (
            Counting(unit=Unit.PARTY, most=1, clip="l1"),
            6,
            Counting(unit=Unit.PARTY, most=3, clip="l1"),
        ),
    ],
)
def test_noise_for_fewer_records_than_count_is_found_out(counting, records, counted):
    told = report(counting, Neighbouring.REPLACE_ONE, records, counted=counted)
    assert told.verdict == "refuted"
