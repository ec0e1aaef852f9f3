"""A plan that claims less than its task costs is declined, and so is what the owner excludes."""

from dataclasses import replace

import numpy as np
import pytest
from agreements import NETWORK
from plans import with_primary
from proposals import LESS, grid, mechanism, refused

from parley.client.algorithms.party_sampling import PartySampling
from parley.client.algorithms.task_codec import describe_task
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.threat_model import NOISE_POINTS, Adversary, Neighbouring, Unit
from parley.privacy.mechanisms.gaussian import Gaussian
from parley.privacy.mechanisms.laplace import LaplaceAsPrinted
from parley.privacy.mechanisms.noise_shares import Shares
from parley.privacy.mechanisms.subsampled_gaussian import PartySteps


@pytest.fixture(scope="module")
def counting_world(tmp_path_factory, wired):
    overrides = (*NETWORK, "dp-sgd.clipped-fraction-share=0.1")
    return wired.World(tmp_path_factory.mktemp("parties"), overrides=overrides, reopen=False)


@pytest.fixture(scope="module")
def sampled_world(tmp_path_factory, wired):
    overrides = (*NETWORK, "algorithm.kind=distributed-dp-sgd", "dp-sgd.sampling-rate=0.5")
    return wired.World(tmp_path_factory.mktemp("parties"), overrides=overrides, reopen=False)


def test_the_honest_proposals_are_accepted(
    world, network_world, counting_world, sampled_world, wired
):
    for each in (world, network_world, counting_world, sampled_world):
        wired.ok(each.ask(0, "join", **each.join_head("01" * 16)))


def in_shares(plan, **split):
    """The plan with its noise in shares."""
    own = plan.primary.mechanism
    return with_primary(
        plan,
        noise_point=NOISE_POINTS["share"],
        against=Adversary.COLLUDERS,
        shares=Shares.from_mechanism(own, **split),
    )


def own(**changes):
    """Of the plan's first guarantee."""
    return lambda plan: with_primary(plan, **changes)


def plan_of(**changes):
    return lambda plan: replace(plan, **changes)


def shared(**split):
    return lambda plan: in_shares(plan, **split)


def longer(plan):
    """A sum that wraps around."""
    bits = 30 - int(np.ceil(np.log2(plan.encoding.bound)))
    encoding = replace(plan.encoding, scale_bits=bits, ring_bits=32)
    return replace(mechanism(plan, sensitivity=1e12), encoding=encoding)


def as_printed(plan):
    """A law that is not accepted."""
    given = plan.primary.mechanism.sensitivity
    law = LaplaceAsPrinted(sensitivity=given, dimension=plan.dimension, epsilon=0.1)
    return with_primary(plan, mechanism=law)


def inside(plan):
    """Noise inside the party."""
    steps = PartySteps(
        sensitivity=2.0,
        dimension=plan.dimension,
        clip_norm=1.0,
        noise_multiplier=5.0,
        sampling_rate=1.0,
        steps=1,
        neighbouring="replace-one",
    )
    point = NOISE_POINTS["party"]
    return with_primary(plan, noise_point=point, against=Adversary.OTHERS, mechanism=steps)


