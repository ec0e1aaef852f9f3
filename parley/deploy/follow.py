"""Watching a run from outside: the run folder says how it goes, and what ended it.

The coordinator works in another process. It appends to `rounds.jsonl`, keeps `parties.json`, and
leaves `started.json` at the start and `error.json` on a failure (`parley.server.app`). From these
the observer hears what it would hear in the fast engine, and an error is raised here as what it was
there, so that messages and exit statuses are the same.
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
        self._states(self._observer)

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
        try:
            with (self._folder / "rounds.jsonl").open("rb") as file:
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
                observer.round_done(
                    RoundLine.parse(line.decode("utf-8"), self._folder / "rounds.jsonl")
                )

    def _states(self, observer: Observer) -> None:
        tell: Callable[[dict[str, Any]], None] | None = getattr(observer, "parties", None)
        if tell is None:
            return
        content = board_of(self._folder)
        if content and content != self._parties:
            self._parties = content
            tell(content)


def follow(
    folder: Path,
    *,
    ended: Callable[[], str | None],
    observer: Observer | None,
    every: int = _STATUS_EVERY,
) -> RunSummary:
    """Follows a run to its end and returns its summary.

    Args:
        folder: the run's.
        ended: how the process that runs it ended it, None while it goes on; may raise.
        observer: called with what comes.
        every: at every so many looks into the folder `ended` is asked.

    Raises:
        what ended the run there, as the class it was; ProcessError where it was lost.
    """
    follower = Follower(folder, observer)
    looks, how = 0, ""
    while True:
        follower.look()
        looks += 1
        if looks % every == 0 and (said := ended()) is not None:
            how = said
            # It says `stopped` at once; the coordinator still writes down how it ended.
            _last_words(folder, _LAST_WORDS_S if how == "stopped" else 0.0)
            break
        time.sleep(_POLL_S)
    follower.look()
    raise_remote(folder)
    summary = read_summary(folder)
    if summary is not None:
        return summary
    if how == "stopped":
        raise RunStopped
    raise ProcessError(
        f"The run ended ({how}) before its summary was written: the process that ran it was "
        f"killed, or could not start. What it said last is in {_log_of(folder)}; to go on: "
        f"--resume {folder.name}."
    )


def _last_words(folder: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not any((folder / name).exists() for name in ("error.json", "summary.json")):
        if time.monotonic() >= until:
            return
        time.sleep(_POLL_S)


def _log_of(folder: Path) -> Path:
    """Where the process that runs the server's side writes: of an engine's run, of a server's."""
    own = folder / "logs" / "server.log"
    return own if own.exists() else folder.parent.parent / "logs" / "server.log"


def raise_remote(folder: Path) -> None:
    """Raises what `error.json` says, where there is one."""
    content = _json(folder / "error.json")
    if content is None:
        return
    # Of several lines: none of them begins as one of ours does.
    name, message = (str(content.get(key)).replace("\n", "\n  ") for key in ("error", "message"))
    if name == "builtins.KeyboardInterrupt":
        raise RunStopped
    if name in KNOWN_ERRORS:
        module, _, kind = name.rpartition(".")
        known: type[Exception] = getattr(importlib.import_module(module), kind)
        # Its own constructor may want other arguments than the message it made of them.
        error = known.__new__(known)
        Exception.__init__(error, message)
        raise error
    raise ProcessError(
        f"The run failed on the server with {name}: {message} (more in {folder / 'error.json'})"
    )


def _json(path: Path) -> dict[str, Any] | None:
    try:
        content = strict_json(text_of(path))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
