"""A simulation that reads some blocks of its records: charged, planned and shown by block."""

from pathlib import Path

import polars as pl
import pytest

import parley
from parley.cli import app
from parley.client.data.data_error import NoRecords
from parley.client.data.schema import SchemaError
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import BudgetExceeded, LedgerConflict
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.statements.data_account_text import format_data_account
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.engine.fast_engine import simulate
from parley.simulations.engine.party_folders import prepare_parties

SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100] }
year = { kind = "ignore" }
ward = { kind = "ignore" }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
QUICK = (
    *("run.seed=3", "parties.count=2", "algorithm.rounds=2", "privacy.epsilon=1"),
    *("data.source=t.csv", "data.schema=s.toml", "data.block-column=year"),
    *("privacy.ledger=all.sqlite", "privacy.dataset=wards", "privacy.dataset-epsilon=1.2"),
    *("secure-aggregation.masked-check=false", "parties.min-records=30"),
)


def a_job(*overrides, blocks=()):
    named = f"data.blocks={list(blocks)}"
    return load_job(overrides=[*QUICK, named, *overrides])


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """100 records of each of three years."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(SCHEMA)
    table = pl.DataFrame(
        {
            "age": [each % 97 + each / 1000 for each in range(300)],
            "year": [2023 + each % 3 for each in range(300)],
            "ward": ["east" if each % 2 else "west" for each in range(300)],
            "sick": ["yes" if each % 5 else "no" for each in range(300)],
        }
    )
    table.write_csv("t.csv")
    return table


def test_next_years_records_have_a_whole_budget_while_old_ones_are_used_up(rows, capsys):
    by_ward = ("data.partition=column", "data.partition-column=ward", "data.test-fraction=0")
    block = load_experiment(a_job(*by_ward, blocks=["2023"])).block
    assert block.sizes.tolist() == [50, 50]
    first = simulate(a_job(blocks=["2023"]), out=Path("first")).summary
    (told,) = first.data_accounts
    assert told.jobs == 0
    old, others = told.blocks
    assert (old.name, others.name, others.left, others.after) == ("2023", "", 1.2, 1.2)
    for blocks in (["2023"], ["2023", "2024"], []):
        with pytest.raises(BudgetExceeded, match="no room in '2023'; room in "):
            simulate(a_job(blocks=blocks), out=Path("refused"))
    # What a plan says of a job on another year is what it then costs.
    (planned,) = parley.plan(a_job(blocks=["2024"])).data_accounts
    assert (planned.spent, planned.releases, planned.left, planned.jobs) == (0, 0, 1.2, 1)
    sentence = format_data_account(planned)
    for part in ("left by block: '2023' 0.2", "'2024' 1.2 (0.2", "after one such job)", "every"):
        assert part in sentence
    (after,) = simulate(a_job(blocks=["2024"]), out=Path("second")).summary.data_accounts
    assert after.left == planned.blocks[1].after == after.blocks[1].left
    app(["ledger", "show", "all.sqlite"], standalone_mode=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "'2024': 2 releases, spent ε = 1, left ε = 0.2" in shown
    assert "every other block: 0 releases, spent ε = 0, left ε = 1.2" in shown
    # Of a table that grew, too.
    pl.concat(
        [rows, rows.with_columns(age=rows["age"] + 0.5, year=rows["year"] * 0 + 2026)]
    ).write_csv("t.csv")
    simulate(a_job(blocks=["2026"]), out=Path("third"))
    # A record that was in 2023 is not to be paid for once more as one of 2025.
    moved = pl.when(pl.int_range(pl.len()) == 0).then(2025).otherwise("year")
    rows.with_columns(year=moved).write_csv("t.csv")
    with pytest.raises(LedgerConflict, match="1 in another block, with a fresh budget there"):
        simulate(a_job(blocks=["2025"]), out=Path("fourth"))
    with Ledger.open("all.sqlite", read_only=True) as ledger:
        assert ledger.verify() == []
        (totals,) = ledger.list_accounts()
        assert [each.releases for each in totals.charged.blocks.values()] == [2, 2, 2]


@pytest.mark.parametrize(
    ("overrides", "error", "match"),
    [
        (['data.blocks=["2030"]'], NoRecords, "in blocks 2030"),
        (['data.blocks=["2023", "2023"]'], JobError, "each block once"),
        (
            [f"data.blocks={[str(each) for each in range(10**5)]}"],
            JobError,
            "at most 64 named blocks",
        ),
        (["data.block-column="], JobError, "Expected data.block-column with data.blocks"),
        (["data.block-column=age"], SchemaError, "of kind ignore in the schema, got 'age'"),
        (
            ["data.source=breast-cancer", "data.schema="],
            JobError,
            "a file with data.block-column, got bundled",
        ),
        (["privacy.unit=party", "privacy.noise=gaussian"], JobError, "unit = 'record' with"),
    ],
)
def test_blocks_that_cannot_be_read_are_refused(rows, overrides, error, match):
    with pytest.raises(error, match=match):
        simulate(
            a_job(*overrides, blocks=() if "blocks" in overrides[0] else ["2023"]), out=Path("x")
        )


def test_parties_that_are_made_here_have_no_blocks(rows, tmp_path):
    with pytest.raises(JobError, match=r"Expected no data\.blocks with parties that are created"):
        prepare_parties(a_job(blocks=["2023"]), tmp_path / "parties")


def test_a_record_of_no_block_is_named(rows):
    rows.with_columns(year=pl.when(rows["age"] > 90).then(None).otherwise("year")).write_csv(
        "t.csv"
    )
    with pytest.raises(ValueError, match=r"column 'year': Expected a record's block, got an empty"):
        simulate(a_job(blocks=["2023"]), out=Path("x"))
