"""A run that is followed from its folder, and what is told as JSON, one object a line."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path

import pytest

from parley.deploy import run_watcher as follow_module
from parley.deploy.event_log import LogEvent, build_notifier, format_json_line
from parley.deploy.process_errors import ProcessError
from parley.deploy.run_watcher import RunFollower, RunStopped, follow, raise_remote
from parley.exit_status import KNOWN_ERRORS, get_exit_status
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.records.run_folder import render_run_job
from parley.server.records.run_reader import read_rounds

KEPT = Path(__file__).parents[2] / "vectors" / "run"


class Told:
    def __init__(self):
        self.calls = []

    def started(self, _job, plan, _folder, done):
        self.calls.append(("started", plan, done))

    def round_done(self, line):
        self.calls.append(("round", line.round))

    def parties(self, board):
        self.calls.append(("parties", board["stage"]))


@pytest.fixture
def told(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "parley.deploy.run_watcher.decode_plan",
        lambda content: content,
    )
    (tmp_path / "job.toml").write_text(render_run_job(load_job()))
    observer = Told()
    return observer, RunFollower(tmp_path, observer), tmp_path


def start(folder, done=0):
    (folder / "started.json").write_text(json.dumps({"plan": {"a": 1}, "done": done}))


def lines(*rounds):
    line = read_rounds(KEPT)[0][0]
    return "".join(json.dumps(line.with_fields(round=n).to_json()) + "\n" for n in rounds)


def test_each_round_is_told_once_and_only_when_it_is_whole(told):
    observer, follower, folder = told
    follower.look()
    assert observer.calls == []
    start(folder)
    follower.look()
    text = lines(1, 2)
    (folder / "rounds.jsonl").write_text(text[:-4])
    follower.look()
    follower.look()
    assert observer.calls == [("started", {"a": 1}, 0), ("round", 1)]
    (folder / "rounds.jsonl").write_text(text)
    follower.look()
    assert observer.calls[2:] == [("round", 2)]


def test_rounds_of_before_a_resume_are_not_told_again_and_a_board_when_it_changes(told):
    observer, follower, folder = told
    start(folder, done=2)
    (folder / "rounds.jsonl").write_text(lines(1, 2, 3))
    for stage in ("inspect", "inspect", "vectors"):
        (folder / "parties.json").write_text(json.dumps({"stage": stage, "parties": []}))
        follower.look()
    assert observer.calls == [
        ("started", {"a": 1}, 2), ("round", 3), ("parties", "inspect"), ("parties", "vectors"),
    ]  # fmt: skip


def remote(folder, name, message="what it said"):
    (folder / "error.json").write_text(json.dumps({"error": name, "message": message}))
    raise_remote(folder)


@pytest.mark.parametrize("name", sorted(KNOWN_ERRORS))
def test_an_error_of_ours_is_raised_as_what_it_was(name, tmp_path):
    with pytest.raises(Exception, match="what it said") as caught:
        remote(tmp_path, name)
    kind = type(caught.value)
    assert f"{kind.__module__}.{kind.__qualname__}" == name
    assert get_exit_status(caught.value) in (
        {3} if kind.__name__ in {"BudgetExceeded", "JobUnaffordable"} else {1, 2}
    )


def test_any_other_class_that_a_file_names_is_never_imported(tmp_path):
    raise_remote(tmp_path)  # no error is no error
    with pytest.raises(ProcessError, match=r"failed on the server with os\.system: what it said"):
        remote(tmp_path, "os.system")
    with pytest.raises(RunStopped):
        remote(tmp_path, "builtins.KeyboardInterrupt")


def ended(tmp_path, outcome):
    return follow(tmp_path, ended=lambda: outcome, observer=None)


def test_a_stopped_run_is_given_time_for_its_last_words(tmp_path, monkeypatch):
    said = {"error": "parley.server.jobs.section_base.JobError", "message": "Expected more."}
    write = (tmp_path / "error.json").write_text
    threading.Timer(1.0, write, (json.dumps(said),)).start()
    with pytest.raises(JobError, match="Expected more"):
        ended(tmp_path, "stopped")
    # Without a word it was stopped, and is no library's failure.
    (tmp_path / "error.json").unlink()
    monkeypatch.setattr(follow_module, "_LAST_WORDS_S", 0.2)
    with pytest.raises(RunStopped):
        ended(tmp_path, "stopped")


def test_a_run_that_was_lost_says_where_its_log_is_and_how_to_go_on(tmp_path):
    said = r"The log .*server\.log has its last messages\. Continue with: --resume"
    with pytest.raises(ProcessError, match=said):
        ended(tmp_path, "failed")


@pytest.fixture
def loggers():
    """As they were, after the test."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def test_lines_events_and_logs_are_one_json_object_a_line_each(capsys, loggers):
    tell = build_notifier(as_json=True)
    tell("two\nlines")
    tell(LogEvent("round-committed", "round 3 of 4.", detail=True, round=3, at=None))
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
    assert lines[2]["raised"].startswith("test_run_watcher.py:")
    assert "patient" not in json.dumps(lines)


def test_people_read_the_line_and_not_what_is_for_machines(capsys):
    tell = build_notifier(as_json=False)
    tell(LogEvent("party-online", "+ north is online (1 of 3).", party="north"))
    tell(LogEvent("round-committed", "round 3 of 4.", detail=True))
    assert capsys.readouterr().err == "+ north is online (1 of 3).\n"


def test_no_fact_takes_the_place_of_what_every_line_has():
    said = json.loads(
        format_json_line(LogEvent("x", "y", time="never", message="z", level="none"), at=0.0)
    )
    assert said == {
        "time": "1970-01-01T00:00:00.000Z",
        "level": "info",
        "event": "x",
        "message": "y",
    }
