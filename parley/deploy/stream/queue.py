"""The runs of a deployment's server: one after another, in the order in which they were submitted.

A run is a folder in `runs/`. `state.json` in it says where it stands; it is the only memory of the
queue, so that a server that was killed goes on with the run that it was in, and with those that
waited. One thread conducts; others submit, look, and stop.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from parley.client.data.schema import Schema
from parley.deploy.follow import STALE
from parley.deploy.stream.questions import ASKED
from parley.server.jobs.file import load_job
from parley.server.jobs.job import Job, JobError
from parley.server.records.plain_json import json_text
from parley.server.records.run_folder import RunFolder, RunFolderError

__all__ = ["OPEN", "Queue", "QueuedRun", "files_named"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_STATE = "state.json"
_LARGEST_JOB = 1 << 20

_NAMES_FILES = (
    ("model", "kind"),
    ("model", "pca-file"),
    ("algorithm", "kind"),
    ("privacy", "ledger"),
    ("data", "test-source"),
    ("data", "test-schema"),
)

OPEN = frozenset({"queued", "running"})
"""States of a run that has not ended."""


@dataclass(frozen=True, kw_only=True)
class QueuedRun:
    """Where a run stands.

    Attributes:
        name: of its folder.
        state: `queued`, `running`, `complete`, `stopped`, `failed`, or how its summary says.
        at: seconds since 1970, when it was submitted.
        by: the operator who did.
    """

    name: str
    state: str
    at: float
    by: str


def files_named(job: Job) -> list[str]:
    """Keys of a job that name files of the machine that it runs on."""
    sections = job.model_dump(mode="json", by_alias=True)
    named = []
    for section, key in _NAMES_FILES:
        value = str(sections.get(section, {}).get(key, ""))
        # A kind is a file's only as `file.py:Name`.
        if value and (key != "kind" or ":" in value):
            named.append(f"{section}.{key}")
    return named


class Queue:
    """The runs in a folder.

    Args:
        runs: the folder that holds theirs.
    """

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._changed = threading.Condition()

    def runs(self) -> list[QueuedRun]:
        """All of them, the oldest submission first."""
        found = [self._state(path) for path in self._runs.iterdir() if path.is_dir()]
        return sorted((run for run in found if run is not None), key=lambda run: (run.at, run.name))

    def submit(self, text: str, *, by: str, own_files: bool, schema: str = "") -> str:
        """Makes the folder of a new run, at the end of the queue; its name.

        Args:
            text: the job file.
            by: whose it is.
            own_files: it may name files of this machine.
            schema: the parties' schema file as the operator has it, to be kept with the model.

        Raises:
            JobError: no job, or one that names files and may not.
            SchemaError: no schema.
            RunFolderError: the folder cannot be made.
        """
        if len(text.encode()) > _LARGEST_JOB:
            raise JobError(f"Expected a job of at most {_LARGEST_JOB} bytes.")
        draft = self._runs / f".{threading.get_ident()}.job.toml"
        try:
            draft.write_text(text, encoding="utf-8")
            job = load_job(draft)
        finally:
            draft.unlink(missing_ok=True)
        named = files_named(job)
        if named and not own_files:
            raise JobError(
                f"Expected a job that names no files of the server, got {', '.join(named)}: submit "
                "it on the server's machine, from the server's folder."
            )
        job = job.model_copy(update={"run": job.run.model_copy(update={"out": str(self._runs)})})
        kept = Schema.from_toml(schema, source="the operator's schema") if schema else None
        folder = RunFolder.create(job)
        if kept is not None:
            folder.keep_schema(kept.to_toml())
        with self._changed:
            self._write(QueuedRun(name=folder.path.name, state="queued", at=time.time(), by=by))
            self._changed.notify_all()
        return folder.path.name

    def submit_queries(self, text: str, *, by: str) -> str:
        """Makes the folder of a new run of queries, at the end of the queue; its name.

        Args:
            text: the submission, checked.
            by: whose it is.
        """
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        path = self._runs / f"{stamp}-queries-{secrets.token_hex(4)}"
        try:
            path.mkdir()
            (path / ASKED).write_text(text, encoding="utf-8")
        except OSError as error:
            raise RunFolderError(f"Cannot make run folder {path}: {error.strerror}.") from error
        with self._changed:
            self._write(QueuedRun(name=path.name, state="queued", at=time.time(), by=by))
            self._changed.notify_all()
        return path.name

    def resume(self, name: str, *, by: str) -> None:
        """Puts a run that ended before its last round at the end of the queue.

        Raises:
            RunFolderError: there is no such run, it is complete, or goes on already.
        """
        path = self.folder(name)
        with self._changed:
            known = self._state(path)
            if known is not None and known.state in OPEN:
                raise RunFolderError(f"{name} is {known.state}. It ends with: parley stop {name}")
            if known is not None and known.state == "complete":
                raise RunFolderError(f"{name} is complete. Its page: parley report {path}")
            if not (path / "run-id").exists() and not (path / ASKED).exists():
                raise RunFolderError(f"{name} was never begun: submit the job again.")
            for stale in STALE:
                (path / stale).unlink(missing_ok=True)
            self._write(QueuedRun(name=name, state="queued", at=time.time(), by=by))
            self._changed.notify_all()

    def take(self) -> QueuedRun:
        """Waits for the run whose turn it is, and marks it as running."""
        with self._changed:
            while True:
                waiting = [run for run in self.runs() if run.state in OPEN]
                # One that runs is of a server that was killed: it comes first.
                for run in sorted(waiting, key=lambda each: each.state != "running"):
                    return self._as(run, "running")
                # In between, so that a signal is heard.
                self._changed.wait(1.0)

    def ended(self, name: str, state: str) -> None:
        """Notes how a run ended; one whose job is refused has no folder any more."""
        with self._changed:
            run = self._state(self._runs / name)
            if run is not None:
                self._as(run, state)

    def withdraw(self, name: str) -> bool:
        """Stops a run that waits; whether it did."""
        with self._changed:
            run = self._state(self.folder(name))
            if run is None or run.state != "queued":
                return False
            self._as(run, "stopped")
            (self._runs / name / "error.json").write_text(
                json_text({"error": "builtins.KeyboardInterrupt", "message": "", "trace": ""}),
                encoding="utf-8",
            )
            return True

    def folder(self, name: str) -> Path:
        """A run's folder.

        Raises:
            RunFolderError: there is none of that name.
        """
        # One name, so that no operator reaches beyond the server's own runs.
        if not _NAME.fullmatch(name) or not (self._runs / name).is_dir():
            raise RunFolderError(f"Expected the name of a run of this server, got {name[:128]!r}.")
        return self._runs / name

    def _as(self, run: QueuedRun, state: str) -> QueuedRun:
        changed = QueuedRun(name=run.name, state=state, at=run.at, by=run.by)
        self._write(changed)
        return changed

    def _write(self, run: QueuedRun) -> None:
        path = self._runs / run.name
        draft = path / f".{_STATE}.part"
        said = {"state": run.state, "at": run.at, "by": run.by}
        draft.write_text(json_text(said), encoding="utf-8")
        draft.replace(path / _STATE)

    def _state(self, path: Path) -> QueuedRun | None:
        try:
            said: dict[str, Any] = json.loads((path / _STATE).read_text(encoding="utf-8"))
            return QueuedRun(
                name=path.name,
                state=str(said["state"]),
                at=float(said["at"]),
                by=str(said["by"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None
