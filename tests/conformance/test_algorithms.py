"""What every algorithm promises. A new one subclasses `AlgorithmConformance`: how it is made."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from parley.client.algorithms.registry import ALGORITHMS
from parley.client.algorithms.second_moments import SecondMoments, UpperTriangle
from parley.client.algorithms.task_codec import decode_task, describe_task
from parley.client.contract.plan_decoding import decode_plan
from parley.client.contract.strict_decoding import DecodingError
from parley.client.data.party_block import PartyBlock
from parley.client.models.row_quantization import prepare_rows
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.sampling.random_stream import Randomness
from parley.privacy.sensitivity.bounded_sets import compute_sensitivity
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job
from parley.server.planning.evaluation_planner import build_held_out_counts, plan_evaluation
from parley.server.planning.job_planner import build_algorithm, build_model, plan_release

SIZES = (90, 90, 92, 93, 95)
FEDERATION = Federation(parties=5, min_records=90, total_records=460, max_records=95)
FACTS = FEDERATION.to_public_facts("uniform")
SEEDED = Randomness.from_seed(1)


def block_of(labels, seed=0):
    """Five parties, rows of 4 features and of L2 norm 1."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(sum(SIZES), 4))
    rows = prepare_rows(rows / np.linalg.norm(rows, axis=1, keepdims=True), intercept=False)
    return PartyBlock(
        features=rows,
        labels=rng.choice(np.asarray(labels), size=len(rows)),
        offsets=np.cumsum([0, *SIZES]),
    )


HOSTILE = [
    np.array(row)
    for row in (
        [1.0, 0, 0, 0],
        [0, -1.0, 0, 0],
        [0.5, 0.5, 0.5, -0.5],
        [1.0, 1.0, 1.0, 1.0],
        [-0.0, 5e-324, 0, 0],
        [np.nan, 1, 0, 0],
        [0, np.inf, -np.inf, 0],
        [1.8e308, 0, 0, 3.0],
    )
]


PRIVATE_SIZES = ("privacy.neighbouring=add-or-remove-one", "parties.min-records=90")


