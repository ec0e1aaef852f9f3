"""A grid on which the small vanish, and tasks that say nothing, are refused before any charge."""

import json
from dataclasses import replace

import numpy as np
import pytest
from agreements import NETWORK
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import with_primary

from parley.client.algorithms.task_codec import describe_task
from parley.client.contract.plan_decoding import decode_plan
from parley.client.contract.ring_noise_tail import TAIL_PROBABILITY, compute_noise_tail
from parley.client.party.grid_verification import MAX_INFLATION
from parley.secure_agg.encoding import RingTooSmall
from parley.secure_agg.finest_grid_check import is_finest
from parley.secure_agg.grid_selection import choose_grid
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job
from parley.server.planning.job_planner import build_algorithm, build_model, plan_release

SIZE = ("parties.weights=size",)
PARTY = (*NETWORK, "privacy.unit=party", "dp-sgd.party-clip-norm=0.5", "dp-sgd.sampling-rate=0.3")
BOTH = (*NETWORK, "privacy.unit=both", "privacy.party-epsilon=3", "privacy.record-bound=inner")


@pytest.fixture(scope="module")
def worlds(tmp_path_factory, wired):
    def made(*overrides, **data):
        return wired.World(
            tmp_path_factory.mktemp("parties"), overrides=overrides, reopen=False, **data
        )

    # One party of a thousand, among small ones.
    sized = wired.World(
        tmp_path_factory.mktemp("parties"), overrides=SIZE, sizes=(1000, 12, 8), reopen=False
    )
    return {
        "sized": sized,
        "gradients": made(),
        "ridge": made("model.kind=ridge"),
        "output": made("algorithm.kind=output-perturbation"),
        "record": made(*NETWORK),
        "party": made(*PARTY, unit="party"),
        "both": made(*BOTH, **{"party-epsilon": 50.0, "party-delta": 1e-5}),
    }


def joins(world, *, plan=None, task=None, party=0):
    """The reason that a party gives, or ok."""
    plan = world.plan if plan is None else plan
    session = f"{len(world.sessions) + 1:032x}" if hasattr(world, "sessions") else "01" * 16
    world.sessions = [*getattr(world, "sessions", []), session]
    label = "ridge" if world.job.model.kind == "ridge" else "logistic"
    head = {"plan": plan.to_json(), "label": label, **({"task": task} if task else {})}
    head["parameters"] = (
        world.parameters(session, ring_bits=plan.encoding.ring_bits).to_bytes().hex()
    )
    reply = world.ask(party, "join", **{**world.join_head(session), **head})
    return reply.head.get("reason", "ok")


def coarser(plan, bits):
    """The plan on a grid of that scale, everything else as its rule has it."""
    change = 2.0 ** (bits - plan.encoding.scale_bits)
    root = np.sqrt(plan.dimension)

    def scaled(noise):
        wide = (noise.sensitivity - root) * change + root
        return replace(noise, sensitivity=wide, sigma=noise.sigma * wide / noise.sensitivity)

    plan = replace(plan, encoding=replace(plan.encoding, scale_bits=bits))
    return replace(
        plan,
        guarantees=tuple(
            replace(each, mechanism=scaled(each.mechanism)) if each in plan.sum_guarantees else each
            for each in plan.guarantees
        ),
    )


def test_every_honest_plan_has_the_grid_that_parties_derive(worlds):
    assert {kind: joins(world) for kind, world in worlds.items()} == dict.fromkeys(worlds, "ok")


def test_a_grid_on_which_only_the_largest_party_shows_is_refused(worlds, wired):
    world = worlds["sized"]
    plan = coarser(world.plan, 1)
    vectors = world.encoded(plan=plan)
    # It is a sum of one: the others' contributions round to nothing.
    assert [vector.any() for vector in vectors[1:]] == [False, False]
    assert joins(world, plan=plan) == "grid"


@pytest.mark.parametrize("kind", ["gradients", "sized", "party", "record", "both"])
def test_a_grid_one_bit_coarser_than_the_rule_is_refused(worlds, kind):
    plan = worlds[kind].plan
    found = joins(worlds[kind], plan=coarser(plan, plan.encoding.scale_bits - 1))
    # A party's update is of whole numbers of the plan's grid: a coarser one has another Δ.
    assert found == ("sensitivity" if kind == "party" else "grid")


def test_a_bound_that_no_contribution_reaches_does_not_make_the_grid_coarse(worlds):
    plan = worlds["gradients"].plan
    for bits in (8, 16):
        coarse = coarser(plan, plan.encoding.scale_bits - bits)
        grid = replace(coarse.encoding, bound=plan.encoding.bound * 2.0**bits)
        assert joins(worlds["gradients"], plan=replace(coarse, encoding=grid)) == "grid"


def test_a_ring_without_a_fine_enough_grid_is_refused_unless_the_owner_allows_it(tmp_path, wired):
    world = wired.World(
        tmp_path,
        overrides=("secure-aggregation.ring-bits=16", "privacy.epsilon=0.2"),
        sizes=(400, 500, 600),
        reopen=False,
    )
    plan = world.plan
    assert plan.encoding.compute_inflation(plan.primary.sensitivity, plan.dimension) > MAX_INFLATION
    assert joins(world) == "grid"
    world.consent({"insist-on-fine-grid": False})
    world.services = [world.open(i) for i in range(world.count)]
    assert joins(world) == "ok"


