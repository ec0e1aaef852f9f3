"""A folder that is given in the place of a file: its files are named, with a glob that works."""

import re

import pytest
from command_line import run_main

ROWS = "a,b,y\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(60))
COMMANDS = {
    "infer": ("schema", "infer", "{folder}"),
    "check": ("schema", "check", "{folder}", "{schema}"),
    "plan": (
        *("plan", "--set", "data.source={folder}", "--set", "data.schema={schema}"),
        *("--set", "parties.min-records=20", "--set", "parties.count=2"),
    ),
    "run": (
        *("run", "-q", "--set", "data.source={folder}", "--set", "data.schema={schema}"),
        *("--set", "parties.count=2", "--set", "algorithm.rounds=1", "--out", "{out}"),
    ),
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=list(COMMANDS))
def test_a_folder_of_tables_is_answered_by_a_glob_that_works(words, tmp_path) -> None:
    folder, schema = tmp_path / "rows", tmp_path / "schema.toml"
    folder.mkdir()
    for name in ("east.csv", "west.csv", "read-me.md"):
        (folder / name).write_text(ROWS)
    assert run_main("schema", "infer", folder / "east.csv", "--out", schema)[0] == 0

    def type_with(source):
        values = {"folder": source, "schema": schema, "out": tmp_path / "run"}
        return run_main(*(word.format(**values) for word in words))

    status, _, said = type_with(folder)
    assert status == 2
    assert "east.csv, west.csv" in said
    assert "read-me" not in said
    glob = re.search(r"as '(.*)'", said)
    assert glob is not None
    status, _, said = type_with(glob[1])
    assert status == 0, said


def test_a_folder_in_the_place_of_any_other_file_is_called_one(tmp_path) -> None:
    for words in (("run", tmp_path), ("plan", tmp_path), ("query", tmp_path)):
        status, _, said = run_main(*words)
        assert status == 2
        assert "a folder, expected a file" in said