class AlgorithmConformance:
    """
    Attributes:
        kind: the row of `ALGORITHMS`.
        place: where it is, if that is one's own file.
        job: that asks for it.
        labels: that records may have.
        strange: labels that no reading lets through, and that must not matter all the same.
        features: columns of the rows that its claim is about.
    """

    kind: ClassVar[str]
    place: ClassVar[str] = ""
    job: ClassVar[tuple[str, ...]] = ()
    labels: ClassVar[tuple[float, ...]] = (-1.0, 1.0)
    strange: ClassVar[tuple[float, ...]] = ()
    features: ClassVar[int] = 4

    def made(self):
        """The algorithm and the plan of a round."""
        job = load_job(overrides=list(self.job)).resolve_auto(FEDERATION, 2)
        algorithm = build_algorithm(job, self.model(job), FEDERATION)
        return algorithm, plan_release(job, algorithm=algorithm, federation=FEDERATION)

    def model(self, job):
        return build_model(job, features=3, classes=2)  # and the intercept

    def described(self, algorithm):
        task = describe_task(algorithm)
        return json.loads(json.dumps(task, allow_nan=False))

    def built(self, task):
        own = {self.kind: self.place} if self.place else {}
        return decode_task(task, own_algorithms=own)

    def test_its_task_travels_as_plain_values_and_is_built_again(self):
        algorithm, plan = self.made()
        task = self.described(algorithm)
        assert task["kind"] == algorithm.kind == self.kind
        assert self.described(self.built(task)) == task
        if plan is not None:  # of second moments it is that of a network
            there = json.loads(json.dumps(plan.to_json(), allow_nan=False))
            assert decode_plan(there) == plan

    def test_a_task_with_a_key_too_few_or_too_many_is_refused(self):
        task = self.described(self.made()[0])
        for key in task:
            with pytest.raises(DecodingError):
                self.built({name: value for name, value in task.items() if name != key})
        with pytest.raises(DecodingError):
            self.built({**task, "surprise": 1})

    def test_server_and_party_claim_the_same(self):
        algorithm, _ = self.made()
        there = self.built(self.described(algorithm))
        claim = algorithm.claim(FACTS)
        assert claim == algorithm.claim(FACTS) == there.claim(FACTS)
        assert claim.dimension == algorithm.dimension
        assert claim.features == self.features

    def test_contributions_have_the_dimension_and_the_bound_that_are_claimed(self):
        algorithm, plan = self.made()
        claim = algorithm.claim(FACTS)
        given = algorithm.local(algorithm.init(), block_of(self.labels), plan, SEEDED)
        assert given.failed == ()
        assert given.values.shape == (5, claim.dimension)
        assert np.abs(given.values).max() <= claim.bound * (1 + 1e-12)
        sent = {"theta": algorithm.init()["theta"]}  # all that a party is sent of a state
        again = algorithm.local(sent, block_of(self.labels), plan, SEEDED)
        np.testing.assert_array_equal(again.values, given.values)

    def test_a_neighbour_moves_the_sum_by_no_more_than_is_claimed(self):
        algorithm, plan = self.made()
        claim, state = algorithm.claim(FACTS), algorithm.init()
        block = block_of(self.labels)
        changed = 1 if claim.unit is Unit.RECORD else SIZES[0]
        rows, labels = block.features.copy(), block.labels.copy()
        rows[:changed] *= -1
        labels[:changed] = self.labels[0]
        other = PartyBlock(features=rows, labels=labels, offsets=block.offsets)
        one, two = (algorithm.local(state, b, plan, SEEDED).values for b in (block, other))
        # One that is replaced is one less and one more.
        several = 1 if claim.neighbouring is Neighbouring.REPLACE_ONE else 2
        # The other parties' rows are theirs, and what they draw themselves.
        assert np.linalg.norm((one - two)[0]) <= several * claim.covered_sensitivity

    def test_all_neighbours_are_whole_numbers_within_the_set_that_is_claimed(self):
        """Of sums of whole numbers; hostile records, and a party's whole block of them."""
        algorithm, plan = self.made()
        claim, state, block = algorithm.claim(FACTS), algorithm.init(), block_of(self.labels)
        if not claim.whole:
            return

        def whole(rows, labels, begin, turned=1):
            """Party 0's vector with these in place of its first records; others may be turned."""
            own = PartyBlock(
                features=np.concatenate([rows, block.features[begin:][::turned]]),
                labels=np.concatenate([labels, block.labels[begin:][::turned]]).astype(float),
                offsets=np.cumsum([0, len(rows) + SIZES[0] - begin, *SIZES[1:]]),
            )
            with np.errstate(all="ignore"):
                given = algorithm.local(state, own, plan, SEEDED).values[0]
            found = [Fraction(x) * 2**claim.grid_bits for x in given.tolist()]
            assert all(x.denominator == 1 for x in found)
            return np.array([int(x) for x in found], dtype=object)

        if claim.unit is Unit.PARTY:
            for row in HOSTILE:
                found = whole(np.tile(row, (SIZES[0], 1)), block.labels[: SIZES[0]], SIZES[0])
                assert (found * found).sum() <= claim.lies_in.radius.l2_squared
            return
        records = list(itertools.product(HOSTILE, (*self.labels, *self.strange)))
        found = [whole(row[None], np.array([label]), 1) for row, label in records]
        # What a record changes is its own, whoever stands beside it.
        beside = [whole(row[None], np.array([label]), 1, -1) for row, label in records[::5]]
        for one, other in zip(found[::5], beside, strict=True):
            assert np.array_equal(one - found[0], other - beside[0])
        others = found
        if claim.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE:
            others = [whole(np.empty((0, 4)), np.empty(0), 1)]
        moved = [np.abs(one - other) for one in found for other in others]
        most = compute_sensitivity(claim.lies_in, claim.neighbouring, records=claim.records)
        farthest = max(each.sum() for each in moved)
        assert farthest <= most.l1
        assert farthest or claim.sums is not None  # a record may not be in the batch
        assert max((each * each).sum() for each in moved) <= most.l2_squared

    def test_a_step_leaves_the_state_before_it_as_it_was(self):
        algorithm, plan = self.made()
        state = algorithm.init()
        before = {name: value.copy() for name, value in state.items()}
        average = algorithm.local(state, block_of(self.labels), plan, SEEDED).values.mean(axis=0)
        after = algorithm.update(state, np.asarray(average, dtype=np.float64))
        assert all(np.array_equal(state[name], before[name]) for name in before)
        assert np.isfinite(algorithm.model_of(after)).all()
        assert all(isinstance(value, float) for value in algorithm.released(after).values())


class TestGradientPerturbation(AlgorithmConformance):
    kind = "gradient-perturbation"


class TestGradientPerturbationOfPrivateSizes(AlgorithmConformance):
    kind = "gradient-perturbation"
    job = (
        *PRIVATE_SIZES,
        "algorithm.clip-norm=0.3",
        "algorithm.momentum=0.9",
        "algorithm.nesterov=true",
    )