LAWS = [
    ("privacy.noise=gaussian",),
    ("privacy.noise=gaussian", "privacy.calibration=as-printed"),
    ("privacy.noise=discrete-gaussian", "privacy.calibration=zcdp"),
    ("privacy.noise=discrete-gaussian", "privacy.calibration=cks20"),
    ("privacy.noise=l2-laplace",),
    ("privacy.noise=laplace-l1",),
    ("privacy.noise=laplace-as-printed",),
]


POINTS = [
    *((law, "server") for law in LAWS),
    *((law, "share") for law in LAWS if "privacy.noise=discrete-gaussian" not in law),
]


@pytest.mark.parametrize(("law", "point"), POINTS, ids="".join)
@pytest.mark.parametrize("ring", [(), ("secure-aggregation.ring-bits=64",)], ids=["auto", "64"])
def test_the_rule_holds_for_the_noise_of_every_law(law, point, ring):
    for parties, epsilon, weights in ((2, 0.1, "uniform"), (10, 1, "size"), (1000, 4, "uniform")):
        job = load_job(
            overrides=[
                *(*law, *ring),
                f"privacy.noise-point={point}",
                f"parties.count={parties}",
                f"privacy.epsilon={epsilon}",
                f"parties.weights={weights}",
                "algorithm.rounds=10",
            ]
        )
        federation = Federation.from_sizes(np.arange(50, 50 + parties))
        algorithm = build_algorithm(job, build_model(job, features=30, classes=0), federation)
        plan = plan_release(job, algorithm=algorithm, federation=federation)
        assert decode_plan(json.loads(json.dumps(plan.to_json()))) == plan
        tail = plan.compute_noise_tail(TAIL_PROBABILITY)
        assert is_finest(plan.encoding, parties, tail)
        grid = replace(plan.encoding, scale_bits=plan.encoding.scale_bits - 2)
        assert not is_finest(grid, parties, tail / 4)


@settings(deadline=None, max_examples=200)
@given(
    bound=st.floats(1e-6, 1e6),
    parties=st.integers(1, 10_000),
    slope=st.floats(0, 1e6),
    rest=st.floats(0, 100),
    ring=st.sampled_from([16, 32, 64]),
)
def test_what_the_rule_fits_is_its_finest_and_what_is_coarser_is_not(
    bound, parties, slope, rest, ring
):
    def tail(bits):
        return slope * 2.0**bits + rest

    try:
        grid = choose_grid(
            bound=bound,
            parties=parties,
            dimension=5,
            noise_tail=tail,
            sensitivity=None,
            ring_bits=ring,
        )
    except RingTooSmall:
        return
    assert is_finest(grid, parties, tail(grid.scale_bits))
    if grid.scale_bits > -62:
        two_bits = replace(grid, scale_bits=grid.scale_bits - 2)
        assert not is_finest(two_bits, parties, tail(two_bits.scale_bits)) or rest > slope


def ridge(world, **loss):
    task = describe_task(world.algorithm)
    return {**task, "model": {**task["model"], "loss": {**task["model"]["loss"], **loss}}}


NOTHING = {
    "targets of nothing": ("ridge", lambda w: ridge(w, label_bound=0.0), "protocol"),
    "targets of next to nothing": (
        "ridge",
        lambda w: ridge(w, label_bound=1e-12, radius=2 - 1e-12),
        "degenerate",
    ),
}
NO_STEPS = [
    ("party", {"learning_rate": 1e-300}),  # it rounds to nothing
    ("party", {"learning_rate": 0.0}),
    ("party", {"learning_rate": -0.5}),
    ("party", {"learning_rate": 1e300}),
    ("party", {"momentum": 1.0}),
    ("party", {"sampling_rate": 1e-9}),
    ("record", {"learning_rate": 1e-300}),
]


@pytest.mark.parametrize("task", NOTHING)
def test_a_task_that_says_nothing_is_refused(worlds, task):
    kind, change, expected = NOTHING[task]
    world = worlds[kind]
    assert joins(world, task=change(world)) == expected


@pytest.mark.parametrize(("kind", "settings"), NO_STEPS)
def test_steps_that_lead_nowhere_are_refused(worlds, kind, settings):
    task = describe_task(worlds[kind].algorithm)
    task["training"] = {**task["training"], **settings}
    assert joins(worlds[kind], task=task) == "degenerate"


def test_an_optimum_that_is_certified_wherever_it_starts_is_refused(worlds):
    world = worlds["output"]
    loose = replace(world.algorithm, relative_tolerance=1e6)
    wider = (1 + 1e6) / (1 + world.algorithm.relative_tolerance)
    plan = world.plan
    plan = replace(
        with_primary(
            plan,
            sensitivity=plan.primary.sensitivity * wider,
            mechanism=replace(plan.primary.mechanism, sensitivity=1e12),
        ),
        gradient_tolerance=1e6 * loose.lipschitz,
        encoding=replace(plan.encoding, bound=loose.bound, scale_bits=0, ring_bits=64),
    )
    assert joins(world, plan=plan, task=describe_task(loose)) == "degenerate"


def test_the_ring_keeps_room_for_the_noise_that_parties_derive(worlds):
    plan = worlds["gradients"].plan
    grid = plan.encoding
    grid.check_capacity(plan.parties, compute_noise_tail(plan.primary.mechanism))
    twice = coarser(plan, grid.scale_bits + 1)
    with pytest.raises(RingTooSmall):
        twice.encoding.check_capacity(plan.parties, compute_noise_tail(twice.primary.mechanism))
