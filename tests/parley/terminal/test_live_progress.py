"""What a run shows while it runs: a bar that fits, or a line every 30 s."""

import io
import re
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import invoked
from rich.cells import cell_len
from rich.console import Console

from parley import command_table
from parley.notebook_progress import NotebookDisplay
from parley.run_api import run
from parley.server.jobs.job_file import load_job
from parley.terminal.heartbeat import Heartbeat, say_working
from parley.terminal.live_progress import RunDisplay


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def beats():
    clock, said = Clock(), []
    made = Heartbeat(said.append, clock=clock)

    def at(seconds):
        """Every second up to this one."""
        while clock.now < seconds:
            clock.now += 1.0
            made.emit_if_due()

    made.at, made.said = at, said
    return made


def test_long_work_says_its_stage_every_thirty_seconds(beats):
    beats.note("reading")
    beats.at(29)
    assert beats.said == []
    beats.at(61)
    beats.note("rounds", "3 of 50 rounds")
    beats.at(95)
    beats.note("baseline", "50 of 50 rounds")
    beats.at(3725)
    assert beats.said[:3] == [
        "reading (30 s)",
        "reading (1 min 0 s)",
        "rounds, 3 of 50 rounds (1 min 30 s)",
    ]
    assert beats.said[-1] == "baseline, 50 of 50 rounds (1 h 2 min)"
    assert len(beats.said) == 3725 // 30


def test_short_work_says_nothing(beats):
    for second, stage in enumerate(("reading", "preparing", "rounds", "baseline", "report")):
        beats.note(stage)
        beats.at(5 * (second + 1))
    assert beats.said == []


def test_who_is_missing_is_said_after_five_seconds_and_then_every_thirty(beats):
    beats.note("inspect", waiting="waiting for west")
    beats.at(4)
    assert beats.said == []
    beats.at(40)
    assert beats.said == ["inspect, waiting for west (5 s)", "inspect, waiting for west (35 s)"]
    beats.note("inspect", waiting="waiting for east")
    beats.at(46)
    assert beats.said[2:] == ["inspect, waiting for east (45 s)"]


def test_a_run_names_each_of_its_stages_in_order(tmp_path):
    stages = []

    class Stages:
        def stage(self, name):
            stages.append(name)

        def started(self, job, plan, folder, done):
            stages.append("rounds")

        def round_done(self, line):
            pass

    run(load_job(overrides=["algorithm.rounds=2"]), out=tmp_path / "r", observer=Stages())
    assert list(dict.fromkeys(stages)) == ["reading", "preparing", "rounds", "baseline", "report"]


@pytest.mark.parametrize(
    ("tty", "variables", "lines"),
    [
        (True, {"TERM": "xterm"}, False),
        (True, {"TERM": "dumb"}, True),
        (False, {"TERM": "xterm"}, True),
        (False, {"TERM": "xterm", "FORCE_COLOR": "1"}, True),  # as a CI sets it
    ],
)
def test_lines_are_said_wherever_no_bar_is_seen(monkeypatch, tty, variables, lines):
    stream = io.StringIO()
    stream.isatty = lambda: tty
    monkeypatch.setattr(sys, "stderr", stream)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (RunDisplay(quiet=False)._beats is not None) == lines
    assert RunDisplay(quiet=True)._beats is None


def test_a_stream_that_was_closed_ends_nothing(monkeypatch):
    clock = Clock()

    def closed(_line):
        raise ValueError("I/O operation on closed file.")

    beats = Heartbeat(closed, clock=clock)
    clock.now = 60.0
    beats.emit_if_due()
    monkeypatch.setattr(sys, "stderr", None)
    with say_working("plan"):
        pass


@pytest.mark.parametrize("quiet", [False, True])
def test_a_submitted_run_says_at_what_time_it_was_queued_and_started(quiet, monkeypatch, tmp_path):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with RunDisplay(quiet=quiet, verbose=False, name="20261126-aa") as display:
        run({"algorithm.rounds": 1, "run.baseline": False}, out=tmp_path / "r", observer=display)
    lines = [line for line in stream.getvalue().splitlines() if "20261126-aa" in line]
    said = [re.fullmatch(r"\d\d:\d\d:\d\d 20261126-aa: (queued|started)", line) for line in lines]
    assert [found and found[1] for found in said] == ([] if quiet else ["queued", "started"])


def board(*parties):
    made = [{"name": name, "state": state, "reason": ""} for name, state in parties]
    return {"round": 0, "stage": "inspect", "parties": made}


def test_what_a_follower_shows_says_who_is_missing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    display, noted = RunDisplay(quiet=False), []
    with display:
        display._beats.note = lambda *what, **more: noted.append((what, more))
        display.parties(
            board(("west", "offline"), ("east", "online"), ("n", "waiting for approval"))
        )
        display.parties(board(("west", "online"), ("east", "online"), ("n", "online")))
    assert noted == [
        (("inspect", ""), {"waiting": "waiting for west; waiting for the approval of n"}),
        (("inspect", ""), {"waiting": ""}),
    ]