class TestOutputPerturbation(AlgorithmConformance):
    kind = "output-perturbation"
    job = ("algorithm.kind=output-perturbation", "algorithm.rounds=1")


class TestPathak(AlgorithmConformance):
    kind = "pathak"
    job = ("algorithm.kind=pathak", "algorithm.rounds=1")


class TestRajkumarAgarwal(AlgorithmConformance):
    kind = "rajkumar-agarwal"
    job = ("algorithm.kind=rajkumar-agarwal",)


class TestObjectivePerturbation(AlgorithmConformance):
    kind = "objective-perturbation"
    job = (
        "algorithm.kind=objective-perturbation",
        "algorithm.rounds=1",
        "privacy.noise-point=party",
    )

    def test_a_neighbour_moves_the_sum_by_no_more_than_is_claimed(self):
        """It claims what a solver misses of the same exact optimum: those of one party's records.

        What a neighbour does is covered by the noise inside:
        `tests/client/algorithms/test_objective_perturbation.py`.
        """
        algorithm, plan = self.made()
        tight = replace(algorithm, relative_tolerance=1e-9)
        block = block_of(self.labels)
        one, two = (
            each.local(each.init(), block, each_plan, SEEDED).values
            for each, each_plan in (
                (algorithm, plan),
                (tight, replace(plan, gradient_tolerance=1e-9)),
            )
        )
        assert (
            2 * np.linalg.norm(one - two, axis=1).max()
            <= algorithm.claim(FACTS).covered_sensitivity
        )


class TestFederatedAveraging(AlgorithmConformance):
    kind = "fedavg"
    job = (
        "algorithm.kind=fedavg",
        "model.kind=mlp",
        "privacy.unit=party",
        "privacy.epsilon=8",
        "dp-sgd.sampling-rate=0.1",
        "algorithm.rounds=2",
    )
    labels = (0, 1, 2)

    def model(self, job):
        from parley.client.models.networks import Network

        return Network.build(job.model.kind, features=4, classes=3, hidden=(8, 5))


class TestFederatedAveragingOfRecords(TestFederatedAveraging):
    job = (
        "algorithm.kind=fedavg",
        "model.kind=mlp",
        "privacy.epsilon=8",
        "algorithm.rounds=2",
        "dp-sgd.sampling-rate=0.5",
        "dp-sgd.local-steps=1",
    )

    def test_a_neighbour_moves_the_sum_by_no_more_than_is_claimed(self):
        """The sum of a step, of which the update is a multiple."""
        algorithm, plan = self.made()
        training, claim = algorithm.training, algorithm.claim(FACTS)
        first = SIZES[0]
        block, state = block_of(self.labels), algorithm.init()
        moved = []
        for at in range(20):
            rows, labels = block.features.copy(), block.labels.copy()
            rows[at], labels[at] = HOSTILE[at % len(HOSTILE)], (labels[at] + 1) % 3
            other = replace(block, features=rows, labels=labels)
            one, two = (algorithm.local(state, b, plan, SEEDED).values for b in (block, other))
            assert np.array_equal(one[1:], two[1:])
            step = training.learning_rate / (training.sampling_rate * first)
            moved.append(np.linalg.norm((one - two)[0]) / step)
        assert 0.4 * claim.sensitivity < max(moved) <= claim.sensitivity * (1 + 1e-9)


class TestDistributedDPSGD(AlgorithmConformance):
    kind = "distributed-dp-sgd"
    job = (
        "algorithm.kind=distributed-dp-sgd",
        "model.kind=mlp",
        "privacy.epsilon=8",
        "dp-sgd.sampling-rate=0.1",
        "dp-sgd.local-steps=3",
        "algorithm.rounds=2",
    )
    labels = (0, 1, 2)
    model = TestFederatedAveraging.model


class TestDistributedDPSGDOfWrittenGradients(TestDistributedDPSGD):
    job = (*TestDistributedDPSGD.job, "dp-sgd.per-example-method=vmap", "dp-sgd.sampling-rate=1")


class TestDistributedDPSGDOfParties(TestDistributedDPSGD):
    job = (*TestDistributedDPSGD.job, "privacy.unit=party")


class TestDistributedDPSGDOfBoth(TestDistributedDPSGD):
    job = (*TestDistributedDPSGD.job, "privacy.unit=both", "dp-sgd.optimiser=adam")


