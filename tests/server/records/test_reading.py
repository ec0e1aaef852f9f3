"""Summaries and round lines: what is written is what is read, and nothing else is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from parley.server.records.plain_json import json_text
from parley.server.records.reading import read_rounds, read_summary
from parley.server.records.run_folder import RunFolderError
from parley.server.records.summary import RunSummary

OLD = Path(__file__).parents[2] / "vectors" / "run-0.1.0"


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "run"))


def test_a_run_folder_of_0_1_0_is_read_with_the_keys_of_today() -> None:
    summary, (lines, remarks) = read_summary(OLD), read_rounds(OLD)
    assert summary is not None
    assert summary.guarantees[1] is not None
    assert summary.guarantees[1].noise.scale_of_sum == pytest.approx(3.32, rel=1e-3)
    assert (len(lines), remarks) == (3, ())
    known = json.loads((OLD / "summary.json").read_text(encoding="utf-8"))
    known["secure_aggregation"]["backend"] = known["secure_aggregation"].pop("mode")
    party, told = known.pop("party_level"), summary.to_json()
    for old, new in zip((known, party), told.pop("guarantees"), strict=True):
        figures = {key: old[key] for key in ("epsilon", "delta")}
        assert new.pop("accounts") == [{"adversary": "readers", "charged": True, **figures}]
        assert new == {key: old.pop(key) for key in new}
    absent = {key for key, value in known.items() if value is None}
    known = {key: value for key, value in known.items() if key not in absent}
    assert told == {"format": 2, "weights": "uniform", "algorithm_title": "", **known}
    texts = (OLD / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    for line, text in zip(lines, texts, strict=True):
        old, new = json.loads(text), line.to_json()
        party, accounts = old.pop("party_level"), new.pop("guarantees")
        assert accounts == [{key: old.pop(key) for key in party}, party]
        assert {"format": 2, **old} == new


def test_what_is_written_is_read_as_the_same_object() -> None:
    summary = read_summary(OLD)
    assert summary is not None
    infinite = summary.adding(loss=float("inf"), accuracy=float("nan"))
    assert infinite.loss is infinite.accuracy is None
    assert RunSummary.parse(json_text(infinite.to_json()), "here") == infinite


def test_a_figure_that_an_algorithm_releases_is_a_key_of_its_own() -> None:
    line = read_rounds(OLD)[0][0].adding(counted=3.5)
    assert line.to_json()["counted"] == 3.5


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("format", 3, "format: Input should be 2, got 3"),
        ("epsilon", "2", "guarantees.0.epsilon: Input should be a valid number, got '2'"),
        ("epsilon", None, "guarantees.0.epsilon: .*got None"),
        ("noise", 3, "guarantees.0.noise: "),
        ("records_by_party", ["x"], "records_by_party.0: "),
        ("surprise", 1, "surprise: Extra inputs are not permitted"),
    ],
)
def test_another_summary_is_refused_by_its_key(folder, key, value, named) -> None:
    path = folder / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(RunFolderError, match=named) as refused:
        read_summary(folder)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("text", ["[1]", "[" * 100_000, '{"loss": 1', ""])
def test_a_summary_that_is_no_json_object_is_refused(folder, text) -> None:
    (folder / "summary.json").write_text(text)
    with pytest.raises(RunFolderError, match="Expected RunSummary as JSON in"):
        read_summary(folder)


def test_a_torn_last_line_is_left_out_and_said_any_other_is_refused(folder) -> None:
    path = folder / "rounds.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], lines[2][:50]]))
    assert [line.round for line in read_rounds(folder)[0]] == [1, 2]
    assert "line 3) is torn" in read_rounds(folder)[1][0]
    path.write_text("\n".join([lines[0][:50], lines[1]]))
    with pytest.raises(RunFolderError, match=r"rounds.jsonl, line 1"):
        read_rounds(folder)


def test_a_line_that_was_written_again_counts_once_and_as_it_was_written_last(folder) -> None:
    path = folder / "rounds.jsonl"
    lines = path.read_text().splitlines()
    again = json.loads(lines[0]) | {"seconds": 7.0}
    path.write_text("\n".join([*lines, json.dumps(again)]))
    rounds = read_rounds(folder)[0]
    assert [line.round for line in rounds] == [1, 2, 3]
    assert rounds[0].seconds == 7.0
