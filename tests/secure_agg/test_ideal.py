"""What only the ideal sum does; the rest is in tests/conformance."""

import numpy as np

from parley.secure_agg.ideal import IdealSum, simulated_parameters


def test_the_active_check_raises_the_minimum_above_half():
    ideal = IdealSum(simulated_parameters(parties=20, min_survivors=3))
    assert ideal.parameters.min_survivors == 12  # (20 + 2 corrupt) // 2 + 1
    passive = IdealSum(simulated_parameters(parties=20, min_survivors=3, confirm_survivors=False))
    assert passive.parameters.min_survivors == 3


def test_one_party_alone_is_summed():
    vectors = np.array([[1, 2, 3]], dtype=np.uint32)
    result = IdealSum(simulated_parameters(parties=1, min_survivors=1)).sum(
        vectors, round_number=1, dropped={}
    )
    assert np.array_equal(result.total, vectors[0])