class TestSecondMoments(AlgorithmConformance):
    kind = "second-moments"
    strange = (np.nan, 7.0)

    def made(self):
        relation = Neighbouring.REPLACE_ONE
        triangle = UpperTriangle(features=4)
        return SecondMoments(model=triangle, neighbouring=relation, bound=95.0), None


class TestMarginals(AlgorithmConformance):
    kind = "marginals"
    job = ("algorithm.kind=marginals", "model.kind=table", "privacy.delta=1e-6")
    labels = (0, 1, 2)
    strange = (np.nan, -1, 7)
    columns = """
        sex = { kind = "categorical", categories = ["F", "M"] }
        age = { kind = "numeric", range = [0, 90], bins = 2 }
    """

    def made(self):
        job = load_job(overrides=list(self.job)).resolve_auto(FEDERATION, 2)
        ward = 'ward = { kind = "label", classes = ["A", "B", "C"] }'
        federation = replace(FEDERATION, schema=f"[columns]\n{self.columns}\n{ward}")
        model = build_model(job, features=4, classes=3)
        algorithm = build_algorithm(job, model, federation)
        return algorithm, plan_release(job, algorithm=algorithm, federation=federation)


class TestMarginalsOfPrivateSizes(TestMarginals):
    job = (*TestMarginals.job, *PRIVATE_SIZES)


class TestRandomFeatures(AlgorithmConformance):
    kind = "random-features"
    job = (
        *("algorithm.kind=random-features", "model.kind=table", "privacy.delta=1e-6"),
        "algorithm.frequencies=40",
    )
    labels = (0, 1, 2)
    strange = (np.nan, -1, 7)
    columns = TestMarginals.columns
    made = TestMarginals.made


class TestRandomFeaturesOfAnArray(TestRandomFeatures):
    job = (*TestRandomFeatures.job, *PRIVATE_SIZES)
    columns = 'x = { kind = "array", shape = [4], range = [0, 1] }'


class TestHeldOutCounts(AlgorithmConformance):
    kind = "held-out-counts"
    strange = (np.nan, -3, 7)
    job = ("evaluation.kind=federated", "privacy.epsilon=2")

    def made(self):
        job = load_job(overrides=list(self.job)).resolve_auto(FEDERATION, 2)
        learner = build_algorithm(job, self.model(job), FEDERATION)
        counts = build_held_out_counts(job, learner, FEDERATION)
        return counts, plan_evaluation(job, counts, parties=5, run_id="plan")


class TestHeldOutCountsOfANetwork(TestHeldOutCounts):
    job = (
        "algorithm.kind=distributed-dp-sgd",
        "model.kind=mlp",
        "dp-sgd.sampling-rate=0.1",
        "evaluation.kind=federated",
    )
    labels = (0, 1, 2)
    model = TestFederatedAveraging.model


class TestFlower(AlgorithmConformance):
    """With an app that reads no record of a block: its rows are placeholders."""

    kind = "flower"
    app = f"{Path(__file__).parents[1] / 'fixtures' / 'flower_apps.py'}:app"
    job = (
        *("algorithm.kind=flower", f"model.kind={app}", "privacy.unit=party"),
        *("privacy.epsilon=8", "algorithm.rounds=2"),
    )
    labels = (0, 1)
    features = 1

    def built(self, task):
        return decode_task(task, own_models={"flower_apps.py:app": self.app})


class TestOnesOwn(AlgorithmConformance):
    kind = "federated_count.py:FederatedCount"
    place = f"{Path(__file__).parents[2] / 'examples' / 'federated_count.py'}:FederatedCount"
    job = (
        f"algorithm.kind={place}",
        "algorithm.rounds=1",
        "model.kind=none",
        "privacy.neighbouring=add-or-remove-one",
    )
    labels = (0, 1)

    def model(self, job):
        return build_model(job, features=4, classes=2)


class TestClippedSumOfOnesOwn(TestOnesOwn):
    kind = "own_sum.py:Powers"
    place = f"{Path(__file__).parents[1] / 'fixtures' / 'own_sum.py'}:Powers"
    job = (f"algorithm.kind={place}", "algorithm.rounds=1", "model.kind=none")
    strange = (np.nan, 7.0)


def test_every_algorithm_is_held_to_it():
    kinds = AlgorithmConformance.__subclasses__()
    held = {kind.kind for kind in kinds if not kind.place}
    # Queries are no job: tests/conformance/test_queries.py holds each of them to what it promises.
    assert held == set(ALGORITHMS) - {"query"}
