"""Log events of a server or a party on stderr, as text lines or as one JSON object per line.

A `LogEvent` is the line that a person reads. It also contains the fields that a program needs. No
event depends on a record. Events contain names, numbers of parties, states and classes of reason,
which the protocol shows to the server anyway.

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
"""A function that takes a line, which may be a `LogEvent`."""


class LogEvent(str):
    """A line of the log with its kind of event and its facts.

    An event with `detail` is only for JSON logs: a person sees the same elsewhere.
    """

    __slots__ = ("detail", "facts", "kind")

    kind: str
    facts: Mapping[str, Fact]
    detail: bool

    def __new__(cls, kind: str, line: str, *, detail: bool = False, **facts: Fact) -> Self:
        """Create an event with its facts."""
        made = super().__new__(cls, line)
        made.kind, made.facts, made.detail = kind, facts, detail
        return made


def format_json_line(
    line: str, *, at: float | None = None, level: str = "info", kind: str = "said", **facts: Fact
) -> str:
    """Return a line as one JSON object with time, level, event, message and facts.

    `at` is in seconds since 1970. `kind` is used if the line is not an event.
    """
    own = line if isinstance(line, LogEvent) else LogEvent(kind, line)
    when = datetime.fromtimestamp(time.time() if at is None else at, UTC)
    head = {
        "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": level,
        "event": own.kind,
        "message": str(own),
    }
    said = {**head, **own.facts, **facts, **head}  # a fact never replaces a key of the head
    return format_json(said, compact=True)


class _JsonFormatter(logging.Formatter):
    """Formats log records of Parley and its libraries as one JSON object per line.

    For an exception it writes only the class and where it was raised. The exception's text may
    contain private values, and these lines are meant to be collected.
    """

    def format(self, record: logging.LogRecord) -> str:
        facts: dict[str, Fact] = {}
        if record.exc_info and record.exc_info[0] is not None:
            kind, _, trace = record.exc_info
            facts["error"] = f"{kind.__module__}.{kind.__qualname__}"
            if frames := traceback.extract_tb(trace):
                facts["raised"] = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
        level, at = record.levelname.lower(), record.created
        return format_json_line(record.getMessage(), at=at, level=level, kind=record.name, **facts)


def build_notifier(*, as_json: bool) -> Notifier:
    """Return a function that writes lines to stderr. With `as_json`, log records become JSON."""
    if not as_json:
        return _print_line
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    return lambda line: print(format_json_line(line), file=sys.stderr, flush=True)


def _print_line(line: str) -> None:
    if not (isinstance(line, LogEvent) and line.detail):
        print(line, file=sys.stderr, flush=True)