@pytest.mark.parametrize("width", [24, 40, 60, 80, 200])
def test_the_bar_names_what_it_does_from_the_first_second_and_fits_the_width(monkeypatch, width):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", str(width))
    display = RunDisplay(quiet=False)
    plain = Console(file=io.StringIO(), width=width)
    with display:
        for stage in ("starting", "reading", "preparing", "rounds", "baseline", "report"):
            display.stage(stage, figures="ε = 0.53 (record) · loss 0.6931 · accuracy 0.913")
            plain.file = io.StringIO()
            plain.print(display._progress.get_renderable())
            lines = plain.file.getvalue().splitlines()
            assert len(lines) == 1
            assert cell_len(lines[0]) <= width
            assert stage[:4] in lines[0]
            assert "?" not in lines[0]


@pytest.mark.parametrize("width", [24, 80, 200])
def test_the_bar_says_once_for_whom_the_spent_epsilon_holds_and_only_if_it_shows_one(
    tmp_path, monkeypatch, width
):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setenv("COLUMNS", str(width))
    plain = Console(file=io.StringIO(), width=width)
    display = RunDisplay(quiet=False)
    shown = []

    class Watched:
        def __getattr__(self, name):
            return getattr(display, name)

        def stage(self, name):
            display.stage(name)
            shown.append(drawn())

        def round_done(self, line):
            display.round_done(line)
            shown.append(drawn())

    def drawn():
        plain.file = io.StringIO()
        plain.print(display._progress.get_renderable())
        return plain.file.getvalue()

    with display:
        run(load_job(overrides=["algorithm.rounds=2"]), out=tmp_path / "r", observer=Watched())
    for text in shown:
        lines = text.splitlines()
        assert all(cell_len(line) <= width for line in lines)
        if width > 60:
            assert text.count("for releases fixed beforehand") == ("ε = " in text)
    assert sum(len(text.splitlines()) == 2 for text in shown) >= 2


def test_a_notebook_says_once_for_whom_the_spent_epsilon_holds(tmp_path):
    shown = []

    class Display:
        HTML = staticmethod(str)

        def display(self, html, **_):
            shown.append(html)
            return self

        def update(self, html):
            shown.append(html)

    job = load_job(overrides=["algorithm.rounds=2"])
    run(job, out=tmp_path / "r", observer=NotebookDisplay(Display()))
    assert len(shown) >= 3
    assert [html.count("for releases fixed beforehand") for html in shown] == [
        int("ε = " in html) for html in shown
    ]


def test_a_job_whose_output_is_no_terminal_draws_no_bar(tmp_path, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with RunDisplay(quiet=False) as display:
        run(load_job(overrides=["algorithm.rounds=2"]), out=Path(tmp_path / "r"), observer=display)
    assert "\x1b" not in stream.getvalue()
    assert "━" not in stream.getvalue()
    first, last = re.findall(r"(?m)^\d\d:\d\d:\d\d (.*)$", stream.getvalue())
    assert first == "round 0/2"
    assert re.fullmatch(r"round 2/2  ε = [\d.]+ of 1", last)


def test_a_line_about_the_rounds_has_the_time_of_day_the_budget_and_the_time_left(monkeypatch):
    stream, clock = io.StringIO(), Clock()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("parley.terminal.live_progress.time.monotonic", clock)
    display = RunDisplay(quiet=False)
    said = []
    display._beats = Heartbeat(said.append, clock=clock, read_time=lambda: "22:31:04")
    display._rounds, display._done, display._spent = 60, 12, "ε = 0.49 of 1"
    display._began, clock.now = 0.0, 45.0
    display._note_rounds(display._beats)
    display._beats.emit_if_due()
    assert said == ["22:31:04 round 12/60  ε = 0.49 of 1  about 3 min 0 s left"]
    display._task = display._progress.add_task("rounds", figures="")
    display.stage("baseline")
    clock.now = 80.0
    display._beats.emit_if_due()
    assert said[1:] == [
        "22:31:04 training the non-private baseline (run.baseline = false skips it)"
    ]


def test_commands_without_a_bar_say_that_they_work(monkeypatch, tmp_path):
    working = []

    @contextmanager
    def noting(command):
        working.append(command)
        yield

    monkeypatch.setattr(command_table, "say_working", noting)
    invoked("schema", "check", tmp_path / "nosuch.toml", tmp_path / "nosuch.csv")
    invoked("party", tmp_path / "nosuch")
    invoked("run", "--print-job")
    assert working == ["schema"]


def test_reading_shows_the_file_and_its_rows_so_far(tmp_path):
    rows = "".join(f"{age},{'yes' if age > 50 else 'no'}\n" for age in range(100))
    (tmp_path / "ward.csv").write_text("age,sick\n" + rows)
    seen = []

    class Watcher(RunDisplay):
        def reading(self, source, rows):
            super().reading(source, rows)
            seen.append((source, rows, self._beats._stage))

    keys = {"parties.count": 2, "algorithm.rounds": 1, "run.baseline": False}
    with Watcher(quiet=False) as display:
        run(
            keys,
            data=str(tmp_path / "ward.csv"),
            schema={"age": (0, 120), "sick": ["no", "yes"]},
            label="sick",
            out=tmp_path / "run",
            observer=display,
        )
    assert seen == [(str(tmp_path / "ward.csv"), 100, "reading ward.csv: 100 rows")]
