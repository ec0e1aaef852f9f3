"""Records in a database: a run holds what it was given, or ends with a reason."""

from __future__ import annotations

import sqlite3
from types import SimpleNamespace

import numpy as np
import pytest

from parley.client.contract.refusals import Declined
from parley.client.data.schema import load_schema
from parley.client.party.dataset_config import DatasetConfig
from parley.client.party.dataset_loader import RAW_COLUMNS, load_dataset
from parley.client.party.owner_policy import OwnerPolicy, PolicyError, parse_policy
from parley.client.party.record_cache import RecordCache
from parley.privacy.ledger.ledger import Ledger

NAMES = ("a", "b", "c", "d")
NUMBERS = "\n".join(f'{name} = {{ kind = "numeric", range = [-9, 9] }}' for name in NAMES)
SCHEMA = f"""
[columns]
{NUMBERS}
held = {{ kind = "ignore" }}
sick = {{ kind = "label", positive = "yes", negative = "no" }}
"""
GIVEN = {
    "prepared": "",
    "source": "sqlite:///ward.db",
    "query": "SELECT * FROM visits WHERE held = 0 ORDER BY random()",
    "held-out": "SELECT * FROM visits WHERE held = 1 ORDER BY random()",
    "schema": "schema.toml",
    "epsilon": 50.0,
    "delta": 1e-5,
}
KEY = ("ward", "logistic", True, {}, ())


def run(folder, statement, *rows):
    with sqlite3.connect(folder / "ward.db") as connection:
        connection.executemany(statement, rows) if rows else connection.execute(statement)
    connection.close()


def insert(folder, count, *, seed=0, held=0):
    rng = np.random.default_rng(seed)
    rows = [(*rng.normal(size=4).tolist(), held, rng.choice(["yes", "no"])) for _ in range(count)]
    run(folder, "INSERT INTO visits VALUES (?, ?, ?, ?, ?, ?)", *rows)


def made(folder, count, *, seed=0):
    (folder / "schema.toml").write_text(SCHEMA)
    run(folder, f"CREATE TABLE visits ({', '.join(NAMES)}, held INTEGER, sick TEXT)")
    insert(folder, count, seed=seed)
    insert(folder, 5, seed=seed + 1, held=1)
    return folder


def holding_of(folder, label="logistic", **changes):
    dataset = DatasetConfig.model_validate({**GIVEN, **changes})
    return load_dataset(dataset, folder, label=label, intercept=True)


@pytest.fixture
def world(tmp_path, wired):
    world = wired.World(tmp_path, reopen=False, **GIVEN)
    for at, folder in enumerate(world.folders):
        made(folder, world.sizes[at], seed=10 * at)
    return world


def rounds_charged(folder):
    with Ledger.open(folder / "ledger.sqlite", read_only=True) as ledger:
        return [each.entry.index for each in ledger.list_entries()]


def test_a_run_holds_its_snapshot_and_a_party_that_lost_it_says_so(world, wired):
    held = [holding_of(folder) for folder in world.folders]
    parts = [(each.rows, each.labels) for each in held]
    asked = {"schema": load_schema(world.folders[0] / "schema.toml").digest}
    for party in range(3):
        assert wired.ok(world.inspect(party)).head["records"] == world.sizes[party]
    insert(world.folders[0], 1, seed=99)
    world.join(**asked)
    for number in (1, 2):  # a row is added, and one is changed
        world.vectors(number, number)
        np.testing.assert_array_equal(world.opened(), world.plain_sum(parts, number=number))
        run(world.folders[0], f"UPDATE visits SET a = {number} WHERE rowid = 1")
    # The process ends: the rows of then are nowhere. Where nothing changed, it goes on.
    world.services = [world.open(party) for party in range(3)]
    answers = world.vectors(3, 3)
    assert wired.reason(answers[0]) == "data-unreadable"
    assert (
        "Expected the same records as before in run 'r-1'"
        in (world.folders[0] / "party.log").read_text()
    )
    assert [answers[party].head["status"] for party in (1, 2)] == ["ok", "ok"]
    assert [rounds_charged(folder) for folder in world.folders] == [[1, 2], [1, 2, 3], [1, 2, 3]]


def test_a_file_that_changes_between_two_rounds_ends_the_run_and_one_saved_anew_does_not(
    tmp_path, wired
):
    world = wired.World(tmp_path, reopen=False)
    world.join()
    world.vectors(1)
    world.opened()
    for party, change in ((0, 0.5), (1, 1.0)):
        path = world.folders[party] / "rows.npz"
        with np.load(path) as rows:
            found = {name: rows[name][::-1].copy() for name in rows}
        found["features"][0] *= change
        np.savez(path, **found)
    answers = world.vectors(2, 2)
    assert wired.reason(answers[0]) == "data-unreadable"
    assert [answers[party].head["status"] for party in (1, 2)] == ["ok", "ok"]


