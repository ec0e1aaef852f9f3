"""A server that picks seeds, waves, sizes, bounds and grids: no record weighs more than is charged.

W follows from the seed and the length scale that a task names; here it is anything at all, which is
more than a server can choose.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.client.algorithms import kernel_mean_embedding
from parley.client.algorithms.kernel_mean_embedding import RandomFeatures
from parley.client.algorithms.pair_tables import PairTables
from parley.client.data.party_block import PartyBlock
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.sampling.random_stream import Randomness
from parley.secure_agg.encoding import FixedPoint

ONE, LARGEST, PHASES = 1 << 16, 1 << 20, 1 << 14
EDGES = (0, 1, -1, PHASES // 4, PHASES // 2, PHASES, LARGEST, -LARGEST, LARGEST - 1)


def features(wide, frequencies, *, classes=1, scale=1.0, seed=0, relation="replace-one", bound=1e6):
    return RandomFeatures(
        features=wide, sizes=(), classes=classes, frequencies=frequencies, length_scale=scale,
        seed=seed, digest="", neighbouring=Neighbouring(relation), bound=bound,
    )  # fmt: skip


def of_integers(rows):
    """`[n, p]` rows that the sum reads as these multiples of 2⁻¹⁶."""
    rows = np.asarray(rows, float) / ONE / math.sqrt(np.shape(rows)[1])
    return rows + np.copysign(np.abs(rows) * 2**-50, rows)  # nothing is lost on the way back


def reference(waves, row, frequencies):
    """Python's own integers, and the cosines of a table that is known by itself."""
    found = []
    for turn in (0, PHASES // 4):
        for wave in waves.T.tolist():
            whole = sum(int(w) * int(x) for w, x in zip(wave, row, strict=True))
            at = ((whole >> 16) - turn) % PHASES
            cosine = math.cos(2 * math.pi * at / PHASES) if at % PHASES not in (4096, 12288) else 0
            found.append(math.trunc(ONE * cosine / math.sqrt(frequencies)))
    return found


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_waves_make_a_records_features_longer_than_one(data):
    frequencies = data.draw(st.sampled_from([1, 2, 3, 7, 16]))
    wide = data.draw(st.integers(1, 4))
    one = st.one_of(st.sampled_from(EDGES), st.integers(-LARGEST, LARGEST))
    drawn = data.draw(
        st.one_of(
            st.lists(one, min_size=wide * frequencies, max_size=wide * frequencies),
            st.lists(one, min_size=wide, max_size=wide).map(  # one frequency, again and again
                lambda own: [each for each in own for _ in range(frequencies)]
            ),
        )
    )
    waves = np.array(drawn, float).reshape(wide, frequencies)
    row = data.draw(
        st.lists(
            st.one_of(st.sampled_from([0, ONE, -ONE]), st.integers(-ONE, ONE)),
            min_size=wide, max_size=wide,
        )
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_mean_embedding, "_draw_weights", lambda *_: waves)
        found = features(wide, frequencies).sum_records(of_integers([row]), np.zeros(1))[:-1] * ONE
    whole = [int(each) for each in found]
    assert sum(each * each for each in whole) <= ONE**2
    assert whole == reference(waves, row, frequencies)


def test_no_seed_of_hundreds_makes_a_record_longer_and_the_bound_is_nearly_reached():
    rows = np.random.default_rng(0).uniform(-1, 1, (20, 3))
    longest = 0
    for seed, scale in itertools.product(range(300), (0.01, 1.0)):
        own = features(3, 2, seed=seed, scale=scale)
        for row in rows[seed % 10 :: 10]:
            whole = (own.sum_records(row[None], np.zeros(1))[:-1] * ONE).astype(np.int64)
            longest = max(longest, int(whole @ whole))
    assert 0.9999 * ONE**2 < longest <= ONE**2


def test_phases_are_exact_for_as_many_columns_and_as_large_waves_as_there_may_be(monkeypatch):
    wide = 131_071
    signs = np.random.default_rng(0).choice([-1, 1], wide)
    waves = np.stack([np.full(wide, LARGEST), LARGEST * signs - signs], axis=1).astype(float)
    monkeypatch.setattr(kernel_mean_embedding, "_draw_weights", lambda *_: waves)
    for row in (np.full(wide, ONE), signs * ONE, signs * (ONE - 1)):
        found = features(wide, 2).sum_records(of_integers([row]), np.zeros(1))[:-1] * ONE
        assert found.tolist() == reference(waves, row, 2)


HOSTILE = [
    np.zeros((2, 3)),
    np.full((2, 3), PHASES / 2),  # one record turns every feature of another round
    np.full((2, 3), LARGEST),
    np.array([[1.0, -1.0, LARGEST], [PHASES, 1 - PHASES, -LARGEST]]),
]
RECORDS = [
    (row, label)
    for row in itertools.product((0, ONE, -ONE, ONE // 2, 12345), repeat=2)
    for label in (0, 1, 7, math.nan)
]


def moves(own, records):
    """`[n, d]` what each record adds to a block of others."""
    others = of_integers(np.random.default_rng(1).integers(-ONE, ONE, (9, own.features)))

    def total(rows, labels):
        block = PartyBlock(
            features=np.vstack([others, *rows]),
            labels=np.r_[np.arange(9) % 2, labels],
            offsets=np.array([0, 9 + len(rows)]),
        )
        return own.local(own.init(), block, None, Randomness.from_seed(1)).values[0]

    empty = total([], [])
    return np.stack([total([row], [label]) - empty for row, label in records])


def farthest(moved, relation):
    squares = (moved**2).sum(axis=1)
    apart = squares[:, None] + squares[None] - 2 * moved @ moved.T
    return math.sqrt(apart.max() if relation == "replace-one" else squares.max())


@pytest.mark.parametrize("relation", ["replace-one", "add-or-remove-one"])
@pytest.mark.parametrize("bound", [1.0, 2.0**39])
@pytest.mark.parametrize("at", range(len(HOSTILE)))
def test_no_waves_and_no_bound_move_the_sum_by_more_than_is_claimed(
    monkeypatch, at, bound, relation
):
    monkeypatch.setattr(kernel_mean_embedding, "_draw_weights", lambda *_: HOSTILE[at])
    own = features(2, 3, classes=2, relation=relation, bound=bound)
    records = [(of_integers([row])[0], label) for row, label in RECORDS]
    moved = moves(own, records)
    assert own.claim().sensitivity == pytest.approx(2 if relation == "replace-one" else 2**0.5)
    assert farthest(moved, relation) <= own.claim().covered_sensitivity
    if at == 1 and bound > 1:  # nothing is wasted either
        assert farthest(moved, relation) > 0.999 * own.claim().sensitivity


@pytest.mark.parametrize("scale_bits", [-1, 0, 3, 20])
@pytest.mark.parametrize("relation", ["replace-one", "add-or-remove-one"])
@pytest.mark.parametrize("made", ["tables", "features"])
def test_no_grid_moves_what_is_released_by_more_than_is_charged(made, relation, scale_bits):
    if made == "tables":
        own = PairTables(
            sizes=(3, 1, 4, 2), pairs=((0, 1), (0, 2), (1, 3)),
            neighbouring=Neighbouring(relation), bound=1000.0,
        )  # fmt: skip
        codes = itertools.product(range(3), range(1), range(4), range(2))
        parts = [(np.eye(3)[a], np.eye(1)[b], np.eye(4)[c], d) for a, b, c, d in codes]
        records = [(np.concatenate(part), label) for *part, label in parts]
        others = [row for row, _ in records[:9]]
    else:
        own = features(2, 3, classes=2, relation=relation, bound=1000.0)
        records = [(of_integers([row])[0], label) for row, label in RECORDS]
        others = list(of_integers(np.random.default_rng(1).integers(-ONE, ONE, (9, 2))))
    grid = FixedPoint(scale_bits=scale_bits, ring_bits=64, bound=1000.0)
    claim = own.claim()

    def released(row, label):
        block = PartyBlock(
            features=np.vstack([*others, row]),
            labels=np.r_[np.arange(9) % 2, label],
            offsets=np.array([0, 10]),
        )
        values = own.local(own.init(), block, None, Randomness.from_seed(1)).values
        return grid.encode(values)[0].astype(np.int64) / grid.scale

    rounded = np.stack([released(*record) for record in records])
    squares = (rounded**2).sum(axis=1)
    apart = squares[:, None] + squares[None] - 2 * rounded @ rounded.T
    charged = claim.sensitivity * (1 + grid.compute_inflation(claim.sensitivity, claim.dimension))
    most = math.sqrt(max(apart.max(), 0.0))
    # Two records of one block differ by a record replaced: twice what one more or less moves.
    assert most <= charged * (1 if relation == "replace-one" else 2) * (1 + 1e-9)
