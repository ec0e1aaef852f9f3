"""What a server or a party tells whoever runs it: lines for people, or one JSON object a line.

An `LogEvent` is the line that a person reads, and carries what a machine needs of it. Nothing in an
event depends on a record: names, numbers of parties, states and classes of reason, as the protocol
itself shows them to the server.

    >>> event = LogEvent("party-online", "+ north is online (1 of 3).", party="north", online=1)
    >>> print(event)
    + north is online (1 of 3).
    >>> format_json_line(event, at=0.0)  # doctest: +ELLIPSIS
    '{"time":"1970-01-01T00:00:00.000Z","level":"info","event":"party-online",...}'
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from parley.safe_io.json_writing import format_json

Fact = str | int | float | None
Notifier = Callable[[str], None]
"""Takes a line, which may be an `LogEvent`."""


class LogEvent(str):
    """A line of the log, with what happened in a word or two, and facts of it.

    One with a `detail` is for a machine alone; a person has it elsewhere.
    """

    __slots__ = ("detail", "facts", "kind")

    kind: str
    facts: Mapping[str, Fact]
    detail: bool

    def __new__(cls, kind: str, line: str, *, detail: bool = False, **facts: Fact) -> Self:
        """An event with its facts."""
        made = super().__new__(cls, line)
        made.kind, made.facts, made.detail = kind, facts, detail
        return made


def format_json_line(
    line: str, *, at: float | None = None, level: str = "info", kind: str = "said", **facts: Fact
) -> str:
    """A line as one JSON object: when, how grave, what happened, the line itself, its facts.

    `at` is in seconds since 1970; `kind` is that of a line that is no event.
    """
    own = line if isinstance(line, LogEvent) else LogEvent(kind, line)
    when = datetime.fromtimestamp(time.time() if at is None else at, UTC)
    head = {
        "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": level,
        "event": own.kind,
        "message": str(own),
    }
    said = {**head, **own.facts, **facts, **head}  # no fact takes the place of the head
    return format_json(said, compact=True)


class _JsonFormatter(logging.Formatter):
    """What a library or we log, as one JSON object a line.

    Of an exception only its class and where it was raised: its text may hold whatever it was
    raised about, and these lines are made to be collected.
    """

    def format(self, record: logging.LogRecord) -> str:
        facts: dict[str, Fact] = {}
        if record.exc_info and record.exc_info[0] is not None:
            kind, _, trace = record.exc_info
            facts["error"] = f"{kind.__module__}.{kind.__qualname__}"
            if frames := traceback.extract_tb(trace):
                facts["raised"] = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
        return format_json_line(
            record.getMessage(),
            at=record.created,
            level=record.levelname.lower(),
            kind=record.name,
            **facts,
        )


def build_notifier(*, as_json: bool) -> Notifier:
    """What tells lines on stderr: as they are, or, with what is logged, as JSON."""
    if not as_json:
        return _print_line
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    return lambda line: print(format_json_line(line), file=sys.stderr, flush=True)


def _print_line(line: str) -> None:
    if not (isinstance(line, LogEvent) and line.detail):
        print(line, file=sys.stderr, flush=True)
