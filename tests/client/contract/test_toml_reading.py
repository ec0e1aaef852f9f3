"""Whatever a person writes into a TOML file ends in one message about that file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parley.client.contract.roster import RosterError, load_deployment
from parley.client.contract.toml_reading import parse_toml
from parley.client.data.schema import SchemaError, load_schema
from parley.client.party.consent_file import ConsentError, load_consent
from parley.deploy.folders import DeployError, check_server
from parley.server.jobs.file import load_job
from parley.server.jobs.job import JobError
from parley.server.records.reading import read_run
from parley.server.records.run_folder import RunFolderError

NESTED = {
    "arrays": "a = " + "[" * 3000,
    "closed arrays": "a = " + "[" * 200 + "]" * 200,
    "tables": "a = " + "{b = " * 3000,
    "dotted keys": "a" + ".a" * 3000 + " = 1",
    "a table's name": "[a" + ".a" * 3000 + "]",
}


@pytest.mark.parametrize("text", NESTED.values(), ids=NESTED.keys())
def test_a_value_nested_too_deep_is_bad_toml(text: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        parse_toml(text)


def of_server(path: Path) -> Any:
    path.rename(path.with_name("server.toml"))
    return check_server(path.parent)


def of_run(path: Path) -> Any:
    path.rename(path.with_name("job.toml"))
    return read_run(path.parent)


READERS: list[tuple[Callable[[Path], Any], type[Exception]]] = [
    (load_job, JobError),
    (load_schema, SchemaError),
    (load_consent, ConsentError),
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
