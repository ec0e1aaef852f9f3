"""Read a run folder and check it: job, rounds so far, summary.

Files that this version of Parley would not write are refused, with the file and the key.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from parley.privacy.ledger.ledger_errors import LedgerError
from parley.safe_io.error_translation import translate_errors
from parley.safe_io.file_reading import read_lines, read_text
from parley.safe_io.os_errors import describe_cause
from parley.safe_io.toml_reading import parse_toml
from parley.server.jobs.section_base import JobError
from parley.server.records.json_record import JsonRecordError
from parley.server.records.round_line import RoundLine
from parley.server.records.run_folder import RunFolderError
from parley.server.records.run_summary import RunSummary


@dataclass(frozen=True, kw_only=True)
class RunContent:
    """A run as read from its folder.

    Attributes:
        remarks: what was not read, in sentences.
    """

    name: str
    summary: RunSummary
    rounds: tuple[RoundLine, ...]
    remarks: tuple[str, ...]
    job_text: str
    files: tuple[str, ...]


_MAX_READ = 20_000
"""Maximum number of log lines that are read. A chart has fewer points, and a line takes 5 KB of
memory.
"""
_MAX_LINES = 2_000_000
"""Maximum number of lines of a log, more than any job's rounds."""
_TORN = "The last line of rounds.jsonl"
_FILES = ("job.toml", "rounds.jsonl", "summary.json", "model.safetensors", "ledger.sqlite")


def read_run(folder: Path) -> RunContent:
    """Read all that a folder contains on its run, finished or not.

    Raises:
        RunFolderError: it is not a run folder, a file cannot be read, or no round was finished.
    """
    if not folder.is_dir():
        raise RunFolderError(f"Expected a run folder, got {folder}, which is not a directory.")
    for name in ("job.toml", "rounds.jsonl", "summary.json"):
        if (folder / name).is_symlink():
            # A link would make the report show a file of the reader's own.
            raise RunFolderError(f"Expected a regular file, {folder / name} is a link: remove it.")
    job_text = _read_text(folder / "job.toml")
    try:
        parse_toml(job_text)
    except tomllib.TOMLDecodeError as error:
        raise RunFolderError(f"Expected TOML in {folder / 'job.toml'}, got: {error}.") from error
    rounds, remarks = read_rounds(folder)
    summary = read_summary(folder)
    if summary is None and not rounds:
        raise RunFolderError(
            f"Expected summary.json, or a finished round in rounds.jsonl, in {folder}, got neither."
        )
    if summary is None:
        from parley.server.records.partial_summary import build_partial_summary  # noqa: PLC0415 - spares its code for a run that has ended
        from parley.server.records.run_folder_opening import load_run_job  # noqa: PLC0415 - likewise

        if len(rounds) < rounds[-1].round and len(rounds) >= _MAX_READ // 2:
            raise RunFolderError(
                f"{folder} has no summary, and more rounds than a report can add up. Resume the "
                "run: it writes its summary when it ends."
            )
        try:
            summary = build_partial_summary(folder, load_run_job(folder), rounds)
        except (JobError, LedgerError) as error:
            raise RunFolderError(f"Expected the folder of a run in {folder}: {error}") from error
    return RunContent(
        name=folder.resolve().name,
        summary=summary,
        rounds=rounds,
        remarks=remarks,
        job_text=job_text,
        files=tuple(name for name in _FILES if (folder / name).exists()),
    )


def read_summary(folder: Path) -> RunSummary | None:
    """Return the summary, which is written when a run ends; None before."""
    path = folder / "summary.json"
    if not path.exists():
        return None
    with translate_errors(JsonRecordError, RunFolderError):
        return RunSummary.parse(_read_text(path), path)


def read_rounds(folder: Path) -> tuple[tuple[RoundLine, ...], tuple[str, ...]]:
    """Return committed rounds in order, each once, and remarks.

    A crash may have torn the last line, and a resumed run may have written a round again. In a log
    of more than `_MAX_READ` lines, only every k-th line and the last one are read.
    """
    path = folder / "rounds.jsonl"
    if not path.exists():
        return (), ("rounds.jsonl is missing: the report has only the summary.",)
    rounds: dict[int, RoundLine] = {}
    torn: JsonRecordError | None = None
    number = 0
    try:
        count = sum(1 for _ in islice(read_lines(path), _MAX_LINES + 1))
        if count > _MAX_LINES:
            raise JsonRecordError(f"Expected at most {_MAX_LINES:,} lines in {path}, got more.")
        every = -(-count // _MAX_READ)
        for number, text in enumerate(read_lines(path), start=1):
            if not text.strip() or (number % every and number != count):
                continue
            if torn is not None:
                raise torn
            try:
                line = RoundLine.parse(text, f"{path}, line {number}")
                rounds[line.round] = line
            except JsonRecordError as error:
                if text.endswith("}"):
                    raise
                torn = error
    except JsonRecordError as error:
        raise RunFolderError(str(error)) from error
    except OSError as error:
        raise RunFolderError(f"Expected to read {path}, got: {describe_cause(error)}.") from error
    remarks: tuple[str, ...] = ()
    if torn is not None:
        remarks += (f"{_TORN} (line {number}) is incomplete; it is left out.",)
    if every > 1:
        remarks += (f"rounds.jsonl has {count:,} lines; every {every}th is shown.",)
    return tuple(rounds[each] for each in sorted(rounds)), remarks


def _read_text(path: Path) -> str:
    try:
        return read_text(path)
    except FileNotFoundError as error:
        raise RunFolderError(f"Expected {path.name} in {path.parent}, got no such file.") from error
    except OSError as error:
        raise RunFolderError(f"Expected to read {path}, got: {describe_cause(error)}.") from error
