"""Summaries and round lines: what is written is what is read, nothing else is, and no NaN."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path

import pytest

from parley.safe_io.json_writing import format_json
from parley.server.records.run_folder import RunFolderError
from parley.server.records.run_reader import read_rounds, read_summary
from parley.server.records.run_summary import RunSummary

KEPT = Path(__file__).parents[2] / "vectors" / "run"


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(shutil.copytree(KEPT, tmp_path / "run"))


def test_what_is_written_is_read_as_the_same_object() -> None:
    summary = read_summary(KEPT)
    assert summary is not None
    infinite = summary.with_fields(loss=float("inf"), accuracy=float("nan"))
    assert infinite.loss is infinite.accuracy is None
    assert RunSummary.parse(format_json(infinite.to_json()), "here") == infinite


def test_a_figure_that_an_algorithm_releases_is_a_key_of_its_own() -> None:
    line = read_rounds(KEPT)[0][0].with_fields(counted=3.5)
    assert line.to_json()["counted"] == 3.5


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("format", 3, "format: Input should be 2, got 3"),
        ("format", 1, "format: Input should be 2, got 1"),
        ("loss", "2", "loss: Input should be a valid number, got '2'"),
        ("guarantees", [], "guarantees: "),
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
    assert "line 3) is incomplete" in read_rounds(folder)[1][0]
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


ROOT = Path(__file__).parents[3]
PACKAGES = ("client", "server", "simulations", "parley", "privacy", "secure_agg")


def test_numbers_that_are_not_finite_are_null_at_any_depth() -> None:
    value = {"a": float("nan"), "b": [1.5, float("-inf"), {"c": (float("inf"), "NaN")}], "d": 2}
    read = json.loads(format_json(value), parse_constant=pytest.fail)
    assert read == {"a": None, "b": [1.5, None, {"c": [None, "NaN"]}], "d": 2}


def test_every_json_text_of_ours_is_written_where_nan_cannot_be() -> None:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                if (
                    node.func.attr not in ("dump", "dumps")
                    or ast.unparse(node.func.value) != "json"
                ):
                    continue
                given = {word.arg: ast.unparse(word.value) for word in node.keywords}
                assert given.get("allow_nan") == "False", f"{path}:{node.lineno}"