CLAIMS = {
    **LESS,
    "a shorter gradient": (lambda p: replace(p, lipschitz=p.lipschitz / 2), "sensitivity"),
    "more records than there are": (plan_of(min_records=41), "too-few-records"),
    "a fraction of a record": (plan_of(mean_records=0.2), "sensitivity"),
    "a sum that wraps around": (longer, "sensitivity"),
    "another dimension": (lambda p: replace(mechanism(p, dimension=6), dimension=6), "model"),
    "another unit": (own(unit=Unit.PARTY, charges=(Unit.PARTY,)), "unit"),
    "another relation": (own(neighbouring=Neighbouring.ADD_OR_REMOVE_ONE), "neighbouring"),
    "a sum of one": (plan_of(min_survivors=1), "cohort-too-small"),
    "more survivors than the protocol": (plan_of(min_survivors=3), "cohort-too-small"),
    "a law that is not accepted": (as_printed, "mechanism"),
    "noise inside the party": (inside, "mechanism"),
    "shares for more survivors than may be left": (
        shared(parties=3, least=3, colluders=0),
        "mechanism",
    ),
    "shares with other colluders than the run's": (
        shared(parties=3, least=2, colluders=1),
        "mechanism",
    ),
    "shares of another cohort": (shared(parties=4, least=2, colluders=0), "mechanism"),
    "a calibration that is not accepted": (own(calibration="as-printed"), "calibration"),
    "noise from a seed": (plan_of(seeded=True), "seeded-noise"),
    "another algorithm": (plan_of(algorithm="fedavg"), "algorithm"),
    "another λ": (lambda p: replace(p, lambda_=p.lambda_ * 2), "algorithm"),
    "another ring": (lambda p: grid(p, ring_bits=64), "protocol"),
    "another run": (plan_of(run_id="r-2"), "wrong-run"),
    "another cohort": (plan_of(parties=4), "wrong-run"),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_plan_that_is_not_what_it_says_is_declined(world, wired, claim):
    change, expected = CLAIMS[claim]
    assert refused(world, wired, plan=change(world.plan)) == expected


def settings(world, **changes):
    task = describe_task(world.algorithm)
    return {**task, "settings": {**task["settings"], **changes}}


def test_a_task_that_says_its_gradients_are_shorter_is_declined(world, wired):
    lying = replace(world.algorithm, lipschitz=world.algorithm.lipschitz / 10)
    task = describe_task(lying)
    plan = replace(
        with_primary(world.plan, sensitivity=world.plan.primary.sensitivity / 10),
        lipschitz=lying.lipschitz,
    )
    assert refused(world, wired, task=task, plan=plan) == "sensitivity"
    clipped = with_primary(world.plan, clip_norm=world.plan.lipschitz / 2)
    assert refused(world, wired, plan=clipped) == "sensitivity"


def test_a_model_that_does_not_fit_the_rows_or_the_policy_is_declined(world, wired):
    task = describe_task(world.algorithm)
    wide = {**task, "model": {**task["model"], "features": 9}}
    assert refused(world, wired, task=wide) == "model"
    huge = {**task, "model": {**task["model"], "features": 10**8}}
    assert refused(world, wired, task=huge) == "model"
    unknown = {**task, "model": {**task["model"], "loss": {"kind": "elephant"}}}
    assert refused(world, wired, task=unknown) == "model"
    assert refused(world, wired, task={**task, "kind": "elephant"}) == "algorithm"
    assert refused(world, wired, task={**task, "model": 5}) == "protocol"
    assert refused(world, wired, task=settings(world, momentum="much")) == "protocol"
    assert refused(world, wired, label="ridge-ish") == "model"
    assert refused(world, wired, intercept=False, rounds=0) == "protocol"


@pytest.mark.parametrize(
    ("section", "key", "value", "expected"),
    [
        ("training", "noise_multiplier", 0.01, "mechanism"),
        ("training", "clip_norm", 100.0, "sensitivity"),
        ("training", "sampling_rate", 1.0, "mechanism"),
        ("training", "steps", 50, "mechanism"),
        ("training", "steps", 10**9, "algorithm"),
        ("training", "per_example_method", "shortcut", "algorithm"),
        ("settings", "neighbouring", "add-or-remove-one", "neighbouring"),
        ("settings", "unit", "party", "unit"),
        ("settings", "seed", 5, "protocol"),  # no server says what a party draws from
        ("settings", "update_bound", 1e9, "sensitivity"),
        ("network", "classes", 3, "model"),
    ],
)
def test_training_with_less_noise_than_the_plan_charges_is_declined(
    network_world, wired, section, key, value, expected
):
    task = describe_task(network_world.algorithm)
    other = {**task, section: {**task[section], key: value}}
    got = refused(network_world, wired, task=other)
    assert got == expected or (key == "clip_norm" and got == "mechanism")


COUNTS = {
    "a plan without its coordinate": (
        lambda p: replace(mechanism(p, dimension=p.dimension - 1), dimension=p.dimension - 1),
        "model",
    ),
    "noise of another dimension": (
        lambda p: mechanism(p, dimension=p.dimension - 1),
        "protocol",
    ),
    "another share": (lambda p: mechanism(p, clipped_share=0.2), "mechanism"),
    "no share": (lambda p: mechanism(p, clipped_share=0.0), "mechanism"),
    "more noise than there is": (
        lambda p: mechanism(p, noise_multiplier=p.primary.mechanism.gradient_multiplier),
        "mechanism",
    ),
}


CONTRADICTIONS = {
    "what hides records charged to parties": {"charges": ["record", "party"]},
    "a unit that nothing is charged to": {"charges": []},
    "the server's noise against the server": {"against": "server"},
    "no sensitivity": {"sensitivity": 0.0},
    "all of δ": {"delta": 1.0},
    "another adversary": {"against": "nobody"},
    "a fact too many": {"epsilon": 1.0},
}


@pytest.mark.parametrize("claim", CONTRADICTIONS)
def test_a_guarantee_that_contradicts_itself_is_no_proposal(world, wired, claim):
    plan = world.plan.to_json()
    first = {**plan["guarantees"][0], **CONTRADICTIONS[claim]}
    for guarantees in ([first], [first, first], []):
        head = world.join_head(plan={**plan, "guarantees": guarantees})
        assert wired.reason(world.ask(0, "join", **head)) == "protocol"


def test_a_linear_model_has_no_guarantee_for_the_whole_party(tmp_path, wired):
    """Nobody derives a bound on what a party's gradient is, so that no noise covers it."""
    world = wired.World(tmp_path, **{"party-epsilon": 50.0, "party-delta": 1e-5})
    second = replace(world.plan.primary, unit=Unit.PARTY, charges=(Unit.PARTY,))
    plan = replace(world.plan, guarantees=(world.plan.primary, second))
    assert refused(world, wired, plan=plan) == "unit"


@pytest.mark.parametrize("claim", COUNTS)
def test_a_plan_that_is_not_what_its_count_costs_is_declined(counting_world, wired, claim):
    change, expected = COUNTS[claim]
    assert refused(counting_world, wired, plan=change(counting_world.plan)) == expected


@pytest.mark.parametrize(
    ("section", "key", "value", "expected"),
    [
        ("training", "clipped_share", 0.0, "protocol"),
        ("training", "clipped_share", 0.2, "mechanism"),
        ("training", "clipped_share", 1.0, "protocol"),
        ("settings", "clipped_reach", 0.0, "protocol"),
        ("settings", "clipped_reach", -1.0, "protocol"),
        ("settings", "unit", "party", "protocol"),
        ("settings", "both", True, "protocol"),
    ],
)
def test_a_count_that_the_task_gives_another_share_or_unit_is_declined(
    counting_world, wired, section, key, value, expected
):
    task = describe_task(counting_world.algorithm)
    other = {**task, section: {**task[section], key: value}}
    assert refused(counting_world, wired, task=other) == expected


def test_a_task_that_counts_where_the_plan_does_not_is_declined(
    network_world, counting_world, wired
):
    task = describe_task(counting_world.algorithm)
    assert refused(network_world, wired, task=task) == "model"


def test_a_model_outside_the_ball_that_ridge_is_bounded_on_is_declined(tmp_path, wired):
    world = wired.World(tmp_path, overrides=("model.kind=ridge",))
    world.join(label="ridge")
    radius = world.algorithm.model.loss.theta_radius
    inside = np.full(5, radius / np.sqrt(5))
    answers = world.vectors(1, state=world.state(inside * 1.0000001))
    assert {wired.reason(a) for a in answers.values()} == {"sensitivity"}
    world.prepare(2)
    projected = world.algorithm.model.project(inside * 7)
    answers = world.vectors(2, state=world.state(projected))
    assert {a.head["status"] for a in answers.values()} == {"ok"}


def test_a_mean_size_that_makes_weights_larger_than_the_plan_says_is_declined(tmp_path, wired):
    world = wired.World(tmp_path, overrides=("parties.weights=size",))
    lower = replace(world.plan, mean_records=world.plan.mean_records - 0.1)
    assert refused(world, wired, plan=lower) == "sensitivity"
    wired.ok(world.ask(0, "join", **world.join_head()))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("unit", Unit.PARTY, "unit"),
        ("neighbouring", Neighbouring.ADD_OR_REMOVE_ONE, "neighbouring"),
    ],
)
def test_a_linear_model_is_proved_for_one_replaced_record_only(
    tmp_path, wired, key, value, expected
):
    world = wired.World(tmp_path, **{key: value})
    changes = {key: value, **({"charges": (value,)} if key == "unit" else {})}
    other = with_primary(world.plan, **changes)
    assert refused(world, wired, plan=other) == expected


