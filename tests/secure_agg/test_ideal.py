"""Tests of the ideal sum."""

import re

import numpy as np
import pytest

from parley.secure_agg.ideal import IdealSum, simulated_parameters
from parley.secure_agg.interface import (
    DropoutPolicy,
    DropStage,
    LocalProtocolError,
    TooFewSurvivors,
)


def _vectors(parties, dimension, dtype=np.uint32, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, np.iinfo(dtype).max, (parties, dimension), dtype=dtype, endpoint=True)


@pytest.mark.parametrize(("bits", "dtype"), [(16, np.uint16), (32, np.uint32), (64, np.uint64)])
def test_the_sum_is_the_ring_sum_of_the_survivors(bits, dtype):
    vectors = _vectors(10, 7, dtype)
    ideal = IdealSum(simulated_parameters(parties=10, min_survivors=6, ring_bits=bits))
    dropped = {3: DropStage.BEFORE_VECTOR, 4: DropStage.AFTER_VECTOR, 5: DropStage.BEFORE_UNMASK}
    result = ideal.sum(vectors, round_number=1, dropped=dropped)
    kept = [j for j in range(10) if j != 3]
    assert result.survivors == tuple(kept)
    expected = [sum(int(v) for v in vectors[kept, c]) % 2**bits for c in range(7)]
    assert result.total.tolist() == expected
    assert result.total.dtype == dtype
    assert result.stages == 3


def test_fewer_than_the_minimum_reveal_nothing():
    ideal = IdealSum(simulated_parameters(parties=5, min_survivors=4))
    dropped = {0: DropStage.BEFORE_VECTOR, 1: DropStage.BEFORE_VECTOR}
    with pytest.raises(TooFewSurvivors, match="4 survivors, got 3"):
        ideal.sum(_vectors(5, 2), round_number=1, dropped=dropped)


def test_too_few_revealing_neighbours_reveal_nothing():
    ideal = IdealSum(simulated_parameters(parties=5, min_survivors=3, corrupt=0))
    assert ideal.parameters.threshold == 3
    dropped = dict.fromkeys(range(3), DropStage.BEFORE_UNMASK)
    with pytest.raises(TooFewSurvivors, match="3 revealing neighbours"):
        ideal.sum(_vectors(5, 2), round_number=1, dropped=dropped)


def test_round_numbers_only_rise():
    ideal = IdealSum(simulated_parameters(parties=3, min_survivors=2, corrupt=0))
    ideal.sum(_vectors(3, 2), round_number=4, dropped={})
    with pytest.raises(LocalProtocolError, match="above 4"):
        ideal.sum(_vectors(3, 2), round_number=4, dropped={})


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (_vectors(3, 2).astype(np.uint64), "Expected vectors of uint32, got uint64."),
        (_vectors(4, 2), "Expected vectors of shape [3, d >= 1], got (4, 2)."),
        (_vectors(3, 2)[0], "Expected vectors of shape [3, d >= 1], got (2,)."),
    ],
)
def test_wrong_vectors_are_refused(vectors, message):
    with pytest.raises(LocalProtocolError, match=re.escape(message)):
        IdealSum(simulated_parameters(parties=3, min_survivors=2, corrupt=0)).sum(
            vectors, round_number=1, dropped={}
        )


def test_an_unknown_dropped_party_is_refused():
    with pytest.raises(LocalProtocolError, match="from 0 to 2, got 7"):
        IdealSum(simulated_parameters(parties=3, min_survivors=2, corrupt=0)).sum(
            _vectors(3, 2), round_number=1, dropped={7: DropStage.BEFORE_VECTOR}
        )


def test_an_optimistic_round_is_repeated_once_by_the_survivors():
    ideal = IdealSum(
        simulated_parameters(parties=6, min_survivors=4, dropouts=DropoutPolicy.OPTIMISTIC)
    )
    vectors = _vectors(6, 9)
    whole = ideal.sum(vectors, round_number=1, dropped={5: DropStage.AFTER_VECTOR})
    assert (whole.stages, whole.survivors) == (1, (0, 1, 2, 3, 4, 5))
    part = ideal.sum(vectors, round_number=2, dropped={5: DropStage.BEFORE_VECTOR})
    assert (part.stages, part.survivors) == (2, (0, 1, 2, 3, 4))
    assert np.array_equal(part.total, np.add.reduce(vectors[:5], axis=0, dtype=np.uint32))


def test_the_active_check_raises_the_minimum_above_half():
    ideal = IdealSum(simulated_parameters(parties=20, min_survivors=3))
    assert ideal.parameters.min_survivors == 12  # (20 + 2 corrupt) // 2 + 1
    passive = IdealSum(simulated_parameters(parties=20, min_survivors=3, confirm_survivors=False))
    assert passive.parameters.min_survivors == 3


def test_one_party_alone_is_summed():
    vectors = _vectors(1, 3)
    result = IdealSum(simulated_parameters(parties=1, min_survivors=1)).sum(
        vectors, round_number=1, dropped={}
    )
    assert np.array_equal(result.total, vectors[0])
