"""Run folders that somebody else filled: what a report writes, reads and shows of them."""

from __future__ import annotations

import json
import os

import pytest
from commands import invoked
from pages import make_run

from parley.exit_status import get_exit_status
from parley.safe_io.file_writing import (
    append_to_file,
    make_folder,
    make_private_folder,
    write_file,
)
from parley.server.records.run_folder import RunFolder
from parley.server.records.run_reader import read_rounds
from parley.server.records.session_folder import SessionFolder

MINE = "what is mine\n"


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "authorized_keys"
    path.write_text(MINE)
    return path


@pytest.fixture
def received(tmp_path):
    return make_run(tmp_path / "received" / "run")


@pytest.mark.parametrize(
    "name", [".report.html.part", "report.html", ".summary.json.part", "schema.toml"]
)
def test_a_report_of_a_received_folder_writes_through_no_link(received, own, name):
    (received / name).symlink_to(own)
    before = sorted(received.iterdir())
    said = invoked("report", received)
    assert own.read_text() == MINE
    assert sorted(received.iterdir()) == before  # next to it
    if said.exit_code == 0:
        page = received.with_name("run-report.html")
        assert said.output.strip() == str(page.resolve())
        assert "<!doctype html>" in page.read_text()[:100].lower()


def test_a_page_is_written_on_request_and_into_ones_own_folder(received, tmp_path, own):
    out = tmp_path / "page.html"
    out.symlink_to(own)
    assert invoked("report", received, "--out", out).exit_code == 0
    assert own.read_text() == MINE
    assert not out.is_symlink()
    assert not (received / "report.html").exists()
    assert invoked("report", received).output.strip() == str(received / "report.html")


def test_nothing_is_appended_to_a_file_of_ones_own(tmp_path, own):
    """What `--resume` and a session add to: links of both kinds, a pipe, a link to nothing."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "job.toml").write_text("")
    other = tmp_path / "other"
    for name, make in {
        "soft": lambda path: path.symlink_to(own),
        "hard": lambda path: path.hardlink_to(own),
        "pipe": os.mkfifo,
        "nowhere": lambda path: path.symlink_to(other),
    }.items():
        path = folder / name
        make(path)
        with pytest.raises(OSError, match="one name"):
            append_to_file(path, b"a line\n")
    (folder / "answers.jsonl").symlink_to(own)
    session = SessionFolder(folder, "run", {})
    with pytest.raises(OSError, match="one name"):
        session.append("{}")
    session.rewrite(["{}"])
    assert (folder / "answers.jsonl").read_text() == "{}\n"
    (folder / "rounds.jsonl").symlink_to(own)
    RunFolder(folder, "run").rewrite_rounds([])
    assert (folder / "rounds.jsonl").read_text() == ""
    assert own.read_text() == MINE
    assert not other.exists()
    (folder / "rounds.jsonl").write_text("as it was\n")
    with pytest.raises(ZeroDivisionError):
        RunFolder(folder, "run").rewrite_rounds(1 // 0 for _ in range(1))
    assert (folder / "rounds.jsonl").read_text() == "as it was\n"


def test_a_folder_within_a_folder_is_no_link_to_another(tmp_path):
    home, folder = tmp_path / "home", tmp_path / "run"
    home.mkdir()
    folder.mkdir()
    (folder / "tables").symlink_to(home)
    with pytest.raises(OSError, match="got a link"):
        make_folder(folder / "tables")
    make_folder(folder / "figures")
    make_folder(folder / "figures")


def test_a_private_folder_is_private_whatever_the_umask(tmp_path):
    for umask in (0o000, 0o022, 0o277):
        before = os.umask(umask)
        try:
            make_private_folder(tmp_path / f"{umask}" / "within")
        finally:
            os.umask(before)
        for path in (tmp_path / f"{umask}", tmp_path / f"{umask}" / "within"):
            assert path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["job.toml", "summary.json", "rounds.jsonl"])
def test_no_page_shows_what_a_link_in_a_received_folder_leads_to(received, own, name):
    own.write_bytes((received / name).read_bytes())
    (received / name).unlink()
    (received / name).symlink_to(own)
    said = invoked("report", received)
    assert get_exit_status(said.exception) == 2
    assert "is a link" in str(said.exception)


def test_a_file_is_replaced_whole_or_stays_and_leaves_no_draft(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_file(path, "old", mode=0o600)
    assert path.stat().st_mode & 0o777 == 0o600

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space"):
            write_file(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def numbers_in(value, path=()):
    """The paths of all numbers of a JSON value."""
    if isinstance(value, dict):
        value = list(value.items())
    elif isinstance(value, list):
        value = list(enumerate(value))
    else:
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield path
        return
    for key, part in value:
        yield from numbers_in(part, (*path, key))


def test_a_number_of_any_length_is_an_error_in_a_line_or_shown(received):
    path = received / "summary.json"
    facts = json.loads(path.read_text())
    for place in list(numbers_in(facts))[::5]:
        changed = json.loads(json.dumps(facts))
        holder = changed
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = "@"
        for digits in ("9" * 5000, "9" * 4000, "-" + "9" * 400, "1e999"):
            path.write_text(json.dumps(changed).replace('"@"', digits))
            said = invoked("report", received)
            assert said.exit_code == 0 or get_exit_status(said.exception) == 2, (place, digits[:5])


def test_an_error_echoes_no_markup_of_a_file(received, capsys):
    path = received / "summary.json"
    facts = json.loads(path.read_text())
    for changed in (
        {**facts, "status": "<script>alert(1)</script>", "rounds": "<b>"},
        {**facts, "<script>alert(1)</script>": 1},
        {**facts, "format": "<script>alert(1)</script>"},
    ):
        path.write_text(json.dumps(changed))
        said = invoked("report", received)
        assert "<" not in str(said.exception or "")


def test_no_character_that_a_terminal_obeys_or_that_turns_letters_stands_in_a_page(tmp_path):
    evil = "a\x1b[31mb\u202ec\u2066d\u200be"
    run = make_run(tmp_path / "run", job="# a\u202eb\u2066\n", reason=evil)
    assert invoked("report", run).exit_code == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "\\u202e" in page
    assert not set(page) & {"\x1b", "\u202e", "\u2066", "\u200b"}


def test_a_log_of_three_hundred_thousand_rounds_is_bounded(received):
    path = received / "rounds.jsonl"
    line = json.loads(path.read_text().splitlines()[-1])
    before, rounds = json.dumps({**line, "round": "@"}).split('"@"')
    with path.open("w") as file:
        file.writelines(f"{before}{number}{rounds}\n" for number in range(1, 300_001))
    lines, remarks = read_rounds(received)
    assert len(lines) <= 20_001
    assert lines[-1].round == 300_000
    assert remarks == ("rounds.jsonl has 300,000 lines; every 15th is shown.",)