def test_a_model_of_other_classes_than_the_labels_is_declined(tmp_path, wired):
    world = wired.World(tmp_path, classes=3)
    assert refused(world, wired) == "model"


def test_an_optimum_less_certain_than_the_noise_allows_for_is_declined(tmp_path, wired):
    world = wired.World(tmp_path, overrides=("algorithm.kind=output-perturbation",))
    looser = replace(world.plan, gradient_tolerance=world.plan.gradient_tolerance * 2)
    assert refused(world, wired, plan=looser) == "sensitivity"
    tighter = replace(world.plan, gradient_tolerance=world.plan.gradient_tolerance * 1e-9)
    assert refused(world, wired, plan=tighter) == "sensitivity"
    assert refused(world, wired, plan=replace(world.plan, gradient_tolerance=None)) == "algorithm"
    assert refused(world, wired, plan=with_primary(world.plan, clip_norm=0.5)) == "sensitivity"
    for key, value in {"relative_tolerance": 1e-12, "lambda_": 1e-12}.items():
        # Problems whose certificate depends on what the records are.
        hard = replace(world.algorithm, **{key: value})
        plan = replace(
            world.plan,
            lambda_=hard.lambda_,
            gradient_tolerance=hard.relative_tolerance * hard.lipschitz,
        )
        assert refused(world, wired, task=describe_task(hard), plan=plan) == "algorithm"
    ball = describe_task(world.algorithm)
    loss = {"kind": "ridge", "radius": 1.0, "label_bound": 1.0}
    ball = {**ball, "model": {**ball["model"], "loss": loss}}
    assert refused(world, wired, task=ball) == "algorithm"
    wired.ok(world.ask(0, "join", **world.join_head()))


