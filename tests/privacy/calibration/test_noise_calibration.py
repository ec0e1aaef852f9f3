"""Calibration: the tables of the specification, verified budgets, refusals with numbers."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.gaussian_curve import compute_gaussian_epsilon
from parley.privacy.calibration.noise_calibration import (
    GAUSSIAN_CALIBRATIONS,
    SAMPLER_DELTA,
    CalibrationError,
    calibrate,
    compute_as_printed_limit,
    compute_gaussian_sigma,
    compute_stated_delta,
)
from parley.privacy.calibration.optimum_sensitivity import compute_optimum_radius
from parley.privacy.mechanisms.discrete_gaussian import DiscreteGaussian

# m=100 parties of n=500 records, G=1: Δ of the average
SENSITIVITY = 2 / (100 * 500)
SIGMAS = {
    0.5: {
        "as-printed": 0.00383882,
        "zcdp": 0.00388006,
        "cks20": 0.00306686,
        "exact": 0.00281273,
    },
    1.0: {
        "as-printed": 0.00191941,
        "zcdp": 0.00196022,
        "cks20": 0.00161805,
        "exact": 0.00149225,
    },
}
BUDGET = {"epsilon": 0.5, "delta": 1e-5, "rounds": 100, "sensitivity": 1.0, "dimension": 104}


def spent(mechanism, rounds: int, delta: float) -> dict[str, float]:
    return Composition().add(mechanism.event(), rounds).compute_epsilons(delta)


@pytest.mark.parametrize("epsilon", SIGMAS)
@pytest.mark.parametrize("calibration", GAUSSIAN_CALIBRATIONS)
def test_sigmas_are_as_specified(epsilon, calibration):
    sigma = compute_gaussian_sigma(
        calibration, sensitivity=SENSITIVITY, epsilon=epsilon, delta=1e-5, rounds=100
    )
    assert sigma == pytest.approx(SIGMAS[epsilon][calibration], rel=4e-6)


def test_one_release_of_output_perturbation_is_as_specified():
    noise = calibrate(
        law="gaussian", epsilon=0.5, delta=1e-5, rounds=1, sensitivity=0.004, dimension=10
    )
    assert noise.expected_norm() == pytest.approx(0.0889464, rel=2e-6)


def test_as_printed_holds_up_to_its_limit_and_not_beyond():
    for delta, limit, shown in ((1e-5, 7.96809, 7.96808), (1e-3, 6.97804, 6.97804)):
        assert compute_as_printed_limit(delta) == pytest.approx(limit, rel=2e-6)
        values = {"sensitivity": 1.0, "delta": delta, "rounds": 10}
        compute_gaussian_sigma("as-printed", epsilon=limit * (1 - 1e-5), **values)
        with pytest.raises(CalibrationError, match=rf"epsilon ≤ {shown}"):
            compute_gaussian_sigma("as-printed", epsilon=limit * (1 + 1e-5), **values)


@settings(max_examples=60, deadline=None)
@given(
    epsilon=st.floats(-4, 1).map(lambda p: 10.0**p),
    delta=st.floats(-10, -0.3).map(lambda p: 10.0**p),
    rounds=st.integers(1, 10**4),
    dimension=st.integers(1, 10**4),
    calibration=st.sampled_from(GAUSSIAN_CALIBRATIONS),
)
def test_gaussians_meet_the_budget_tightly_with_their_sampler(
    epsilon, delta, rounds, dimension, calibration
):
    if calibration == "as-printed" and epsilon > 0.99 * compute_as_printed_limit(delta):
        epsilon = 0.99 * compute_as_printed_limit(delta)
    noise = calibrate(
        law="gaussian",
        calibration=calibration,
        epsilon=epsilon,
        delta=delta,
        rounds=rounds,
        sensitivity=3.0,
        dimension=dimension,
    )
    costs = spent(noise, rounds, delta)
    assert costs["exact"] <= epsilon
    if calibration != "as-printed":
        assert epsilon * (1 - 1e-6) <= costs[calibration] <= epsilon


@pytest.mark.parametrize("calibration", DiscreteGaussian.calibrations)
def test_discrete_gaussians_meet_the_budget_tightly(calibration):
    noise = calibrate(law="discrete-gaussian", calibration=calibration, **BUDGET)
    assert 0.5 * (1 - 1e-9) <= spent(noise, 100, 1e-5)[calibration] <= 0.5


@settings(max_examples=80, deadline=None)
@given(epsilon=st.floats(1e-6, 15.0), rounds=st.integers(1, 10**6))
@pytest.mark.parametrize("law", ["l2-laplace", "laplace-l1"])
def test_pure_laws_split_epsilon_exactly(law, epsilon, rounds):
    noise = calibrate(
        law=law, epsilon=epsilon, delta=0.0, rounds=rounds, sensitivity=1.0, dimension=5
    )
    total = Composition().add(noise.event(), rounds)
    [(event, count)] = total.counts.items()
    assert Fraction(repr(event.epsilon)) * count <= Fraction(repr(epsilon))
    assert total.compute_epsilons(compute_stated_delta(law, 0.0))["pure"] <= epsilon
    assert total.compute_epsilons(compute_stated_delta(law, 0.0))["pure"] >= epsilon * (1 - 1e-14)


def test_as_printed_laplace_takes_the_papers_scale_and_charges_the_truth():
    noise = calibrate(law="laplace-as-printed", **(BUDGET | {"rounds": 1}))
    assert noise.scale == 2.0
    assert noise.event().epsilon == pytest.approx(5.09902, rel=2e-6)


@settings(max_examples=40, deadline=None)
@given(power=st.integers(-30, 30), law=st.sampled_from(["gaussian", "l2-laplace", "laplace-l1"]))
def test_scale_is_homogeneous_in_the_unit(power, law):
    here = calibrate(law=law, **BUDGET)
    there = calibrate(law=law, **(BUDGET | {"sensitivity": 2.0**power}))
    assert there.scale == pytest.approx(here.scale * 2.0**power, rel=1e-13)
    assert spent(there, 100, 1e-5) == pytest.approx(spent(here, 100, 1e-5), rel=1e-13)


def test_auto_takes_the_law_with_the_lowest_norm():
    def auto(**change: float) -> str:
        values = BUDGET | {"rounds": 1} | change
        chosen = calibrate(law="auto", **values)
        others = [calibrate(law=law, **values) for law in ("l2-laplace", "laplace-l1")]
        assert all(chosen.expected_norm() <= other.expected_norm() for other in others)
        return chosen.law

    refused = BUDGET | {"epsilon": 30.0, "rounds": 1}
    assert calibrate(law="auto", calibration="as-printed", **refused).law == "l2-laplace"
    # d + 1 > (εσ/Δ)² = 12.36
    assert auto(dimension=11) == "l2-laplace"
    assert auto(dimension=12) == "gaussian"
    assert auto(dimension=104, delta=0.0) == "l2-laplace"
    assert auto(dimension=1) == "laplace-l1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"law": "laplace"}, "Expected law one of gaussian, .*auto, got 'laplace'"),
        ({"calibration": "rdp"}, "Expected calibration one of exact, .* got 'rdp'"),
        ({"law": "discrete-gaussian"}, "Expected calibration zcdp or cks20 .* got exact"),
        ({"delta": 0.0}, "Expected delta > 0 for Gaussian noise, got 0"),
        ({"delta": 1.0}, "Expected 0 ≤ delta < 1, got 1"),
        ({"delta": math.nan}, "Expected 0 ≤ delta < 1, got nan"),
        ({"epsilon": 0.0}, "Expected a finite epsilon > 0, got 0"),
        ({"epsilon": -1.0}, "Expected a finite epsilon > 0, got -1"),
        ({"epsilon": math.inf}, "Expected a finite epsilon > 0, got inf"),
        ({"rounds": 0}, "Expected an integer number of rounds ≥ 1, got 0"),
        ({"rounds": 1.5}, "Expected an integer number of rounds ≥ 1, got 1.5"),
        ({"sensitivity": 0.0}, "Expected a finite sensitivity > 0, got 0"),
        ({"dimension": 0}, "Expected an integer dimension ≥ 1, got 0"),
        ({"calibration": "as-printed", "epsilon": 9.0}, "its true cost is 9.23933"),
        ({"delta": 1e-25}, "sampler of gaussian uses that much"),
        ({"epsilon": 60.0}, "sampler of gaussian uses more than any delta"),
        ({"law": "l2-laplace", "epsilon": 40.0}, "sampler of l2-laplace"),
        ({"epsilon": 5e-324, "delta": 1e-300}, "Expected"),
        ({"law": "laplace-l1", "epsilon": 5e-324}, "Expected epsilon/rounds > 0"),
        ({"law": "laplace-l1", "epsilon": 1e-300, "sensitivity": 1e300}, "finite scale"),
    ],
)
def test_what_cannot_be_met_is_refused_with_numbers(change, message):
    with pytest.raises(CalibrationError, match=message):
        calibrate(**({"law": "gaussian", "calibration": "exact"} | BUDGET | change))


def test_large_budgets_have_a_law_without_slack():
    for epsilon in (100.0, 1e4):
        values = BUDGET | {"epsilon": epsilon, "delta": 1e-300}
        noise = calibrate(law="discrete-gaussian", calibration="cks20", **values)
        assert spent(noise, 100, 1e-300)["cks20"] <= epsilon
        pure = calibrate(law="laplace-l1", **values)
        assert spent(pure, 100, 0.0)["pure"] <= epsilon


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.999])
@pytest.mark.parametrize("rounds", [1, 10**6])
@pytest.mark.parametrize("calibration", ["exact", "zcdp", "cks20"])
def test_extreme_budgets_have_a_finite_sigma(epsilon, delta, rounds, calibration):
    sigma = compute_gaussian_sigma(
        calibration, sensitivity=1.0, epsilon=epsilon, delta=delta, rounds=rounds
    )
    assert 0 < sigma < math.inf
    if calibration == "exact":
        assert compute_gaussian_epsilon(math.sqrt(rounds) / sigma, delta) <= epsilon


def test_l2_laplace_never_states_delta_zero():
    assert compute_stated_delta("l2-laplace", 0.0) == SAMPLER_DELTA == 2.0**-40
    assert compute_stated_delta("l2-laplace", 1e-5) == 1e-5
    assert compute_stated_delta("laplace-l1", 0.0) == 0.0


SHAPE = {"lipschitz": 1.0, "parties": 100, "min_records": 500}
BY_SIZE = {"weights": "size", "total_records": 80_000}


@pytest.mark.parametrize(("sizes", "records"), [({}, 500), (BY_SIZE, 800)])
def test_an_optimum_lies_within_g_over_n_lambda(sizes, records):
    assert compute_optimum_radius(lambda_=0.01, **SHAPE, **sizes) == Fraction(100, records)
    # Double regularisation, λ‖θ‖²: half the radius.
    assert compute_optimum_radius(lambda_=0.02, **SHAPE, **sizes) == Fraction(50, records)
    kappa = compute_optimum_radius(lambda_=0.01, relative_tolerance=1e-3, **SHAPE, **sizes)
    assert kappa == Fraction(100, records) * Fraction(1001, 1000)


@given(
    parties=st.integers(1, 10_000),
    records=st.integers(1, 10_000),
    extra=st.integers(0, 10**6),
    lambda_=st.floats(1e-6, 10.0),
)
def test_weights_by_size_are_never_worse(parties, records, extra, lambda_):
    shape = {"parties": parties, "min_records": records, "lipschitz": 1.0}
    shape |= {"lambda_": lambda_}
    sized = {"weights": "size", "total_records": parties * records + extra, **shape}
    assert compute_optimum_radius(**sized) <= compute_optimum_radius(**shape)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parties": 0}, "integer parties ≥ 1, got 0"),
        ({"min_records": 0}, "integer min_records ≥ 1, got 0"),
        ({"lipschitz": 0.0}, "lipschitz > 0, got 0"),
        ({"lambda_": -1.0}, "lambda_ > 0, got -1"),
        ({"weights": "size"}, "total_records for weights by size, got none"),
        ({"weights": "size", "total_records": 49_999}, "= 50000, got 49999"),
        ({"weights": "equal"}, "weights uniform or size, got 'equal'"),
        ({"relative_tolerance": -1.0}, "tolerance ≥ 0, got -1"),
    ],
)
def test_bad_shapes_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        compute_optimum_radius(**({"lambda_": 0.01} | SHAPE | change))
