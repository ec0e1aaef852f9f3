"""Blocks say where a column's features lie: added up, they are the map's own rows."""

from itertools import pairwise

import numpy as np
import pytest

from parley.client.data.memory_table_format import build_table
from parley.client.data.schema import Schema
from parley.client.data.training_records import encode_features
from parley.client.features.column_terms import estimate_row_norm, list_plain_terms
from parley.client.features.map_building import build_map

SCHEMA = Schema.from_toml("""
[columns]
age = { kind = "numeric", range = [0, 100], centre = 40 }
income = { kind = "numeric", range = [0, 5000], transform = "log1p" }
ward = { kind = "categorical", categories = ["north", "south"], other = true }
sick = { kind = "label", positive = "yes", negative = "no" }
""")
MAPS = {
    "none": None,
    "hats": build_map("hats", {"intervals": 4}),
    "bins": build_map("bins", {"edges": {"age": [18, 65]}, "bins": 3}),
    "pairs": build_map("bins", {"bins": 3, "products": [["ward", "age"]]}),
}


def rows_of(kind, columns):
    table = build_table({name: np.array(each) for name, each in columns.items()}, SCHEMA, path="t")
    cells = encode_features(table, SCHEMA.unscaled)[0]
    return cells if MAPS[kind] is None else MAPS[kind].bind(SCHEMA).compute(cells)


def blocks_of(kind):
    return list_plain_terms(SCHEMA) if MAPS[kind] is None else MAPS[kind].list_column_terms(SCHEMA)


@pytest.mark.parametrize("kind", MAPS)
def test_blocks_lie_side_by_side_and_fill_the_row(kind):
    ends = [(each.begin, each.begin + each.width) for each in blocks_of(kind)]
    width = rows_of(kind, {"age": [1.0], "income": [1.0], "ward": ["north"]}).shape[1]
    assert [begin for begin, _ in ends] == [0, *(end for _, end in ends[:-1])]
    assert ends[-1][1] == width


@pytest.mark.parametrize("kind", MAPS)
def test_a_block_has_the_features_that_the_map_gives_at_its_points(kind):
    for block in blocks_of(kind):
        if " × " in block.name:
            continue
        places = list(block.names) or list(block.values)
        if block.drawn == "steps":  # a value inside each step
            places = [(a + b) / 2 for a, b in pairwise(places)]
        columns = {"age": [50.0], "income": [70.0], "ward": ["south"]}
        columns = {name: each * len(places) for name, each in columns.items()}
        columns[block.name] = ["elsewhere" if each == "(other)" else each for each in places]
        got = rows_of(kind, columns)[:, block.begin : block.begin + block.width]
        expected = np.eye(block.width) if block.features is None else block.features
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_pair_has_a_bar_for_each_cell_in_the_order_of_its_features():
    pair = blocks_of("pairs")[-1]
    row = rows_of("pairs", {"age": [90.0], "income": [1.0], "ward": ["south"]})[0]
    at = int(row[pair.begin :].argmax())
    assert (pair.name, pair.names[at]) == ("ward × age", "south, 66.6667–100")


def test_numbers_are_drawn_in_their_own_unit():
    age, income, _ = blocks_of("hats")
    assert age.values == (0, 25, 50, 75, 100)
    assert income.values[0] == 0
    assert income.values[-1] == pytest.approx(5000)
    assert len(income.values) == 33  # between knots it bends, as a logarithm does
    assert np.diff(income.values).min() > 0


@pytest.mark.parametrize("kind", ["none", "hats"])
def test_the_mean_square_is_that_of_values_spread_evenly(kind):
    for block in blocks_of(kind)[:2]:
        fine = np.linspace(0, 1, 100_001)
        knots = np.linspace(0, 1, len(block.values))
        spread = np.stack([np.interp(fine, knots, each) for each in block.features.T])
        assert (spread**2).sum(axis=0).mean() == pytest.approx(block.square, rel=1e-4)


def test_a_row_is_as_long_as_its_scaling_makes_it():
    plain = list_plain_terms(SCHEMA)
    fixed = SCHEMA.model_copy(update={"scaling": "schema"})
    assert estimate_row_norm(fixed, plain, mapped=False) == pytest.approx(3**0.5)
    assert estimate_row_norm(SCHEMA, blocks_of("bins"), mapped=True) == pytest.approx(3**0.5)
    assert estimate_row_norm(SCHEMA, plain[:1], mapped=False) == 1  # short rows keep their length


def test_an_array_has_no_blocks():
    assert not list_plain_terms(
        Schema.from_toml("""
        [columns]
        image = { kind = "array", shape = [2, 2], range = [0, 1] }
        y = { kind = "label", classes = [0, 1] }
        """)
    )
    assert not build_map("random-fourier", {}).list_column_terms(SCHEMA)


def test_a_column_of_whole_steps_is_drawn_where_its_values_lie():
    text = "[columns]\nasks = {{ kind = 'numeric', range = [0, {}], step = 1 }}\n"
    label = "y = { kind = 'label', range = [0, 1] }"
    for most, values in ((1, (0, 1)), (5, (0, 1, 2, 3, 4, 5)), (40, (0, 10, 20, 30, 40))):
        schema = Schema.from_toml(text.format(most) + label)
        (block,) = build_map("hats", {"intervals": 4}).list_column_terms(schema)
        assert block.values == values
        table = build_table({"asks": np.array(values)}, schema, path="t")
        cells = encode_features(table, schema.unscaled)[0]
        rows = build_map("hats", {"intervals": 4}).bind(schema).compute(cells)
        np.testing.assert_allclose(block.features, rows, atol=1e-4)
