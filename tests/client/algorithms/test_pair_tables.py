"""Pair tables: counts, the sensitivity by brute force, and tasks that are read strictly."""

import itertools
import math

import numpy as np
import pytest

from parley.client.algorithms.pair_tables import PairTables, encode_rows, list_pairs
from parley.client.algorithms.task_codec import decode_task, describe_task
from parley.client.contract.strict_decoding import DecodingError
from parley.client.data.party_block import PartyBlock
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.sampling.random_stream import Randomness

SIZES = (3, 4, 2, 5)


def tables(sizes=SIZES, pairs="all", neighbouring="replace-one"):
    named = list_pairs(pairs, len(sizes)) if isinstance(pairs, str) else pairs
    return PairTables(
        sizes=sizes, pairs=named, neighbouring=Neighbouring(neighbouring), bound=1000.0
    )


def every_record(sizes=SIZES):
    return np.array(list(itertools.product(*(range(size) for size in sizes))))


@pytest.mark.parametrize(
    ("pairs", "replaced", "removed"),
    [("all", 3.46410162, 2.44948974), ("label", 2.44948974, 3**0.5)],
)
def test_the_sensitivity_is_the_largest_of_all_pairs_of_records(pairs, replaced, removed):
    one = tables(pairs=pairs)
    cells = np.stack([one.count_cells(record[None]) for record in every_record()])
    squares = (cells**2).sum(axis=1)
    assert math.sqrt(squares.max()) == pytest.approx(removed)
    apart = squares[:, None] + squares[None] - 2 * cells @ cells.T
    assert math.sqrt(apart.max()) == pytest.approx(replaced)
    assert one.claim().sensitivity == pytest.approx(replaced)
    other = tables(pairs=pairs, neighbouring="add-or-remove-one")
    assert other.claim().sensitivity == pytest.approx(removed)


@pytest.mark.parametrize(("columns", "known"), [(4, 3.46410162), (9, 8.48528137), (14, 13.4907376)])
def test_known_sensitivities(columns, known):
    claim = tables(sizes=(2,) * columns).claim()
    assert claim.sensitivity == pytest.approx(known, rel=1e-8)
    added = tables(sizes=(2,) * columns, neighbouring="add-or-remove-one").claim()
    assert added.sensitivity == pytest.approx(known / 2**0.5, rel=1e-8)


def test_counts_are_those_of_a_loop_over_records():
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, size, 9000) for size in SIZES], axis=1)
    one = tables()
    expected = []
    for i, j in one.pairs:
        table = np.zeros((SIZES[i], SIZES[j]))
        for record in codes:
            table[record[i], record[j]] += 1
        expected.append(table.ravel())
    np.testing.assert_array_equal(one.count_cells(codes), np.concatenate(expected))


def block_of(codes, sizes, parties):
    starts = np.cumsum([0, *sizes[:-1]])
    rows = np.zeros((len(codes), sum(sizes[:-1])), np.float32)
    for column, start in enumerate(starts[:-1]):
        rows[np.arange(len(codes)), start + codes[:, column]] = 0.5
    offsets = np.linspace(0, len(codes), parties + 1).astype(np.int64)
    return PartyBlock(features=rows, labels=codes[:, -1], offsets=offsets)


def test_whoever_else_is_in_the_block_a_party_counts_the_same():
    rng = np.random.default_rng(1)
    codes = np.stack([rng.integers(0, size, 200) for size in SIZES], axis=1)
    one, block = tables(), block_of(codes, SIZES, 7)
    np.testing.assert_array_equal(encode_rows(block.features, block.labels, SIZES), codes)
    whole = one.local(one.init(), block, None, Randomness.from_seed(1)).values
    for party in range(7):
        alone = one.local(one.init(), block.take([party]), None, Randomness.from_seed(2)).values
        np.testing.assert_array_equal(alone[0], whole[party])
    np.testing.assert_array_equal(whole.sum(axis=0), one.count_cells(codes))


def test_a_party_larger_than_the_bound_is_clamped_entry_by_entry():
    codes = np.zeros((3000, 4), np.int64)
    one = tables()
    block = block_of(codes, SIZES, 1)
    values = one.local(one.init(), block, None, Randomness.from_seed(1)).values
    assert set(values.ravel()) == {0.0, 1000.0}


@pytest.mark.parametrize("pairs", ["all", "label", ((0, 2), (1, 3))])
def test_tasks_of_many_columns_travel(pairs):
    one = tables(sizes=(2,) * 100, pairs=pairs)
    task = describe_task(one)
    assert decode_task(task) == one
    if isinstance(pairs, str):
        assert task["pairs"] == pairs


@pytest.mark.parametrize(
    "changes",
    [
        {"sizes": [3]},
        {"sizes": [3, 0]},
        {"sizes": [3, True]},
        {"sizes": [3, 2.0]},
        {"sizes": [70000, 2]},
        {"sizes": [60000, 60000]},
        {"sizes": "34"},
        {"sizes": [2] * 2000},
        {"pairs": "some"},
        {"pairs": []},
        {"pairs": [[0, 1], [0, 1]]},
        {"pairs": [[1, 0]]},
        {"pairs": [[0, 4]]},
        {"pairs": [[-1, 1]]},
        {"pairs": [[0, 1, 2]]},
        {"pairs": [[0, 1.0]]},
        {"pairs": [0, 1]},
        {"pairs": None},
        {"settings": {"neighbouring": "replace-one", "bound": 0}},
        {"settings": {"neighbouring": "replace-one", "bound": 1e300}},
        {"settings": {"neighbouring": "replace-one", "bound": float("nan")}},
        {"settings": {"neighbouring": "other", "bound": 5}},
    ],
)
def test_other_tasks_are_refused(changes):
    with pytest.raises(DecodingError):
        decode_task({**describe_task(tables()), **changes})
