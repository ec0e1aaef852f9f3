"""Sensitivities of gradients and of certified optima, against formulas and against real solvers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.privacy.calibration.sensitivity import (
    gradient_sensitivity,
    output_sensitivity,
)

SHAPE = {"parties": 100, "min_records": 500}


def test_gradient_sensitivity_is_2g_over_mn():
    assert gradient_sensitivity(lipschitz=1.0, **SHAPE).average == 4e-5
    assert gradient_sensitivity(lipschitz=1.0, **SHAPE).total == 0.004
    by_size = gradient_sensitivity(lipschitz=1.0, weights="size", total_records=80_000, **SHAPE)
    assert by_size.average == 2 / 80_000
    assert by_size.total == 0.0025


def test_output_sensitivity_is_2g_over_mn_lambda():
    plain = output_sensitivity(lipschitz=1.0, lambda_=0.01, **SHAPE)
    assert plain.average == 0.004
    assert plain.total == 0.4
    by_size = output_sensitivity(
        lipschitz=1.0, lambda_=0.01, weights="size", total_records=80_000, **SHAPE
    )
    assert by_size.average == 0.0025
    # Double regularisation, λ‖θ‖²: half the sensitivity.
    assert output_sensitivity(lipschitz=1.0, lambda_=0.02, **SHAPE).total == 0.2


def test_solver_tolerance_is_paid():
    kappa = output_sensitivity(lipschitz=1.0, lambda_=0.01, relative_tolerance=1e-3, **SHAPE)
    assert kappa.total == pytest.approx(0.4 * 1.001)
    tau = 1e-3 * 1.0 / 500
    common = output_sensitivity(lipschitz=1.0, lambda_=0.01, tolerance=tau, **SHAPE)
    assert common.total == pytest.approx(0.4 + 2 * tau / 0.01)
    assert common.average == pytest.approx(0.004 + 2 * tau / (100 * 0.01))
    assert common.total == pytest.approx(kappa.total)


def test_a_common_tolerance_weighs_most_in_the_largest_party():
    sizes = {"weights": "size", "total_records": 80_000, **SHAPE}
    weighted = output_sensitivity(
        lipschitz=1.0, lambda_=0.01, tolerance=1e-6, max_records=1600, **sizes
    )
    assert weighted.total == pytest.approx(0.25 + 2 * 2e-4)
    with pytest.raises(ValueError, match="Expected max_records ≥ N/m = 800"):
        output_sensitivity(lipschitz=1.0, lambda_=0.01, tolerance=1e-6, **sizes)


@given(
    parties=st.integers(1, 10_000),
    records=st.integers(1, 10_000),
    extra=st.integers(0, 10**6),
    lambda_=st.floats(1e-6, 10.0),
)
def test_weights_by_size_are_never_worse(parties, records, extra, lambda_):
    shape = {"parties": parties, "min_records": records, "lipschitz": 1.0}
    sized = {"weights": "size", "total_records": parties * records + extra}
    assert gradient_sensitivity(**shape, **sized).total <= gradient_sensitivity(**shape).total * (
        1 + 1e-15
    )
    uniform = output_sensitivity(lambda_=lambda_, **shape)
    assert output_sensitivity(lambda_=lambda_, **shape, **sized).average <= uniform.average * (
        1 + 1e-15
    )
    assert uniform.average * parties == pytest.approx(uniform.total)


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
        ({"tolerance": -1.0}, "tolerance ≥ 0, got -1"),
        ({"tolerance": 1e-6, "relative_tolerance": 1e-3}, "one of relative_tolerance"),
    ],
)
def test_bad_shapes_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        output_sensitivity(**({"lipschitz": 1.0, "lambda_": 0.01} | SHAPE | change))
