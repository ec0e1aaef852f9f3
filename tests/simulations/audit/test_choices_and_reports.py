"""What is done in the place of noise on a sum is audited, too: winners chosen, records that lie."""

from __future__ import annotations

import audited_choices
import pytest
from audited_choices import CHOICES, audit_choice

from parley.server.planning.queries import INSTEAD
from parley.simulations.audit.measure import Effort


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
    assert set(CHOICES) == set(INSTEAD)
