"""Masked sum = ideal sum: same bits, survivors, refusals and bytes, whatever drops out."""

import dataclasses
import os
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.secure_agg.ideal_sum import IdealSum, build_simulated_parameters, with_simulated_beacon
from parley.secure_agg.in_process_protocol import MaskedSum
from parley.secure_agg.interface import (
    DropStage,
    LocalProtocolError,
    TooFewSurvivors,
)
from parley.secure_agg.protocol_parameters import RunParameters, derive_parameters

STAGES = list(DropStage)


@dataclass(frozen=True, kw_only=True)
class _GivenGraph(RunParameters):
    """A small graph that is not complete: no party would accept it, and the sums are the same."""

    given: int

    @cached_property
    def derived(self):
        chosen = derive_parameters(self.parties, corrupt=self.corrupt, dropped=self.dropped)
        return replace(chosen, degree=self.given, threshold=self.given // 2 + 1)


def _parameters(degree=None, **options):
    run = build_simulated_parameters(**options)
    if degree is None:
        return run
    fields = {f.name: getattr(run.without_beacon, f.name) for f in dataclasses.fields(run)}
    return with_simulated_beacon(_GivenGraph(**{**fields, "given": degree}))


@st.composite
def _cases(draw):
    parties = draw(st.integers(2, 14))
    options = {
        "parties": parties,
        "min_survivors": draw(st.integers(1, parties)),
        "ring_bits": draw(st.sampled_from([16, 32, 64])),
        "corrupt": 0,
        "dropped": 0,
    }
    if parties > 6 and draw(st.booleans()):
        options["degree"] = draw(st.sampled_from([4, 6]))
    rounds = [
        draw(st.dictionaries(st.integers(0, parties - 1), st.sampled_from(STAGES), max_size=5))
        for _ in range(draw(st.integers(1, 3)))
    ]
    return options, draw(st.integers(1, 50)), rounds, draw(st.integers(0, 2**32 - 1))


def _outcome(secure_sum, vectors, number, dropped):
    try:
        result = secure_sum.sum(vectors, round_number=number, dropped=dropped)
    except TooFewSurvivors:
        return None
    return vars(result) | {"total": result.total.tolist()}


def _same(case, **masked_options):
    options, dimension, rounds, seed = case
    ideal = IdealSum(_parameters(**options))
    masked = MaskedSum(_parameters(**options), **masked_options)
    rng = np.random.default_rng(seed)
    bits = options["ring_bits"]
    for number, dropped in enumerate(rounds, start=1):
        vectors = rng.integers(
            0, 2**bits - 1, (options["parties"], dimension), dtype=f"u{bits // 8}", endpoint=True
        )
        before = vectors.copy()
        assert _outcome(masked, vectors, number, dropped) == _outcome(
            ideal, vectors, number, dropped
        )
        assert np.array_equal(vectors, before)


@settings(max_examples=60, deadline=None)
@given(case=_cases())
def test_the_masked_sum_is_the_ideal_sum(case):
    _same(case)


@settings(max_examples=20, deadline=None)
@given(case=_cases(), shared_bytes=st.sampled_from([0, 200]))
def test_parties_that_share_no_work_give_the_same_sum(case, shared_bytes):
    _same(case, shared=False)
    _same(case, shared_bytes=shared_bytes)


@pytest.mark.heavy
@settings(max_examples=1500, deadline=None)
@given(case=_cases(), shared=st.booleans())
def test_the_masked_sum_is_the_ideal_sum_at_length(case, shared):
    _same(case, shared=shared)


_USUAL = {"ring_bits": 32}


def _some_dropped(parties, count, seed):
    rng = np.random.default_rng(seed)
    return {int(j): STAGES[n % 3] for n, j in enumerate(rng.permutation(parties)[:count])}


def test_a_run_of_many_parties_on_a_sparse_graph():
    options = {**_USUAL, "parties": 150, "min_survivors": 100, "degree": 30, "corrupt": 0}
    _same((options, 9, [{}, _some_dropped(150, 18, 3), {}], 7))


@pytest.mark.heavy
def test_a_thousand_parties_with_the_chosen_degree():
    options = {**_USUAL, "parties": 1000, "min_survivors": 600}
    assert build_simulated_parameters(**options).degree == 112
    _same((options, 120, [{}, _some_dropped(1000, 100, 4)], 8))


def test_a_vector_longer_than_a_piece_of_keystream():
    rounds = [{}, {1: DropStage.BEFORE_VECTOR}, {1: DropStage.BEFORE_UNMASK}]
    _same(({**_USUAL, "parties": 5, "min_survivors": 3}, 70_000, rounds, 9))


def test_one_party_alone_is_summed_in_the_open_alone():
    run, vectors = (
        build_simulated_parameters(parties=1, min_survivors=1),
        np.array([[1, 2]], dtype="u4"),
    )
    result = IdealSum(run).sum(vectors, round_number=1, dropped={})
    assert result.total.tolist() == [1, 2]
    with pytest.raises(ValueError, match="Expected at least 2 parties"):
        MaskedSum(run)


def test_a_seeded_run_repeats_to_the_byte_and_says_so():
    vectors = np.arange(12, dtype=np.uint32).reshape(4, 3)
    runs = []
    for _ in range(2):
        masked = MaskedSum(
            build_simulated_parameters(parties=4, min_survivors=3), entropy_seed=b"seed"
        )
        assert masked.seeded
        runs.append(masked.sum(vectors, round_number=1, dropped={}))
    assert runs[0].total.tolist() == runs[1].total.tolist()
    fresh = MaskedSum(build_simulated_parameters(parties=4, min_survivors=3))
    assert not fresh.seeded
    assert fresh._entropy is os.urandom


def test_bad_input_is_refused_before_anything_is_sent():
    masked = MaskedSum(build_simulated_parameters(parties=4, min_survivors=3))
    good = np.zeros((4, 3), dtype=np.uint32)
    for vectors, dropped in ((good[:3], {}), (good, {4: DropStage.BEFORE_VECTOR})):
        with pytest.raises(LocalProtocolError):
            masked.sum(vectors, round_number=1, dropped=dropped)
    assert masked.setup_traffic.bytes_up == masked.last_traffic.bytes_up == 0


def test_what_ten_million_parameters_cost_in_memory():
    import tracemalloc

    dimension = 300_000  # the ratio does not depend on it; ten million in the benchmark
    vectors = np.zeros((3, dimension), dtype=np.uint32)
    masked = MaskedSum(build_simulated_parameters(parties=3, min_survivors=2), shared_bytes=0)
    masked.sum(vectors[:, :1].copy(), round_number=1, dropped={})
    tracemalloc.start()
    masked.sum(vectors, round_number=2, dropped={})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * vectors[0].nbytes
