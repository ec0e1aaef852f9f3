"""`parley status`: lines, and a table that is drawn again and again."""

from __future__ import annotations

import io
import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from parley.deploy.processes import ProcessError
from parley.terminal import standing
from parley.terminal.standing import RunStanding, Standing, watch

BOARD = {
    "round": 3,
    "stage": "vectors",
    "parties": [
        {"name": "north", "state": "masked", "reason": ""},
        {"name": "south", "state": "declined", "reason": "clock-skew"},
    ],
}
NOW = Standing(
    address="fl.example.org:9092",
    spoken="12345 67890",
    parties={"north": True, "south": False},
    runs=(
        RunStanding(name="first", state="complete"),
        RunStanding(name="second", state="running", board=BOARD),
        RunStanding(name="third", state="queued", notes=("a note",)),
    ),
)


def test_lines_say_who_attends_and_where_each_stands():
    assert list(NOW.lines()) == [
        "Deployment at fl.example.org:9092, id 12345 67890",
        "  north: online",
        "  south: offline",
        "first: complete",
        "second: running, round 3, vectors: north masked, south declined (clock-skew)",
        "third: queued",
        "  a note",
    ]


def drawn(what):
    console = Console(file=io.StringIO(), width=100)
    console.print(what)
    return console.file.getvalue()


def test_the_table_has_a_row_for_every_party_and_run():
    lines = drawn(NOW.table()).splitlines()
    row = {
        name: next(line for line in lines if line.startswith(name)) for name in ("north", "south")
    }
    assert ("online" in row["north"], "masked" in row["north"]) == (True, True)
    assert ("offline" in row["south"], "clock-skew" in row["south"]) == (True, True)
    assert any("second" in line and "3" in line and "vectors" in line for line in lines)
    assert "north" in drawn(replace(NOW, runs=()).table())


@pytest.mark.parametrize("terminal", [True, False])
def test_watching_goes_on_where_the_server_is_away_and_ends_by_an_interrupt(
    monkeypatch, capsys, terminal
):
    looks = iter([NOW, ProcessError("Cannot reach the server."), NOW, NOW])
    left = itertools.count(3, -1)

    def look():
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        return found

    def sleep(_seconds):
        if not next(left):
            raise KeyboardInterrupt

    monkeypatch.setattr(standing, "time", SimpleNamespace(sleep=sleep))
    console = Console(file=io.StringIO(), width=100, force_terminal=terminal)
    monkeypatch.setattr(standing, "Screen", lambda **_: console)
    with pytest.raises(KeyboardInterrupt):
        watch(look, lost=ProcessError)
    shown = console.file.getvalue() if terminal else capsys.readouterr().out
    assert "Cannot reach the server." in shown
    # Without a terminal what is unchanged is not said again.
    assert terminal or shown.count("third: queued") == 2
