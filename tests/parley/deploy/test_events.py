"""What is told as JSON: one object a line, whoever tells it, and no text of an exception."""

from __future__ import annotations

import json
import logging

import pytest

from parley.deploy.events import Event, json_line, teller


@pytest.fixture
def loggers():
    """As they were, after the test."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def test_lines_events_and_logs_are_one_json_object_a_line_each(capsys, loggers):
    tell = teller(as_json=True)
    tell("two\nlines")
    tell(Event("round-committed", "round 3 of 4.", detail=True, round=3, at=None))
    try:
        raise RuntimeError("name of a patient")
    except RuntimeError:
        logging.getLogger("parley.party").exception("A request could not be answered.")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["said", "round-committed", "parley.party"]
    assert [line["level"] for line in lines] == ["info", "info", "error"]
    assert lines[0]["message"] == "two\nlines"
    assert (lines[1]["round"], lines[1]["at"]) == (3, None)
    assert lines[2]["error"] == "builtins.RuntimeError"
    assert lines[2]["raised"].startswith("test_events.py:")
    assert "patient" not in json.dumps(lines)


def test_people_read_the_line_and_not_what_is_for_machines(capsys):
    tell = teller(as_json=False)
    tell(Event("party-online", "+ north is online (1 of 3).", party="north"))
    tell(Event("round-committed", "round 3 of 4.", detail=True))
    assert capsys.readouterr().err == "+ north is online (1 of 3).\n"


def test_no_fact_takes_the_place_of_what_every_line_has():
    said = json.loads(json_line(Event("x", "y", time="never", message="z", level="none"), at=0.0))
    assert said == {
        "time": "1970-01-01T00:00:00.000Z",
        "level": "info",
        "event": "x",
        "message": "y",
    }
