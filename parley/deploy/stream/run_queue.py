"""Queue the runs of a deployment's server, in the order of their submission.

A run is a folder in `runs/`. Its `state.json` has the run's state and is the queue's only memory.
So a server that was killed resumes the interrupted run, then starts the queued ones. One thread
executes runs; other threads submit, look and stop.

Query sessions are in a layer above deployments. So the server receives a `QueryAnswerer` when it
starts.
"""

from __future__ import annotations

import errno
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from parley.client.data.schema import Schema
from parley.deploy.run_watcher import STALE_FILES
from parley.safe_io.file_reading import read_text
from parley.safe_io.file_writing import write_file
from parley.safe_io.json_writing import format_json
from parley.safe_io.os_errors import describe_cause, report_os_errors
from parley.safe_io.path_names import is_plain_name
from parley.server.jobs.job_file import load_job
from parley.server.jobs.machine_references import check_submission
from parley.server.jobs.section_base import JobError
from parley.server.records.run_folder import PROPOSED_ID_FILE, RunFolder, RunFolderError
from parley.server.rounds.party_requests import Transport
from parley.server.run_launcher import write_error

_log = logging.getLogger("parley.server")

QUERIES_FILE, ANSWERS_FILE, PAGE_FILE = "asked.json", "answers.json", "answers.html"
"""Files of a query run: the submitted queries, all answers, and their page."""
SESSION_FOLDER = "session"
"""Folder of the query session in it."""

_STATE = "state.json"
_LARGEST_JOB = 1 << 20

OPEN_STATES = frozenset({"queued", "running"})
"""States of a run that has not ended."""

SET_ASIDE = "set-aside"
"""State of a run that made no progress before the server's process ended."""

_UNKNOWN = -1
_POLL_S = 1.0
_LACKS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO})
_Result = TypeVar("_Result")
_KILLED = (
    "the server's process ended during this run, before it made progress. The run's code may have "
    "ended the process, memory may have run out, or someone killed it. See the server's log and "
    "the system's. The run waits until you resume it: --resume {name}"
)


class QueryAnswerer(Protocol):
    """Checks and answers submitted queries."""

    def check(self, text: str, *, own_files: bool) -> None:
        """Refuse queries that cannot be asked, before they enter the queue. This charges nothing.

        Args:
            text: The submission, JSON, from an operator.
            own_files: Whether it may name files of this machine.
        """

    def answer(self, folder: Path, *, home: Path, transport: Transport) -> None:
        """Ask the parties a run's queries, or resume, and write answers and page into its
        folder.
        """


@dataclass(frozen=True, kw_only=True)
class QueuedRun:
    """A run's state in the queue.

    Attributes:
        state: One of `OPEN_STATES`, `complete`, `stopped`, `failed`, `set-aside`, or the state in
            its summary.
        at: Time of submission in seconds since 1970.
        by: Operator who submitted it.
        done: Progress when the server last took it.
        reason: Why it was set aside; empty for others.
    """

    name: str
    state: str
    at: float
    by: str
    done: int = _UNKNOWN
    reason: str = ""