def test_runs_are_given_the_rows_of_their_beginning_and_let_go_of_them_at_their_end(tmp_path):
    made(tmp_path, 20)
    consent = parse_policy(
        "[data.ward]\n" + "".join(f"{k} = {v!r}\n" for k, v in GIVEN.items()), source="test"
    )
    running = set()
    kept = RecordCache(consent, tmp_path, secret=b"s", sessions=lambda: running)
    sizes = []
    for session in ("one", "two", "three"):
        asked = kept.load(*KEY)
        if session != "three":
            insert(tmp_path, 1, seed=len(running) + 7)
        running.add(session)
        assert kept.load(*KEY, "another of its stages") is kept.load(*KEY, session) is asked
        sizes.append(len(asked.labels))
    assert sizes == [20, 21, 22]
    assert [len(kept.load(*KEY, session).labels) for session in ("two", "one")] == [21, 20]
    assert kept.load(*KEY) is kept.load(*KEY, "three")  # the same rows, which are held once
    running.clear()
    kept.load(*KEY)
    assert len(kept.load(*KEY, "one").labels) == 22


def test_a_run_is_given_the_blocks_of_its_beginning(tmp_path):
    made(tmp_path, 20)
    given = {**GIVEN, "query": "SELECT * FROM visits", "held-out": "", "block-column": "held"}
    consent = OwnerPolicy(data={"ward": DatasetConfig.model_validate(given)})
    running = {"one"}
    kept = RecordCache(consent, tmp_path, secret=b"s", sessions=lambda: running)
    assert len(kept.load(*KEY[:4], ("0",), "one").labels) == 20
    run(tmp_path, "UPDATE visits SET held = 1 WHERE rowid = 1")
    assert len(kept.load(*KEY[:4], ("0",)).labels) == 19
    assert len(kept.load(*KEY[:4], ("0",), "one").labels) == 20


def test_a_data_set_of_a_query_is_one_like_any_other(tmp_path):
    made(tmp_path, 30)
    first, second = holding_of(tmp_path), holding_of(tmp_path)
    np.testing.assert_array_equal(first.rows, second.rows)
    assert first.fingerprint == first.contents == second.contents
    table = holding_of(tmp_path, RAW_COLUMNS).table
    assert (table.records, str(table.contents)) == (30, first.contents)
    dataset = DatasetConfig.model_validate(GIVEN).to_held_out()
    held = load_dataset(dataset, tmp_path, label="logistic", intercept=True)
    assert len(held.labels) == 5
    with pytest.raises(Declined, match="most-records = 29"):
        holding_of(tmp_path, unit="party", **{"most-records": 29})
    with pytest.raises(Declined, match="one SELECT"):
        holding_of(tmp_path, query="DELETE FROM visits")


def test_a_file_that_is_written_while_it_is_read_is_not_learned_from(tmp_path, monkeypatch):
    (tmp_path / "schema.toml").write_text(SCHEMA)
    file, line = tmp_path / "w.csv", "0,0,0,0,0,yes\n"
    file.write_text(f"{','.join((*NAMES, 'held', 'sick'))}\n{line}")
    given = {"path": "w.csv", "schema": "schema.toml", "epsilon": 1.0, "delta": 1e-5}
    consent = OwnerPolicy(data={"ward": DatasetConfig.model_validate(given)})
    kept = RecordCache(consent, tmp_path, secret=b"s", sessions=tuple)

    def read_while_it_grows(*given, **named):
        found = load_dataset(*given, **named)
        file.write_text(file.read_text() + line)
        return found

    monkeypatch.setattr("parley.client.party.record_cache.load_dataset", read_while_it_grows)
    with pytest.raises(Declined, match="files that do not change while they are read"):
        kept.load(*KEY)
    monkeypatch.undo()
    assert len(kept.load(*KEY).labels) == 2


def test_records_held_out_are_known_by_the_account_that_counts_them(tmp_path):
    made(tmp_path, 20)
    consent = OwnerPolicy(data={"ward": DatasetConfig.model_validate(GIVEN)})
    kept = RecordCache(consent, tmp_path, secret=b"s", sessions=tuple)
    agreed = SimpleNamespace(dataset="ward", label="logistic", intercept=True, features={})
    agreed.plan, agreed.session = SimpleNamespace(blocks=()), ""
    learned, counted = (kept.load_for_agreement(agreed, held_out) for held_out in (False, True))
    assert counted.contents == learned.contents  # the run's
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        for one in (learned, counted):
            budgets = consent.data["ward"].build_budgets(
                name="ward",
                fingerprint=one.fingerprint,
                contents=one.contents,
                rows=one.row_digests,
            )
            ledger.register(*budgets, among=False)
        assert ledger.count_shared_rows(counted.row_digests) == {"ward": 5}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"source": "postgresql://me:s3cret@host/clinic"}, "a source without a password"),
        ({"source": "ward.csv"}, "query = 'SELECT …' if the source is a database"),
        ({"query": ""}, "got a database without one"),
        ({"source": ""}, "one of path, source, prepared and app-data"),
        ({"path": "ward.csv"}, "one of path, source, prepared and app-data"),
        ({"schema": ""}, "a schema with path or source"),
        ({"held-out": GIVEN["query"]}, "held-out to be other records"),
    ],
)
def test_a_policy_names_a_database_without_its_password(changes, named):
    lines = "".join(f"{key} = {value!r}\n" for key, value in {**GIVEN, **changes}.items())
    with pytest.raises(PolicyError) as caught:
        parse_policy(f"[data.ward]\n{lines}", source="party.toml")
    assert named in str(caught.value)
    assert "s3cret" not in str(caught.value)
