"""What travels from server to party: the plan and the task, strictly parsed."""

import copy
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import with_primary

from parley.client.algorithms.base import Claim
from parley.client.algorithms.task_codec import decode_task, describe_task
from parley.client.contract.plan_decoding import decode_plan
from parley.client.contract.strict_decoding import DecodingError
from parley.client.data.party_block import PartyBlock
from parley.client.models.contribution_clipping import build_real_ball
from parley.privacy.accounting.rounding import to_fraction
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.mechanisms.discrete_gaussian import DiscreteGaussian
from parley.privacy.mechanisms.gaussian import Gaussian
from parley.privacy.sampling.random_stream import Randomness
from parley.privacy.sensitivity.bounded_sets import Set
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job
from parley.server.planning.job_planner import build_algorithm, build_model, plan_release

_FEDERATION = Federation(parties=5, min_records=90, total_records=460, max_records=95)


@cache
def made(*overrides):
    job = load_job(None, overrides=list(overrides)).resolve_auto(_FEDERATION, 3)
    if job.algorithm.kind == "fedavg":
        from parley.client.models.networks import Network

        model = Network.build(job.model.kind, features=4, classes=3, hidden=(8, 5))
    else:
        model = build_model(job, features=4, classes=3)
    algorithm = build_algorithm(job, model, _FEDERATION)
    return algorithm, plan_release(job, algorithm=algorithm, federation=_FEDERATION)


OPTIMA = ("algorithm.kind=output-perturbation", "algorithm.rounds=1")
NETWORK = ("algorithm.kind=fedavg", "model.kind=mlp", "dp-sgd.sampling-rate=0.1")
NETWORK += ("algorithm.rounds=2",)


def test_a_task_cannot_make_a_party_import_code():
    algorithm, _ = made(*NETWORK)
    task = describe_task(algorithm)
    task["network"]["kind"] = "os:getcwd"
    with pytest.raises(DecodingError, match="model of your own that the party"):
        decode_task(task)
    with pytest.raises(DecodingError, match="getcwd"):  # allowed by name, and no network
        decode_task(task, own_models={"os:getcwd": "os:getcwd"})


def test_parties_alone_draw_from_one_seed_what_is_their_own():
    algorithm, plan = made(*NETWORK)
    rows = np.random.default_rng(0).normal(size=(95, 4)) / 10
    block = PartyBlock(
        features=rows, labels=np.arange(95) % 3, offsets=np.array([0, 95], dtype=np.int64)
    )
    state = algorithm.init()
    first, again, second = (
        algorithm.local(state, block, plan, Randomness.from_seed(1, party=index)).values
        for index in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)


def test_the_digest_binds_the_noise_law():
    _, plan = made("privacy.noise-point=server")  # where both laws may be
    gaussian = plan.primary.mechanism
    assert isinstance(gaussian, Gaussian)
    discrete = DiscreteGaussian(
        sensitivity=gaussian.sensitivity, sigma=gaussian.sigma, dimension=gaussian.dimension
    )
    assert with_primary(plan, mechanism=discrete).compute_digest() != plan.compute_digest()


_WRONG = st.sampled_from(
    [None, True, -1, 0, 0.5, "x", "x" * 600, [], {}, 2**70, float("inf"), float("nan"), [1] * 100]
)


def _paths(value, path=()):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from _paths(inner, (*path, key))


def _changed(value, path, new, how):
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    if how == "drop":
        del inner[path[-1]]
    elif how == "add":
        inner["surprise"] = new
    else:
        inner[path[-1]] = new
    return value


@pytest.mark.parametrize("overrides", [(), OPTIMA, NETWORK])
@settings(deadline=None)  # networks are built, and tried out once
@given(data=st.data())
def test_a_changed_plan_or_task_is_another_one_or_a_typed_refusal(overrides, data):
    algorithm, plan = made(*overrides)
    for value, parse in (
        (plan.to_json(), decode_plan),
        (describe_task(algorithm), decode_task),
    ):
        path = data.draw(st.sampled_from(list(_paths(value))))
        how = data.draw(st.sampled_from(["drop", "add", "change"]))
        wrong = _changed(value, path, data.draw(_WRONG), how)
        try:
            parsed = parse(wrong)
        except DecodingError:
            continue
        assert how == "change"
        if parse is not decode_task:
            assert parsed == plan or parsed.compute_digest() != plan.compute_digest()


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda s: st.lists(s) | st.dictionaries(st.text(max_size=5), s),
        max_leaves=12,
    )
)
def test_anything_else_is_a_typed_refusal(value):
    with pytest.raises(DecodingError):
        decode_plan(value)
    with pytest.raises(DecodingError):
        decode_task(value)


CLAIM = Claim(
    dimension=9,
    features=9,
    bound=1.0,
    unit=Unit.RECORD,
    neighbouring=Neighbouring.REPLACE_ONE,
    lies_in=Set.ball(9, squared=25),
    grid_bits=3,
)


def test_a_set_s_diameter_or_radius_is_the_sensitivity_in_the_values_unit():
    assert (CLAIM.sensitivity, CLAIM.sensitivity_l1) == (10 / 8, 30 / 8)
    removed = replace(CLAIM, neighbouring=Neighbouring.ADD_OR_REMOVE_ONE)
    assert (removed.sensitivity, removed.sensitivity_l1) == (5 / 8, 15 / 8)
    assert CLAIM.covered_sensitivity == CLAIM.sensitivity


@given(norm=st.floats(1e-6, 1e6))
def test_a_ball_of_real_vectors_has_their_diameter_and_no_bound_in_l1(norm):
    ball, bits = build_real_ball(9, to_fraction(norm))
    claim = replace(CLAIM, lies_in=ball, grid_bits=bits, whole=False)
    assert 2 * norm <= claim.sensitivity <= 2 * norm * (1 + 2.0**-52)
    assert claim.sensitivity_l1 is None
    assert (
        claim.compute_grid_sensitivity(1.0, 2.0**bits) == 2.0**bits + 3
    )  # rounding comes on top, on any grid


def test_rounding_adds_to_it_on_a_coarser_grid_alone():
    assert CLAIM.compute_grid_sensitivity(1.25, 2.0**3) == 10
    assert CLAIM.compute_grid_sensitivity(1.25, 2.0**2) == 5 + math.sqrt(9)
