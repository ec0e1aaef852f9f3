"""What every noise point promises. A new one subclasses `NoisePointConformance`: its name."""

import json
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from parley.client.contract.plan_decoding import decode_guarantee, decode_plan
from parley.client.contract.strict_decoding import DecodingError
from parley.client.party.owner_policy import OwnerPolicy
from parley.privacy.accounting.threat_model import NOISE_POINTS, Adversary, get_noise_point
from parley.privacy.sampling.random_stream import NoiseStream
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job
from parley.server.planning.job_planner import build_algorithm, build_model, plan_release

PARTIES, LEAST, COLLUDERS, DRAWS = 5, 4, 1, 150
PUBLIC = Federation(parties=PARTIES, min_records=40, total_records=40 * PARTIES, max_records=40)


class NoisePointConformance:
    """
    Attributes:
        name: the row of `NOISE_POINTS`.
    """

    name: ClassVar[str]

    @pytest.fixture
    def plan(self):
        job = load_job(
            overrides=[
                f"privacy.noise-point={self.name}",
                f"parties.count={PARTIES}",
                f"secure-aggregation.min-survivors={LEAST}",
                f"secure-aggregation.corrupt={COLLUDERS}",
                "algorithm.rounds=10",
            ]
        )
        algorithm = build_algorithm(job, build_model(job, features=30, classes=0), PUBLIC)
        return plan_release(job, algorithm=algorithm, federation=PUBLIC)

    def test_its_row_goes_by_its_name_and_is_in_words(self):
        point = NOISE_POINTS[self.name]
        assert get_noise_point(self.name) == point
        assert str(point) == self.name
        assert point.added_by
        assert point.server_sees

    def test_an_owner_can_list_it(self):
        """What is not among Parley's own is accepted by no party whose owner does not list it."""
        listed = OwnerPolicy.model_fields["noise_points"]
        assert self.name in str(listed.annotation)
        own = self.name in {"server", "share", "party"}
        assert (self.name in listed.default) == own

    def test_a_plan_with_it_travels_and_says_against_whom_it_holds(self, plan):
        text = json.dumps(plan.to_json(), allow_nan=False)
        assert f'"noise_point": "{self.name}"' in text
        came = decode_plan(json.loads(text))
        assert came == plan
        assert came.compute_digest() == plan.compute_digest()
        assert plan.primary.against is NOISE_POINTS[self.name].adversary
        assert plan.to_ledger_facts(plan.primary.unit)["noise_point"] == self.name

    def test_a_plan_that_claims_another_adversary_is_refused(self, plan):
        for other in set(Adversary) - {plan.primary.against}:
            with pytest.raises(ValueError, match="to hold against"):
                replace(plan.primary, against=other)

    def test_noise_that_the_adversary_does_not_know_is_what_is_charged(self, plan):
        """And not two thirds or three halves of it: 4,650 draws."""
        point, own, rng = NOISE_POINTS[self.name], plan.primary, NoiseStream.from_seed(3)
        if point.in_contributions:
            least, known = point.split(least=LEAST, colluders=COLLUDERS)
            zeros = np.zeros((least - known, plan.dimension))
            sent = np.stack([plan.encode(zeros, [rng] * len(zeros)) for _ in range(DRAWS)])
            noise = plan.encoding.decode(sent.sum(axis=1, dtype=sent.dtype)) / plan.encoding.scale
            assert not plan.draw(rng).any()
        else:
            noise = plan.draw_many(DRAWS, rng) / plan.encoding.scale
            assert not plan.encode(np.zeros((1, plan.dimension)), [rng]).any()
        charged = own.mechanism.sampler_scale / own.compute_unit_scale(plan.encoding.scale)
        assert 0.93 < noise.std() / charged < 1.07

    def test_what_it_claims_follows_from_its_properties(self):
        point = NOISE_POINTS[self.name]
        for other in Adversary:
            if list(Adversary).index(other) > list(Adversary).index(point.adversary):
                with pytest.raises(ValueError, match="to hold against"):
                    replace(point, adversary=other)


class TestServer(NoisePointConformance):
    name = "server"


class TestShare(NoisePointConformance):
    name = "share"


class TestParty(NoisePointConformance):
    name = "party"


def test_every_noise_point_is_held_to_it():
    assert {kind.name for kind in NoisePointConformance.__subclasses__()} == set(NOISE_POINTS)


def test_parts_of_noise_that_nobody_draws_are_refused():
    with pytest.raises(ValueError, match="to be drawn by parties"):
        replace(NOISE_POINTS["server"], name="nobody", divided=True)


@pytest.mark.parametrize("name", ["frob", "", None, 3, ["share"], "SHARE"])
def test_a_guarantee_at_another_point_is_not_read(name):
    with pytest.raises(DecodingError, match="Expected a noise point of server, share, party"):
        decode_guarantee({"mechanism": GAUSSIAN, "noise_point": name})


GAUSSIAN = {"law": "gaussian", "sensitivity": 1.0, "sigma": 1.0, "dimension": 1}
