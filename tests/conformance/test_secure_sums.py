"""What every secure sum promises. A new one subclasses `SecureSumConformance`: how it is made."""

from __future__ import annotations

import re
from typing import ClassVar, get_args, get_type_hints

import numpy as np
import pytest

from parley.secure_agg.ideal_sum import IdealSum, build_simulated_parameters
from parley.secure_agg.in_process_protocol import MaskedSum
from parley.secure_agg.interface import (
    DropStage,
    LocalProtocolError,
    SecureSum,
    TooFewSurvivors,
)


def vectors_of(parties, dimension, bits=32):
    rng = np.random.default_rng(0)
    dtype = np.dtype(f"uint{bits}")
    return rng.integers(0, np.iinfo(dtype).max, (parties, dimension), dtype=dtype, endpoint=True)


class SecureSumConformance:
    """
    Attributes:
        kind: the class; it is made from the parameters of a run alone.
        name: what it calls itself.
    """

    kind: ClassVar[type]
    name: ClassVar[str]

    def sum_of(self, parties, min_survivors, **options):
        return self.kind(
            build_simulated_parameters(parties=parties, min_survivors=min_survivors, **options)
        )

    def test_it_says_which_it_is(self):
        assert self.sum_of(3, 2).name == self.name

    @pytest.mark.parametrize("bits", [16, 32, 64])
    def test_the_sum_is_the_ring_sum_of_the_survivors(self, bits):
        vectors = vectors_of(10, 7, bits)
        before = vectors.copy()
        dropped = {
            3: DropStage.BEFORE_VECTOR,
            4: DropStage.AFTER_VECTOR,
            5: DropStage.BEFORE_UNMASK,
        }
        result = self.sum_of(10, 6, ring_bits=bits).sum(vectors, round_number=1, dropped=dropped)
        kept = [j for j in range(10) if j != 3]
        assert result.survivors == tuple(kept)
        expected = [sum(int(v) for v in vectors[kept, c]) % 2**bits for c in range(7)]
        assert result.total.tolist() == expected
        assert result.total.dtype == vectors.dtype
        assert result.stages == 3
        assert min(result.bytes_up, result.bytes_down) > 0
        assert np.array_equal(vectors, before)

    def test_strided_vectors_are_summed(self):
        vectors = np.arange(40, dtype=np.uint32).reshape(10, 4).T[:4, ::2]
        result = self.sum_of(4, 3).sum(vectors, round_number=1, dropped={})
        assert result.total.tolist() == vectors.sum(axis=0).tolist()

    def test_fewer_than_the_minimum_reveal_nothing(self):
        dropped = dict.fromkeys((0, 1), DropStage.BEFORE_VECTOR)
        with pytest.raises(TooFewSurvivors, match="4 survivors, got 3"):
            self.sum_of(5, 4).sum(vectors_of(5, 2), round_number=1, dropped=dropped)

    def test_too_few_revealing_neighbours_reveal_nothing(self):
        secure_sum = self.sum_of(5, 3, corrupt=0)
        assert secure_sum.parameters.threshold == 3
        dropped = dict.fromkeys(range(3), DropStage.BEFORE_UNMASK)
        with pytest.raises(TooFewSurvivors, match=r"3 (revealing neighbours|true shares)"):
            secure_sum.sum(vectors_of(5, 2), round_number=1, dropped=dropped)

    def test_a_round_after_one_that_revealed_nothing_is_summed(self):
        secure_sum, vectors = self.sum_of(5, 4), vectors_of(5, 2)
        dropped = dict.fromkeys((0, 1), DropStage.BEFORE_VECTOR)
        with pytest.raises(TooFewSurvivors):
            secure_sum.sum(vectors, round_number=1, dropped=dropped)
        result = secure_sum.sum(vectors, round_number=2, dropped={})
        assert np.array_equal(result.total, np.add.reduce(vectors, axis=0, dtype=np.uint32))

    def test_round_numbers_only_rise(self):
        secure_sum = self.sum_of(3, 2, corrupt=0)
        secure_sum.sum(vectors_of(3, 2), round_number=4, dropped={})
        with pytest.raises(LocalProtocolError, match="above 4"):
            secure_sum.sum(vectors_of(3, 2), round_number=4, dropped={})

    @pytest.mark.parametrize(
        ("vectors", "message"),
        [
            (vectors_of(3, 2).astype(np.uint64), "Expected vectors of uint32, got uint64."),
            (vectors_of(3, 2).astype(float), "Expected vectors of uint32, got float64."),
            (vectors_of(4, 2), "Expected vectors of shape [3, d >= 1], got (4, 2)."),
            (vectors_of(3, 2)[0], "Expected vectors of shape [3, d >= 1], got (2,)."),
            (vectors_of(3, 2)[:, :0], "Expected vectors of shape [3, d >= 1], got (3, 0)."),
        ],
    )
    def test_wrong_vectors_are_refused(self, vectors, message):
        with pytest.raises(LocalProtocolError, match=re.escape(message)):
            self.sum_of(3, 2, corrupt=0).sum(vectors, round_number=1, dropped={})

    def test_an_unknown_dropped_party_is_refused(self):
        with pytest.raises(LocalProtocolError, match="from 0 to 2, got 7"):
            self.sum_of(3, 2, corrupt=0).sum(
                vectors_of(3, 2), round_number=1, dropped={7: DropStage.BEFORE_VECTOR}
            )


class TestIdeal(SecureSumConformance):
    kind, name = IdealSum, "ideal"


class TestMasked(SecureSumConformance):
    kind, name = MaskedSum, "masked"


def test_every_secure_sum_is_held_to_it():
    held = {kind.name for kind in SecureSumConformance.__subclasses__()}
    assert held == set(get_args(get_type_hints(SecureSum.name.fget)["return"]))
