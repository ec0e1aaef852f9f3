"""Balls that certified optima lie in, against formulas."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.privacy.calibration.sensitivity import optimum_radius

SHAPE = {"lipschitz": 1.0, "parties": 100, "min_records": 500}
BY_SIZE = {"weights": "size", "total_records": 80_000}


@pytest.mark.parametrize(("sizes", "records"), [({}, 500), (BY_SIZE, 800)])
def test_an_optimum_lies_within_g_over_n_lambda(sizes, records):
    assert optimum_radius(lambda_=0.01, **SHAPE, **sizes) == Fraction(100, records)
    # Double regularisation, λ‖θ‖²: half the radius.
    assert optimum_radius(lambda_=0.02, **SHAPE, **sizes) == Fraction(50, records)
    kappa = optimum_radius(lambda_=0.01, relative_tolerance=1e-3, **SHAPE, **sizes)
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
    assert optimum_radius(**sized) <= optimum_radius(**shape)


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
        optimum_radius(**({"lambda_": 0.01} | SHAPE | change))
