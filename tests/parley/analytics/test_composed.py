"""Partitions, k-means in rounds, and the queries beyond counts and means, of a session."""

from __future__ import annotations

import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from blocks import block_of_columns

import parley
from parley import col
from parley.client.data.schema import Schema
from parley.client.queries.base import QueryError, QueryFacts
from parley.client.queries.kmeans import KMeansStep
from parley.client.queries.moments import Variance
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.noise_intervals import CellNoise
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import BudgetExceeded
from parley.privacy.sampling.discrete_noise import discrete_laplace
from parley.privacy.sampling.random_stream import NoiseStream
from parley.privacy.sensitivity.bounded_sets import compute_sensitivity

REPLACE, REMOVE = Neighbouring.REPLACE_ONE, Neighbouring.ADD_OR_REMOVE_ONE
SCHEMA = Schema.from_toml(
    """
[columns]
age = { kind = "numeric", range = [0, 100] }
x = { kind = "numeric", range = [-1, 1] }
sex = { kind = "categorical", categories = ["Female", "Male"], missing = "Male" }
ward = { kind = "categorical", categories = ["a", "b", "c"], missing = "a" }
alone = { kind = "categorical", categories = ["here"], missing = "here" }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)
RNG = np.random.default_rng(3)
COUNT = 3000
DATA = {
    "age": RNG.integers(0, 100, COUNT),
    "x": np.clip(RNG.choice([-0.7, 0.7], COUNT) + RNG.normal(0, 0.05, COUNT), -1, 1),
    "sex": RNG.choice(["Female", "Male"], COUNT, p=[0.3, 0.7]),
    "ward": RNG.choice(["a", "b", "c"], COUNT),
    "alone": ["here"] * COUNT,
    "sick": RNG.choice(["yes", "no"], COUNT),
}


@pytest.fixture
def session(opened):
    return lambda **settings: opened(DATA, schema=SCHEMA, parties=5, **settings)


def test_a_partition_is_paid_whole_and_each_cell_from_its_own(session):
    s = session()
    cells = {cell.key: cell for cell in s.partition("ward", epsilon=0.4)}
    assert list(cells) == ["a", "b", "c"]
    assert s.remaining == pytest.approx(0.6)
    for key, cell in cells.items():
        assert cell.remaining == pytest.approx(0.2)
        near = cell.count(epsilon=0.1).value
        assert near == pytest.approx(np.sum(DATA["ward"] == key), abs=80)
        young = cell.where(col.age < 50).group_by("sex").count(epsilon=0.05)
        assert len(young.frame) == 2
        assert cell.remaining == pytest.approx(0.05)
        with pytest.raises(BudgetExceeded):
            cell.median("age", step=1, epsilon=0.06)
        assert cell.remaining == pytest.approx(0.05)
    assert s.remaining == pytest.approx(0.6)  # whatever the cells did


def test_cells_of_their_own_epsilon_cost_the_two_largest_or_the_largest(session):
    s = session()
    s.partition("ward", cells={"a": 0.3, "b": 0.2, "c": 0.1})
    assert s.remaining == pytest.approx(0.5)
    with pytest.raises(BudgetExceeded):
        s.partition("ward", cells={"a": 0.4, "b": 0.2})
    assert s.remaining == pytest.approx(0.5)
    other = session(neighbouring="add-or-remove-one")
    other.partition("ward", cells={"a": 0.3, "b": 0.2, "c": 0.1})
    assert other.remaining == pytest.approx(0.7)
    (here,) = other.partition("alone", epsilon=0.2, where="age > 10")
    assert here.remaining == 0.2


def test_a_session_in_a_folder_of_a_long_name_tells_its_cells_apart(session, tmp_path):
    s = session(out=tmp_path / ("s" * 157))  # before: paid for, and then refused
    assert [cell.key for cell in s.partition("ward", epsilon=0.4)] == ["a", "b", "c"]


def test_a_session_that_goes_on_does_not_pay_for_its_partition_again(session, tmp_path):
    s = session()
    first = [cell.count(epsilon=0.1).value for cell in s.partition("sex", epsilon=0.4)]
    left, folder = s.remaining, s.folder
    s.close()
    with parley.Session(DATA, resume=folder) as again:
        assert [
            cell.count(epsilon=0.1).value for cell in again.partition("sex", epsilon=0.4)
        ] == first
        assert again.remaining == left
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        assert not ledger.verify()


def test_a_session_that_goes_on_with_another_partition_pays_for_it(session):
    s = session()
    s.partition("sex", epsilon=0.4)
    folder = s.folder
    s.close()
    with parley.Session(DATA, resume=folder) as again:
        cells = again.partition("sex", epsilon=0.5)
        assert again.remaining == pytest.approx(0.1)
        assert [cell.remaining for cell in cells] == [0.25, 0.25]


def test_a_cell_has_laplace_noise_alone(session):
    s = session(delta=1e-6)
    cell, _ = s.partition("sex", epsilon=0.4)
    assert cell.histogram("ward", epsilon=0.1).law == "laplace"
    with pytest.raises(QueryError, match="Laplace"):
        cell.count(epsilon=0.1, law="gaussian")


@pytest.mark.parametrize(
    ("relation", "charged"), [("replace-one", 0.4), ("add-or-remove-one", 0.2)]
)
def test_lloyd_as_printed_has_its_noise_and_is_charged_what_it_costs(session, relation, charged):
    s = session(neighbouring=relation)
    answers = s.lloyd(
        ["x", "age"], centres=[[-0.5, 50], [0.5, 50]], rounds=10, noise="as-printed", epsilon=0.2
    )
    assert len(answers) == 10
    assert s.remaining == pytest.approx(1 - charged)
    # Lap(2T/ε) on the counts: 100 of 3000
    assert answers[0].scale == pytest.approx(100, rel=1e-3)
    assert sorted(answers[-1].table["x"]) == pytest.approx([-0.7, 0.7], abs=0.35)


def test_the_printed_scales_at_ten_rounds():
    # T = 10, ε = 1, |dom| = 2: 20 on the counts, 40 on the sums (balance ½: half the units)
    step = KMeansStep(of=("x", "age"), centres=(0.0, 0.0, 0.5, 0.5), balance=2048)
    moved = compute_sensitivity(step.build_record_set(SCHEMA, 4096), REMOVE)
    assert moved.l1 / 4096 / 0.1 == 20
    assert moved.l1 / 2048 / 0.1 == 40


def test_the_sensitivity_of_a_gaussian_round():
    def norm(balance, relation=REPLACE):
        step = KMeansStep(of=("x", "age"), centres=(0.0, 0.0, 0.5, 0.5), balance=balance)
        return (
            compute_sensitivity(step.build_record_set(SCHEMA, 4096), relation).compute_l2() / 4096
        )

    assert norm(round(4096 / math.sqrt(2))) == pytest.approx(2, abs=1e-3)
    assert norm(4096) == pytest.approx(2.82843, abs=1e-5)


def test_the_sensitivity_of_a_variance():
    query = Variance(column="x", where=col.age > 3)
    for relation, expected in ((REMOVE, 1.29099), (REPLACE, 1.30953)):
        moved = compute_sensitivity(query.build_record_set(SCHEMA, 2**30), relation)
        assert moved.compute_l2() / 2**30 == pytest.approx(expected, abs=1e-4)


def test_a_variance_without_much_noise_is_that_of_the_records(session):
    s = session(epsilon=1000.0)
    assert s.variance("age", epsilon=100.0).value == pytest.approx(DATA["age"].var(), rel=1e-3)
    answer = s.where(col.age < 50).variance("age", epsilon=100.0)
    assert answer.interval[0] <= DATA["age"][DATA["age"] < 50].var() <= answer.interval[1]
    by = s.group_by("sex").variance("age", epsilon=100.0).frame
    assert by["value"][0] == pytest.approx(DATA["age"][DATA["sex"] == "Female"].var(), rel=1e-2)


def test_a_variances_interval_covers_it():
    query, weight, scale = Variance(column="age", counted=False), 4096, 4096 * 20.0
    block = block_of_columns([DATA], SCHEMA)
    (exact,) = query.compute_party_vectors(block, weight)
    facts = QueryFacts(schema=SCHEMA, neighbouring=REPLACE, records=COUNT)
    noise, truth, held = CellNoise(law="laplace", scale=scale), DATA["age"].var(), 0
    for seed in range(300):
        drawn = discrete_laplace(scale, len(exact), NoiseStream.from_seed(seed))
        table = query.answer(exact + drawn, weight, noise, facts)
        held += table["low"][0] <= truth <= table["high"][0]
    assert held >= 285  # at least 95 %: each moment's interval has 97.5 %


def test_a_batch_of_several_kinds_is_one_sum(session):
    s = session(delta=1e-6)
    with s.batch(epsilon=0.5) as b:
        tables = b.marginals(["sex", "ward", "sick"])
        deciles = b.quantiles("age", [0.1, 0.5, 0.9], step=1)
        winner = b.choose("sex")
        assert "together: one secure sum" in b.plan()
    assert tables.ledger.index == deciles.ledger.index == winner.ledger.index == 1
    assert list(winner.table["sex"]) == ["Male"]
    assert np.diff(deciles.table["value"]).min() > 0
    assert "marginals sex, ward, sick" in str(tables)
    frame = tables.frame.filter(tables.frame["table"] == "sex, ward")
    assert frame["value"].sum() == pytest.approx(COUNT)


def test_the_case_study_finds_the_small_clusters_on_the_grid_and_not_as_printed(tmp_path):
    example = Path(__file__).resolve().parents[3] / "examples/kmeans.py"
    figures = runpy.run_path(str(example))["main"](tmp_path / "kmeans.png", runs=2)
    assert figures["grid"][:2] == (2, 2)
    assert figures["as printed"][0] == 2
    assert figures["as printed"][1] < 2
    assert figures["grid"][2] < 0.0132 < figures["as printed"][2]
    assert (tmp_path / "kmeans.png").stat().st_size > 10_000