class RunQueue:
    """The runs in a folder."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._changed = threading.Condition()

    def list_runs(self) -> list[QueuedRun]:
        """Return all runs, the oldest submission first."""
        found = [self._state(path) for path in self._runs.iterdir() if path.is_dir()]
        return sorted((run for run in found if run is not None), key=lambda run: (run.at, run.name))

    def submit(self, text: str, *, by: str, own_files: bool, schema: str = "") -> str:
        """Create the folder of a new run at the end of the queue and return its name.

        Args:
            own_files: Whether the job may name files and code of this machine.
            schema: The operator's copy of the parties' schema file, to be stored with the model.

        Raises:
            JobError, SchemaError: the job or schema is not valid, or the job names files or code
                without permission.
        """
        if len(text.encode()) > _LARGEST_JOB:
            raise JobError(f"Expected a job of at most {_LARGEST_JOB} bytes.")
        draft = self._runs / f".{secrets.token_hex(8)}.job.toml"
        try:
            write_file(draft, text)
            # Its paths are not below the folder of this draft.
            job = load_job(draft, stored=True)
        finally:
            draft.unlink(missing_ok=True)
        if not own_files:
            check_submission(job)
        job = job.model_copy(update={"run": job.run.model_copy(update={"out": str(self._runs)})})
        kept = Schema.from_toml(schema, source="the operator's schema") if schema else None
        folder = RunFolder.create(job)
        if kept is not None:
            folder.save_schema(kept.to_toml())
        return self._enqueue(folder.path.name, by=by)

    def submit_queries(self, text: str, *, by: str) -> str:
        """Create the folder of a new run of checked queries and return its name."""
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        path = self._runs / f"{stamp}-queries-{secrets.token_hex(4)}"
        with report_os_errors(RunFolderError, f"Cannot create run folder {path}"):
            path.mkdir()
            write_file(path / QUERIES_FILE, text)
        return self._enqueue(path.name, by=by)

    def resume(self, name: str, *, by: str) -> None:
        """Queue a run that ended before its last round again; raise RunFolderError for any
        other.
        """
        path = self.get_folder(name)
        with self._changed:
            known = self._state(path)
            state = None if known is None else known.state
            if state in OPEN_STATES:
                raise RunFolderError(f"{name} is {state}. Stop it first: parley stop DIR {name}")
            if state == "complete":
                raise RunFolderError(f"{name} is complete. Write its page: parley report {path}")
            begun = ("run-id", PROPOSED_ID_FILE, QUERIES_FILE)
            kept = any((path / file).exists() for file in begun)
            if not kept and state != SET_ASIDE:
                raise RunFolderError(f"{name} never started. Submit the job again.")
            for stale in STALE_FILES:
                (path / stale).unlink(missing_ok=True)
            self._enqueue(name, by=by)

    def take_next(self) -> QueuedRun:
        """Wait for the next run, mark it as running and return it.

        A run that is marked already was interrupted when the server was killed. It is resumed if it
        made progress since it was taken. Otherwise it may have killed the server, and is set aside.
        If the machine refuses (no file handle left, a full disk), this waits and tries again.
        """
        with self._changed:
            while True:
                taken = self._retry_until_done(self._take_next)
                if taken is not None:
                    return taken
                # Wait only this long, so that a signal is handled.
                self._changed.wait(_POLL_S)

    def _take_next(self) -> QueuedRun | None:
        """Mark the next run as running and return it; return None if no run waits."""
        waiting = [run for run in self.list_runs() if run.state in OPEN_STATES]
        for run in sorted(waiting, key=lambda each: each.state != "running"):
            done = _count_progress(self._runs / run.name)
            if run.state == "running" and done <= run.done:
                self._set_aside(run)
                continue
            return self._write(replace(run, state="running", done=done))
        return None

    def _retry_until_done(self, action: Callable[[], _Result]) -> _Result:
        """Return what `action` returns. After an OSError log it once, wait and try again."""
        logged = ""
        while True:
            try:
                return action()
            except OSError as error:
                if (reason := describe_cause(error)) != logged:
                    logged = reason
                    _log.error("The run queue waits because of a system error: %s.", reason)
                self._changed.wait(_POLL_S)

    def record_end(self, name: str, state: str) -> None:
        """Record how a run ended. A run with a refused job has no folder any more."""
        with self._changed:
            self._retry_until_done(partial(self._note_end, name, state))

    def put_back(self, name: str) -> None:
        """Record that a run was interrupted with the server, so that it is resumed at the next
        start.

        This does not wait if the machine refuses, because the server is ending.
        """
        with self._changed, suppress(OSError):
            self._note_end(name, "queued")

    def _note_end(self, name: str, state: str) -> None:
        run = self._state(self._runs / name)
        if run is not None:
            self._write(replace(run, state=state))

    def withdraw(self, name: str) -> bool:
        """Stop a queued run and return whether it was queued."""
        with self._changed:
            run = self._state(self.get_folder(name))
            if run is None or run.state != "queued":
                return False
            self._write(replace(run, state="stopped"))
            write_error(self._runs / name, KeyboardInterrupt())
            return True

    def get_folder(self, name: str) -> Path:
        """Return a run's folder; raise RunFolderError if no run has that name."""
        # Only one plain name, so that no operator can reach other folders.
        if not is_plain_name(name) or not (self._runs / name).is_dir():
            raise RunFolderError(
                f"Expected the name of one of this server's runs, got {name[:128]!r}."
            )
        return self._runs / name

    def _enqueue(self, name: str, *, by: str) -> str:
        with self._changed:
            # After all others, even if the clock was set back.
            last = max((run.at for run in self.list_runs()), default=0.0)
            at = max(time.time(), last + 0.001)
            self._write(QueuedRun(name=name, state="queued", at=at, by=by))
            self._changed.notify_all()
        return name

    def _set_aside(self, run: QueuedRun) -> None:
        reason = _KILLED.format(name=run.name)
        _log.error("%s is set aside: %s", run.name, reason)
        write_error(self._runs / run.name, RunFolderError(f"{run.name} was set aside: {reason}"))
        self._write(replace(run, state=SET_ASIDE, reason=reason))

    def _write(self, run: QueuedRun) -> QueuedRun:
        path = self._runs / run.name
        said = {key: value for key, value in asdict(run).items() if key != "name"}
        write_file(path / _STATE, format_json(said))
        return run

    def _state(self, path: Path) -> QueuedRun | None:
        try:
            said: dict[str, Any] = json.loads(read_text(path / _STATE))
            return QueuedRun(
                name=path.name,
                state=str(said["state"]),
                at=float(said["at"]),
                by=str(said["by"]),
                done=int(said.get("done", _UNKNOWN)),
                reason=str(said.get("reason", "")),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            # An error of this process, not of the run: do not treat the run as missing.
            if isinstance(error, OSError) and error.errno in _LACKS:
                raise
            return None


def _count_progress(run: Path) -> int:
    """Return a run's progress: whether it started, plus its number of committed rounds or answers.

    A run starts once the code that it names has run. So a run that was killed in its first round is
    resumed, and a run that kills the server at once is not.
    """
    begun = ("started.json", "session/session.json")
    logs = (run / name for name in ("rounds.jsonl", "session/answers.jsonl"))
    lines = sum(log.read_bytes().count(b"\n") for log in logs if log.exists())
    return lines + sum((run / name).exists() for name in begun)
