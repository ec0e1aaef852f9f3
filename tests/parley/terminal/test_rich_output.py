"""No text of a server, a party, a run's folder, a ledger or a table moves a terminal."""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from parley.deploy.run_watcher import format_refusal_counts, parse_party_states
from parley.deploy.stream import operator_client
from parley.deploy.stream.grpc_client import explain_call_error
from parley.safe_io.json_writing import format_json
from parley.safe_io.printable_text import (
    escape_unprintable,
    guard_streams,
    to_one_line,
    to_printable,
)
from parley.safe_io.toml_reading import parse_toml
from parley.safe_io.toml_writing import format_toml_key, format_toml_value
from parley.terminal import live_progress
from parley.terminal.deployment_status import RunStatus
from parley.terminal.live_progress import RunDisplay
from parley.terminal.rich_output import Screen

ROOT = Path(__file__).resolve().parents[3]
HOSTILE = (
    "\x1b[2J\x1b]0;title\x07\x1b]8;;http://evil\x1b\\x\x9b31m\x90q\x9c\u202eabc\u2066\u200b\ufeff"
    "\u2028\u2029\x7f\r\b\udc9b\U000e0041[red]bold[/red][link=http://evil]y[/link]:boom:"
)
SEEN = ("\x1b", "\x9b", "\x90", "\x07", "\u202e", "\u2066", "\u200b", "\ufeff", "\u2028", "\r")


