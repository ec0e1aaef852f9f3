"""What a run folder says of its run, read and checked: the summary and the rounds so far.

Folders of Parley 0.1.0 have no `format` in these files and the same keys, so they are read;
anything else is refused, with the file and the key named.
"""

from __future__ import annotations

from pathlib import Path

from parley.server.records.facts import FactsError
from parley.server.records.round_line import RoundLine
from parley.server.records.run_folder import RunFolderError
from parley.server.records.summary import RunSummary

__all__ = ["read_rounds", "read_summary"]


def read_summary(folder: Path) -> RunSummary | None:
    """The summary, which is written when a run ends; None before.

    Raises:
        RunFolderError: it is there and can't be read.
    """
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

    Raises:
        RunFolderError: another line can't be read.
    """
    path = folder / "rounds.jsonl"
    if not path.exists():
        return (), ("rounds.jsonl is missing: the report has the summary only.",)
    lines = [line for line in _text(path).splitlines() if line.strip()]
    rounds: dict[int, RoundLine] = {}
    for number, text in enumerate(lines, start=1):
        try:
            line = RoundLine.parse(text, f"{path}, line {number}")
        except FactsError as error:
            if number < len(lines) or text.endswith("}"):
                raise RunFolderError(str(error)) from error
            torn = f"The last line of rounds.jsonl (line {number}) is torn; it is left out."
            return _in_order(rounds), (torn,)
        rounds[line.round] = line
    return _in_order(rounds), ()


def _in_order(rounds: dict[int, RoundLine]) -> tuple[RoundLine, ...]:
    return tuple(rounds[number] for number in sorted(rounds))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RunFolderError(f"Expected to read {path}, got: {error}.") from error
