"""Whatever a person writes into a TOML file ends in one message about that file."""

from __future__ import annotations

import ast
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parley.client.contract.roster import RosterError, load_deployment
from parley.client.data.schema import SchemaError, load_schema
from parley.client.party.owner_policy import PolicyError, load_policy
from parley.deploy.deployment_folder_checks import check_server
from parley.deploy.server_address import DeployError
from parley.safe_io.file_reading import MAX_LOG_BYTES, MAX_TEXT_BYTES, read_lines, read_text
from parley.safe_io.toml_reading import _STRINGS_AND_COMMENTS, MAX_TOML_BYTES, parse_toml
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.records.run_folder import RunFolderError, render_run_job
from parley.server.records.run_folder_opening import open_run_folder
from parley.server.records.run_reader import read_rounds, read_run

ROOT = Path(__file__).resolve().parents[3]

NESTED = {
    "arrays": "a = " + "[" * 3000,
    "closed arrays": "a = " + "[" * 200 + "]" * 200,
    "tables": "a = " + "{b = " * 3000,
    "dotted keys": "a" + ".a" * 3000 + " = 1",
    "a table's name": "[a" + ".a" * 3000 + "]",
    "quoted keys": '"="' + ' . "="' * 30 + " = 1",
    "a key behind a string of lines": 'a = { c = """\n\'""", ' + "b." * 30 + "b = 1 }",
    "a key behind an escaped quote": 'a = { c = "\\"", ' + "b." * 30 + "b = 1 }",
}


@pytest.mark.parametrize("text", NESTED.values(), ids=NESTED.keys())
def test_a_value_nested_too_deep_is_bad_toml(text: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        parse_toml(text)


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 200_000 + " = 1",
        "[a" + ".a" * 200_000 + "]",
        "a = {" + "b." * 200_000 + "b = 1}",
        '"."' + '."."' * 100_000 + " = 1",
        "#" * (MAX_TOML_BYTES + 1),
    ],
)
def test_a_text_that_would_take_its_length_squared_is_refused_before_it_is_parsed(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tomllib, "loads", lambda _: pytest.fail("it was parsed"))
    with pytest.raises(tomllib.TOMLDecodeError):
        parse_toml(text)


@pytest.mark.parametrize(
    "text",
    [
        'a = "' + '\\"' * 200_000,  # no string has an end
        '"""' + '\\"' * 200_000,
        "'" * 200_001,
        '"' * 200_001,
        "a" * 200_000,
    ],
)
def test_no_place_of_a_text_is_measured_twice(text: str) -> None:
    found = list(_STRINGS_AND_COMMENTS.finditer(text))
    assert sum(len(each[0]) for each in found) <= len(text)
    with pytest.raises(tomllib.TOMLDecodeError):
        parse_toml(text)


def test_dots_in_strings_numbers_and_comments_are_none_of_a_key() -> None:
    dots, three = "a." * 100, "'" * 3
    text = f"""
        # {dots}
        a = "{dots}#" # "{dots}
        b = '{dots}\\'
        c = [{", ".join(["1.5"] * 100)}, '#', 2026-11-25T15:00:00.5Z]
        d = {{ e.f = {three}{dots}{three}, g = "\\"{dots}" }}
        "{dots}".h = 1
    """
    assert parse_toml(text) == tomllib.loads(text)


@pytest.mark.parametrize("digits", ["9" * 5000, "0x" + "f" * 5000, "-" + "9" * 200])
def test_an_integer_that_nobody_can_print_is_bad_toml(digits: str, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(f"[run]\nseed = {digits}\n")
    with pytest.raises(JobError, match="is not TOML"):
        load_job(tmp_path / "job.toml")


def test_no_other_function_parses_toml() -> None:
    """Jobs, rosters, policies, schemas, queries, sweeps, and what is inside a model."""
    found = set()
    for folder in ("parley", "server", "client", "simulations", "secure_agg", "privacy"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "toml" in text else ():
                match node:
                    case ast.Attribute(value=ast.Name(id="tomllib"), attr=name):
                        found |= {path.name} if name != "TOMLDecodeError" else set()
                    case ast.ImportFrom(module="tomllib" | "tomli" | "toml" | "tomlkit"):
                        found.add(path.name)
                    case ast.Import(names=[ast.alias(name="tomli" | "toml" | "tomlkit")]):
                        found.add(path.name)
    assert found == {"toml_reading.py"}


@pytest.mark.parametrize("kind", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
@pytest.mark.parametrize("name", ["job.toml", "rounds.jsonl", "summary.json", "run-id"])
def test_a_pipe_or_a_device_in_a_received_folder_is_refused_and_nothing_waits_for_it(
    tmp_path: Path, kind: Callable[[Path], None], name: str
) -> None:
    texts = {"job.toml": render_run_job(load_job()), "rounds.jsonl": "", "run-id": "a-run"}
    for each, text in texts.items():
        (tmp_path / each).write_text(text)
    (tmp_path / name).unlink(missing_ok=True)
    kind(tmp_path / name)
    with pytest.raises((RunFolderError, JobError), match=r"regular file|no run-id"):
        both(tmp_path)


def both(folder: Path) -> None:
    open_run_folder(folder)
    read_run(folder)


def test_a_line_or_a_file_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    path.touch()
    os.truncate(path, MAX_LOG_BYTES + 1)
    with pytest.raises(OSError, match="at most"):
        next(read_lines(path))
    path.write_text("{" * (MAX_TEXT_BYTES + 1))
    with pytest.raises(OSError, match="lines of at most"):
        list(read_lines(path))
    with pytest.raises(OSError, match="at most"):
        read_text(path)
    with pytest.raises(RunFolderError, match="lines of at most"):
        read_rounds(tmp_path)
    path.write_text("[" * 100_000 + "\n{}\n")
    with pytest.raises(RunFolderError, match="Expected RoundLine as JSON"):
        read_rounds(tmp_path)


def of_server(path: Path) -> Any:
    path.rename(path.with_name("server.toml"))
    return check_server(path.parent)


def of_run(path: Path) -> Any:
    path.rename(path.with_name("job.toml"))
    return read_run(path.parent)


READERS: list[tuple[Callable[[Path], Any], type[Exception]]] = [
    (load_job, JobError),
    (load_schema, SchemaError),
    (load_policy, PolicyError),
    (load_deployment, RosterError),
    (of_server, DeployError),
    (of_run, RunFolderError),
]


@pytest.mark.parametrize("text", NESTED.values(), ids=NESTED.keys())
@pytest.mark.parametrize(("read", "error"), READERS, ids=lambda each: each.__name__)
def test_every_file_of_a_person_that_nests_too_deep_is_refused_by_its_name(
    tmp_path: Path, read: Callable[[Path], Any], error: type[Exception], text: str
) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(error, match=str(tmp_path)):
        read(tmp_path / "file")


@pytest.mark.parametrize("text", ["[" * 3000, "{a=" * 3000])
def test_a_key_on_the_command_line_that_nests_too_deep_is_refused(text: str) -> None:
    with pytest.raises(JobError, match=r"privacy\.epsilon"):
        load_job(overrides=[f"privacy.epsilon={text}"])