def clean(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


def test_nothing_that_steers_hides_or_turns_is_left_and_markup_is_text():
    assert clean(to_printable(HOSTILE + "\nx"))
    assert "\n" not in to_one_line(HOSTILE + "\nx")
    table = Table(title=HOSTILE, caption=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    table.add_row(Text(HOSTILE, style="bold"))
    stream, before = io.StringIO(), sys.stdout
    try:
        sys.stdout = stream
        screen = Screen(width=400, force_terminal=False)
    finally:
        sys.stdout = before
    for each in (HOSTILE, Text(HOSTILE), table):
        screen.print(each)
    shown = stream.getvalue()
    assert clean(shown)
    assert shown.count("[link=http://evil]y[/link]:boom:") >= 4  # columns may break the others


def test_a_guarded_stream_is_clean_whoever_writes_to_it(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    guard_streams()
    guard_streams()  # once is enough
    print(HOSTILE)
    sys.stdout.writelines([HOSTILE, "\n"])
    handler = logging.StreamHandler()
    handler.emit(logging.LogRecord("x", logging.ERROR, "x", 1, HOSTILE, (), None))
    sys.excepthook(ValueError, ValueError(HOSTILE), None)
    assert clean(stream.getvalue())
    assert stream.getvalue().count("[red]bold[/red]") == 4
    with pytest.raises(TypeError):
        sys.stdout.write(b"bytes are no text")


def test_files_hold_such_characters_as_numbers_and_are_read_as_they_were():
    for text in (HOSTILE.replace("\udc9b", ""), "é ε 漢"):
        assert clean(format_json({text: [text]}))
        assert json.loads(format_json({text: [text]})) == {text: [text]}
        assert clean(toml := f"{format_toml_key(text)} = {format_toml_value(text)}")
        assert parse_toml(toml) == {text: text}
    assert json.loads(format_json("\udc9b")) == "\udc9b"
    assert escape_unprintable("é") == "é"


def test_what_a_server_says_of_its_parties_and_runs_is_one_line_each(monkeypatch, tmp_path):
    hostile = HOSTILE + "\n✓ 5 entries, chain and totals intact."
    board = {
        "round": hostile,
        "stage": hostile,
        "parties": [{"name": hostile, "state": hostile, "reason": hostile}, {"name": 7}],
        "refused": {hostile: 3},
    }
    said = {
        "address": hostile,
        "id": hostile,
        "parties": [{"name": hostile, "online": hostile}],
        "runs": [{"name": hostile, "state": hostile, "board": board, "refused": {hostile: 1}}],
    }

    class Answers:
        def __init__(self, _home):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def send_request(self, *_, **__):
            return said

    monkeypatch.setattr(operator_client, "OperatorClient", Answers)
    monkeypatch.setattr(operator_client, "load_operator_home", lambda folder: folder)
    lines = list(operator_client.fetch_status(tmp_path).format_lines())
    assert all(line.isprintable() for line in lines)
    assert len(lines) == 4
    for wrong in (None, [], {"parties": {}}, {"parties": [3]}, {"parties": [], "refused": 3}):
        assert parse_party_states(wrong) == {}
    assert format_refusal_counts({"clock-skew": 2})[0].startswith("2 parties: clock-skew")
    assert RunStatus(name="x", state="y").party_states == {}


def test_the_words_that_end_a_stream_are_one_line():
    class Ended:
        def code(self):
            import grpc

            return grpc.StatusCode.PERMISSION_DENIED

        def details(self):
            return HOSTILE + "\nnorth is ready."

    assert str(explain_call_error(Ended(), address="host:1")).isprintable()


WAYS = ("rich", "__stdout__", "__stderr__", "rich_proxied_file", "get_text_stream", ".buffer")
MAINS = ("def main(", "def begin_process(")


def sources() -> Iterator[tuple[str, str]]:
    for folder in ("parley", "server", "client", "simulations", "secure_agg", "privacy"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def ways_past(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(module="rich.console" | "rich", names=names):
                yield from (each.name for each in names if each.name in ("Console", "print"))
            case ast.Import(names=names):
                yield from (each.name for each in names if each.name.startswith("rich"))
            case ast.Attribute(attr="__stdout__" | "__stderr__" | "rich_proxied_file"):
                yield node.attr
            case ast.Attribute(attr="get_text_stream" | "get_binary_stream"):
                yield node.attr
            case ast.Attribute(attr="buffer", value=ast.Attribute(attr="stdout" | "stderr")):
                yield "buffer"


def test_there_is_no_second_way_to_a_terminal():
    """`Screen` alone is a console of rich's; every process that is begun guards its streams."""
    past = {
        (name, way)
        for name, text in sources()
        if any(each in text for each in WAYS)
        for way in ways_past(text)
    }
    assert past == {
        ("parley/terminal/rich_output.py", "Console"),
        ("parley/safe_io/printable_text.py", "rich_proxied_file"),
    }
    begun = {name: text for name, text in sources() if any(each in text for each in MAINS)}
    assert len(begun) >= 5
    assert {name for name, text in begun.items() if "guard_streams()" not in text} == set()


def test_while_a_run_is_drawn_nobody_else_steers_the_terminal_either(monkeypatch):
    """rich reads what others write meanwhile, sequences too, and would make links of them."""
    stream = io.StringIO()
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(live_progress, "_can_draw_bar", lambda console: True)
    monkeypatch.setattr(sys, "stderr", stream)
    with RunDisplay(quiet=False) as display:
        print(HOSTILE, file=sys.stderr)
        lost = {"name": HOSTILE, "state": "failed", "reason": HOSTILE}
        display.parties({"round": 1, "stage": HOSTILE, "parties": [lost]})
    assert sys.stderr is stream
    said = stream.getvalue()
    assert "\x1b[" in said  # rich's own
    assert not any(each in said for each in ("\x1b]", "\x1b[2J", *SEEN[1:-1]))


def test_on_a_real_terminal_a_hostile_header_and_job_are_shown_clean(tmp_path):
    table, job = tmp_path / "data.csv", tmp_path / "job.toml"
    rows = "\n".join(f"{i},{i},{i % 2}" for i in range(50))
    table.write_text(f'"\u202eevil\u200b","[red]x[/red]",y\n{rows}\n')
    job.write_text(
        '[data]\nsource = "\\u001b[2J\\u202e\\u200b"\n[algorithm]\nkind = "\\u001b]0;x"\n'
    )
    for words in (["schema", "infer", str(table), "--label", "y"], ["plan", str(job)]):
        said = on_a_terminal(words, tmp_path)
        assert not any(
            each in said for each in ("\u202e", "\u200b", "\x1b[2J", "\x1b]0;", "Traceback")
        )
        assert "[red]x[/red]" in said or "algorithm" in said


def on_a_terminal(words: list[str], folder: Path) -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "parley", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TERM": "xterm"},
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        said += part
    process.wait()
    os.close(ours)
    return said.decode("utf-8", errors="replace")
