"""Sensitivities of certified optima, against formulas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.privacy.calibration.sensitivity import output_sensitivity

SHAPE = {"lipschitz": 1.0, "parties": 100, "min_records": 500}
BY_SIZE = {"weights": "size", "total_records": 80_000}


@pytest.mark.parametrize(("sizes", "records"), [({}, 500), (BY_SIZE, 800)])
def test_a_sum_moves_by_2g_over_n_lambda(sizes, records):
    assert output_sensitivity(lambda_=0.01, **SHAPE, **sizes) == 2 / (records * 0.01)
    # Double regularisation, λ‖θ‖²: half the sensitivity.
    assert output_sensitivity(lambda_=0.02, **SHAPE, **sizes) == 1 / (records * 0.01)
    kappa = output_sensitivity(lambda_=0.01, relative_tolerance=1e-3, **SHAPE, **sizes)
    assert kappa == pytest.approx(2 / (records * 0.01) * 1.001)


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
    assert output_sensitivity(**sized) <= output_sensitivity(**shape) * (1 + 1e-15)


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
        output_sensitivity(**({"lambda_": 0.01} | SHAPE | change))
