"""Watching a run from outside: the run folder says how it goes, and what ended it.

The coordinator works in another process. It appends to `rounds.jsonl`, keeps `parties.json`, and
leaves `started.json` at the start and `error.json` on a failure (`parley.server.conducting`). From
these the observer hears what it would hear in the fast engine, and an error is raised here as what
it was there, so that messages and exit statuses are the same.
"""

from __future__ import annotations

import importlib
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parley.client.contract.file_reading import text_of
from parley.client.contract.plan import ReleasePlan
from parley.client.contract.protocol import strict_json
from parley.deploy.processes import ProcessError
from parley.deploy.refusals import board_of
from parley.errors import KNOWN_ERRORS
from parley.server.jobs.file import load_job
from parley.server.records.reading import read_summary
from parley.server.records.round_line import RoundLine
from parley.server.records.summary import RunSummary
from parley.server.rounds.observer import Observer

STALE = ("started.json", "error.json", "summary.json", "parties.json")
"""What an earlier attempt left in a run folder, to be removed before the next."""

_POLL_S, _STATUS_EVERY = 0.05, 10
_LAST_WORDS_S = 20.0


class RunStopped(KeyboardInterrupt):
    """The run was stopped where it ran (`parley stop`), like Ctrl-C here."""


def farewell(error: KeyboardInterrupt, *, folder: Path, to: Path) -> str:
    """What to do next about a run in `folder`, after Ctrl-C here or a stop where it ran."""
    server, name = shlex.quote(str(to)), folder.name
    if not isinstance(error, RunStopped):
        return (
            f"No longer watching; the run goes on.\n  parley status {server}\n  parley "
            f"stop {server} {name}"
        )
    if not (folder / "run-id").exists():
        return "Stopped before its first round: submit the job again."
    return f"Stopped. Continue with:\n  parley submit --to {server} --resume {name}"


class Follower:
    """Tells an observer what has come into a run folder since it last looked."""

    def __init__(self, folder: Path, observer: Observer | None) -> None:
        self._folder, self._observer = folder, observer
        self._started = False
        self._read = self._skipped = self._done = 0
        self._parties: dict[str, Any] = {}

    def look(self) -> None:
        """Reads what is new."""
        if self._observer is None:
            return
        if not self._started:
            self._start(self._observer)
        if self._started:
            self._rounds(self._observer)
        tell: Callable[[Any], None] | None = getattr(self._observer, "parties", None)
        content = board_of(self._folder) if tell is not None else {}
        if tell is not None and content and content != self._parties:
            self._parties = content
            tell(content)

    def _start(self, observer: Observer) -> None:
        content = _json(self._folder / "started.json")
        if content is not None:
            self._started = True
            plan = ReleasePlan.from_json(content["plan"])
            self._done = int(content["done"])
            # By now its rounds are settled.
            job = load_job(self._folder / "job.toml")
            observer.started(job, plan, self._folder, self._done)

    def _rounds(self, observer: Observer) -> None:
        path = self._folder / "rounds.jsonl"
        try:
            with path.open("rb") as file:
                file.seek(self._read)
                new = file.read()
        except OSError:
            return
        # A line that is still being written has no end yet.
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            if self._skipped < self._done:
                # A round of before the run was resumed: told then.
                self._skipped += 1
            else:
                observer.round_done(RoundLine.parse(line.decode("utf-8"), path))


def until_ended(
    folder: Path,
    ended: Callable[[], str | None],
    *,
    look: Callable[[], None] = lambda: None,
    every: int = _STATUS_EVERY,
) -> str:
    """Waits for the end of a run, of a job or of queries; how it ended.

    Args:
        folder: the run's.
        ended: how the process that runs it ended it, None while it goes on; may raise.
        look: called with every look into the folder.
        every: at every so many looks `ended` is asked.

    Raises:
        what ended the run there, as the class it was.
    """
    looks, how = 0, None
    while how is None:
        look()
        looks += 1
        time.sleep(_POLL_S)
        how = ended() if looks % every == 0 else None
    # It says `stopped` at once; the coordinator still writes down how it ended.
    until = time.monotonic() + (_LAST_WORDS_S if how == "stopped" else 0.0)
    while not any((folder / name).exists() for name in ("error.json", "summary.json")):
        if time.monotonic() >= until:
            break
        time.sleep(_POLL_S)
    look()
    raise_remote(folder)
    return how


def follow(
    folder: Path,
    *,
    ended: Callable[[], str | None],
    observer: Observer | None,
    every: int = _STATUS_EVERY,
) -> RunSummary:
    """Follows a job's run to its end, as `until_ended` does, and returns its summary.

    Raises:
        what ended the run there, as the class it was; ProcessError where it was lost.
    """
    look = Follower(folder, observer).look
    how = until_ended(folder, ended, look=look, every=every)
    summary = read_summary(folder)
    if summary is not None:
        return summary
    if how == "stopped":
        raise RunStopped
    own = folder / "logs" / "server.log"  # of an engine's run; else of a server's
    log = own if own.exists() else folder.parent.parent / "logs" / "server.log"
    raise ProcessError(
        f"The run ended ({how}) before its summary was written: the process that ran it was "
        f"killed, or could not start. What it said last is in {log}; to go on: "
        f"--resume {folder.name}."
    )


def raise_remote(folder: Path) -> None:
    """Raises what `error.json` says, where there is one."""
    content = _json(folder / "error.json")
    if content is None:
        return
    name, message = str(content.get("error")), str(content.get("message"))
    if name == "builtins.KeyboardInterrupt":
        raise RunStopped
    place = folder / "error.json"
    unknown = f"The run failed on the server with {name}: {message} (more in {place})"
    raise as_it_was(name, message, unknown=unknown)


def as_it_was(name: str, message: str, *, unknown: str) -> Exception:
    """What another process raised, as the class that it was there; else ProcessError of `unknown`.

    Of several lines: none but the first begins as one of ours does.
    """
    if name not in KNOWN_ERRORS:
        return ProcessError(unknown.replace("\n", "\n  "))
    module, _, kind = name.rpartition(".")
    known: type[Exception] = getattr(importlib.import_module(module), kind)
    # Its own constructor may want other arguments than the message it made of them.
    error = known.__new__(known)
    Exception.__init__(error, message.replace("\n", "\n  "))
    return error


def _json(path: Path) -> dict[str, Any] | None:
    try:
        content = strict_json(text_of(path))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
