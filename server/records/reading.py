"""What a run folder says of its run, read and checked: job, rounds so far, summary.

Anything else than what this Parley writes is refused, with the file and the key named.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from parley.client.contract.file_reading import lines_of, text_of
from parley.client.contract.toml_reading import parse_toml
from parley.privacy.ledger.errors import LedgerError
from parley.server.jobs.file import load_job
from parley.server.jobs.section import JobError
from parley.server.records.facts import FactsError
from parley.server.records.round_line import RoundLine
from parley.server.records.run_folder import RunFolderError
from parley.server.records.summary import RunSummary
from parley.server.records.unfinished import summary_so_far


@dataclass(frozen=True, kw_only=True)
class RunContent:
    """A run as its folder tells it.

    Attributes:
        remarks: what was left out of the reading, in sentences.
    """

    name: str
    summary: RunSummary
    rounds: tuple[RoundLine, ...]
    remarks: tuple[str, ...]
    job_text: str
    files: tuple[str, ...]


_TORN = "The last line of rounds.jsonl"
_FILES = ("job.toml", "rounds.jsonl", "summary.json", "model.safetensors", "ledger.sqlite")


def read_run(folder: Path) -> RunContent:
    """All that a folder tells of its run, finished or not.

    Raises:
        RunFolderError: it is no run's folder, a file can't be read, or no round was finished.
    """
    if not folder.is_dir():
        raise RunFolderError(f"Expected a run folder, got {folder}, which is not a directory.")
    job_text = _text(folder / "job.toml")
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
        try:
            summary = summary_so_far(folder, load_job(folder / "job.toml"), rounds)
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
    """The summary, which is written when a run ends; None before."""
    path = folder / "summary.json"
    if not path.exists():
        return None
    try:
        return RunSummary.parse(_text(path), path)
    except FactsError as error:
        raise RunFolderError(str(error)) from error


def read_rounds(folder: Path) -> tuple[tuple[RoundLine, ...], tuple[str, ...]]:
    """Committed rounds in order, each once, and remarks.

    A crash may have torn the last line, and a resumed run may have written one again.
    """
    path = folder / "rounds.jsonl"
    if not path.exists():
        return (), ("rounds.jsonl is missing: the report has the summary only.",)
    rounds: dict[int, RoundLine] = {}
    torn: FactsError | None = None
    number = 0
    try:
        for number, text in enumerate(filter(str.strip, lines_of(path)), start=1):
            if torn is not None:
                raise torn
            try:
                line = RoundLine.parse(text, f"{path}, line {number}")
                rounds[line.round] = line
            except FactsError as error:
                if text.endswith("}"):
                    raise
                torn = error
    except FactsError as error:
        raise RunFolderError(str(error)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise RunFolderError(f"Expected to read {path}, got: {error}.") from error
    remarks = () if torn is None else (f"{_TORN} (line {number}) is torn; it is left out.",)
    return tuple(rounds[each] for each in sorted(rounds)), remarks


def _text(path: Path) -> str:
    try:
        return text_of(path)
    except FileNotFoundError as error:
        raise RunFolderError(f"Expected {path.name} in {path.parent}, got no such file.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RunFolderError(f"Expected to read {path}, got: {error}.") from error