SAMPLED = {
    "amplification by batches that the task does not draw": {"sampling_rate": 0.01},
    "fewer sums than the task makes": {"steps": 1},
    "another relation of the noise": {"neighbouring": "add-or-remove-one"},
    "a record's share of a sum that is shorter than C": {"sensitivity": 1.0},
}


@pytest.mark.parametrize("changes", SAMPLED.values(), ids=SAMPLED)
def test_a_plan_that_charges_sampled_sums_for_less_is_declined(sampled_world, wired, changes):
    lying = mechanism(sampled_world.plan, **changes)
    assert refused(sampled_world, wired, plan=lying) in {"mechanism", "sensitivity"}
    one = Gaussian(
        sensitivity=sampled_world.plan.primary.mechanism.sensitivity,
        dimension=sampled_world.plan.dimension,
        sigma=sampled_world.plan.primary.mechanism.sigma,
    )
    once = with_primary(sampled_world.plan, mechanism=one)
    assert refused(sampled_world, wired, plan=once) == "mechanism"


def test_a_coin_that_lets_a_party_in_less_often_than_delta_is_declined(sampled_world, wired):
    """Drill: δ covers all that it is in, so that it would be charged nothing at any noise."""

    def proposed(rate):
        own = replace(sampled_world.algorithm, attendance=PartySampling(rate=rate))
        plan = mechanism(sampled_world.plan, attendance=rate)
        return {"task": describe_task(own), "plan": plan}

    rare = proposed(1e-7)
    assert (
        Composition.from_events([rare["plan"].primary.event]).compute_lowest_epsilon(1e-5)[1] < 1e-3
    )
    assert refused(sampled_world, wired, **rare) == "degenerate"
    assert refused(sampled_world, wired, **proposed(1e-5)) == "degenerate"
    often = proposed(0.5)
    often["plan"] = often["plan"].to_json()
    wired.ok(sampled_world.ask(0, "join", **sampled_world.join_head("02" * 16, **often)))
