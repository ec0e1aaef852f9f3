"""Define the run folder, which stores all that a run leaves behind.

It contains `job.toml` as run, `schema.toml`, `canaries.json` if a simulation hides some, and
`rounds.jsonl` (one line per round). `model.safetensors` has how rows are read and the privacy
statement in its metadata. There are `ledger.sqlite`, unless the job names a shared one,
`summary.json`, and the report that the package `parley` writes.
"""

from __future__ import annotations

import fcntl
import json
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save

from parley.client.own_code.own_code_names import get_public_name
from parley.privacy.ledger.ledger_errors import BudgetExceeded, LedgerError
from parley.safe_io.file_reading import read_lines, read_text
from parley.safe_io.file_writing import append_to_file, replace_file, write_file
from parley.safe_io.json_writing import format_json
from parley.safe_io.os_errors import describe_cause
from parley.server.jobs.external_references import locate_section
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import render_job
from parley.server.model_file import MODEL_FILE, encode_model
from parley.server.records.json_record import JsonRecordError
from parley.server.records.round_line import RoundLine
from parley.server.records.run_summary import RunSummary

PROPOSED_ID_FILE = "proposed-id"
"""File with the name of a run that its owners are asked about, before it begins."""


class RunFolderError(Exception):
    """A run folder that cannot be created, read or continued."""


class WorkFolder:
    """A folder for one process at a time: a run's, or a query session's.

    Attributes:
        run_id: its name in the ledger: the folder's name and a random suffix.
        main_file: the file that describes what was begun in it.
    """

    main_file: ClassVar[str]

    def __init__(self, path: Path, run_id: str) -> None:
        self.path = path
        self.run_id = run_id

    @property
    def ledger_path(self) -> Path:
        """Path of the folder's ledger, unless another was named."""
        return self.path / "ledger.sqlite"

    @property
    def schema(self) -> str:
        """Text of the schema; empty if the server was given none."""
        path = self.path / "schema.toml"
        return read_text(path) if path.exists() else ""

    def save_schema(self, text: str) -> None:
        """Save the schema of the columns, which is public and which predictions need; "": none."""
        if text:
            self._write("schema.toml", text)

    @contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Lock the folder for this process; the lock ends with the process, however it ends.

        Raises:
            RunFolderError: another process uses it.
        """
        with (self.path / self.main_file).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunFolderError(
                    f"{self.path} is in use by another process. Stop that process first."
                ) from None
            yield

    def _write(self, name: str, text: str) -> None:
        self._write_bytes(name, text.encode("utf-8"))

    def _write_bytes(self, name: str, content: bytes) -> None:
        write_file(self.path / name, content)


def create_folder(
    path: Path | None, parent: Path, kind: str, *, main_file: str, remedy: str
) -> tuple[Path, str]:
    """Create a folder, `path` if given, and return it with its name in the ledger.

    Args:
        parent: folder in which a new one is created, named by time and `kind`.
        main_file: file that shows that it is such a folder already.
        remedy: what to do then.

    Raises:
        RunFolderError: it exists and is not empty, or cannot be created.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    path = path or parent / f"{stamp}-{kind}-{secrets.token_hex(2)}"
    # Records and pages contain the name, as UTF-8 text.
    if not str(path.resolve()).isprintable():
        raise RunFolderError(f"Expected a printable folder's name, got {str(path)!a}.")
    try:
        if path.exists() and not path.is_dir():
            raise RunFolderError(f"Expected a new folder at {path}, got a file. Choose another.")
        if path.exists() and any(path.iterdir()):
            said = remedy.format(str(path)) if (path / main_file).exists() else "Choose another."
            raise RunFolderError(f"{path} exists and is not empty. {said}")
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"Cannot make folder {path}: {describe_cause(error)}.") from error
    return path, f"{path.resolve().name[:64]}-{secrets.token_hex(8)}"


class RunFolder(WorkFolder):
    """The folder of one run; its name in the ledger is stored in `run-id`."""

    main_file = "job.toml"

    @classmethod
    def create(cls, job: Job, out: Path | None = None) -> RunFolder:
        """Create the folder: `out` if given, else a new one under `run.out`."""
        kind = re.sub(r"[^a-z0-9]+", "-", get_public_name(job.algorithm.kind).lower())
        instead = "Choose another --out, or continue that run with --resume {}."
        folder = cls(
            *create_folder(out, Path(job.run.out), kind, main_file=cls.main_file, remedy=instead)
        )
        try:
            folder._write("job.toml", render_run_job(resolve_paths(job)))
        except OSError as error:
            raise RunFolderError(
                f"Cannot write to {folder.path}: {describe_cause(error)}."
            ) from error
        return folder

    def save_job(self, job: Job) -> None:
        """Save the job with the numbers that its rule chose, for a resumed run."""
        self._write("job.toml", render_run_job(resolve_paths(job)))

    def mark_begun(self) -> None:
        """Mark the folder as one that can be resumed; call it once its ledger exists.

        A folder with a run-id always has a ledger. If it is missing later, it was lost, and the run
        must not start again under the same budget.
        """
        self._write("run-id", self.run_id + "\n")

    def save_proposed_id(self) -> None:
        """Save the run's name before its owners are asked: an approval is for this run only."""
        self._write(PROPOSED_ID_FILE, self.run_id + "\n")

    @property
    def is_begun(self) -> bool:
        """Whether the run began before, so that it may hold releases."""
        return (self.path / "run-id").exists()

    def save_coins(self, coins: Mapping[str, int]) -> None:
        """Save which canaries a simulation hid among its records, for a resumed run."""
        if coins:
            self._write("canaries.json", format_json(dict(coins)) + "\n")

    @property
    def coins(self) -> dict[str, int]:
        """What `save_coins` saved; empty if the run has no canaries."""
        path = self.path / "canaries.json"
        if not path.exists():
            return {}
        try:
            noted = json.loads(read_text(path))
        except ValueError as error:
            raise RunFolderError(f"Expected JSON in {path}, got {error}.") from error
        if (
            not isinstance(noted, dict)
            or set(noted) != {"canaries", "seed"}
            or not all(type(value) is int and value >= 0 for value in noted.values())
        ):
            raise RunFolderError(f"Expected two whole numbers in {path}, got something else.")
        return noted

    def save_roster_id(self, deployment: str) -> None:
        """Save the id of the deployment that the run began with."""
        self._write("deployment-id", deployment + "\n")

    def check_roster(self, deployment: str) -> None:
        """Raise RunFolderError if the run began with other parties, or other identities."""
        path = self.path / "deployment-id"
        known = read_text(path).strip() if path.exists() else deployment
        if known != deployment:
            raise RunFolderError(
                f"Expected the roster that {self.path.name} began with (id {known[:16]}…), got "
                f"another (id {deployment[:16]}…): a party or its keys changed. Submit the job "
                "again."
            )

    @contextmanager
    def discard_if_refused(self, *, new: bool) -> Iterator[None]:
        """Remove the folder if the ledger refuses the run before its first release.

        A resumed run keeps its folder: a release may be under way that only this folder can resume.
        """
        try:
            yield
        except LedgerError as error:
            commissioned = self.is_begun
            rounds = self.path / "rounds.jsonl"
            begun = rounds.exists() and rounds.stat().st_size > 0
            refused = isinstance(error, BudgetExceeded) and not begun
            if new and (not commissioned or refused):
                for name in ("rounds.jsonl", "run-id", PROPOSED_ID_FILE, "schema.toml", "job.toml"):
                    (self.path / name).unlink(missing_ok=True)
                # Remove the run's own ledger too: it holds no charge.
                for file in self.path.glob("ledger.sqlite*"):
                    file.unlink()
                with suppress(OSError):
                    self.path.rmdir()
            raise

    def append_round(self, line: RoundLine) -> None:
        """Append one line to `rounds.jsonl`."""
        append_to_file(self.path / "rounds.jsonl", _dump(line).encode())

    def _load_figures(self) -> dict[int, dict[str, float | None]]:
        """Return simulation-only metrics by round, from the complete lines of `rounds.jsonl`."""
        path = self.path / "rounds.jsonl"
        figures: dict[int, dict[str, float | None]] = {}
        for text in read_lines(path) if path.exists() else ():
            with suppress(JsonRecordError):  # torn by a crash
                line = RoundLine.parse(text, path)
                figures[line.round] = line.simulation_only
        return figures

    def check_ledger(self, committed: Collection[int]) -> None:
        """Raise RunFolderError if the log has a round that the ledger never committed.

        The ledger is then another run's, or an older copy. Continuing would release the round
        again.
        """
        beyond = sorted(set(self._load_figures()) - set(committed))
        if beyond:
            raise RunFolderError(
                f"Expected the ledger of run {self.run_id}, got one that does not have round "
                f"{beyond[0]} of its log: the ledger of another job, or an older copy."
            )

    def rewrite_rounds(self, lines: Iterable[RoundLine]) -> None:
        """Replace `rounds.jsonl`, after a crash, with the lines that the ledger committed.

        The ledger has no simulation-only metrics; those of complete lines are kept. If `lines`
        raises an error, the file stays as it was.
        """
        known = self._load_figures()
        with replace_file(self.path / "rounds.jsonl") as file:
            for line in lines:
                merged = line.with_fields(simulation_only=known.get(line.round, {}))
                file.write(_dump(merged).encode())

    def save_step(self, release: int, step: int, state: Mapping[str, NDArray[Any]]) -> None:
        """Save the state after one of several secure sums in a release.

        Parties answer each sum once, so that a killed run has to continue after the last one.
        """
        contiguous = {name: np.ascontiguousarray(array) for name, array in state.items()}
        names = {"release": str(release), "step": str(step)}
        self._write_bytes("step.safetensors", save(contiguous, metadata=names))

    def load_step(self, release: int) -> tuple[int, dict[str, NDArray[Any]]]:
        """Return the last saved sum of a release and its state, or 0 and an empty state."""
        path = self.path / "step.safetensors"
        if not path.exists():
            return 0, {}
        with safe_open(path, framework="numpy") as file:
            if file.metadata().get("release") != str(release):
                return 0, {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            return int(file.metadata()["step"]), state

    def write_summary(self, summary: RunSummary) -> None:
        """Write `summary.json`."""
        self._write("summary.json", format_json(summary.to_json(), indent=2) + "\n")

    def write_model(
        self,
        arrays: Mapping[str, NDArray[Any]],
        statement: Mapping[str, str],
        name: str = MODEL_FILE,
    ) -> None:
        """Write `model.safetensors`, or another file, with the privacy statement as metadata."""
        self._write_bytes(name, encode_model(arrays, statement))


def render_run_job(job: Job) -> str:
    """Return the job of a run with all keys, under a line that has their number."""
    count = sum(map(len, job.to_values().values()))
    line = f"# A run's job, with all {count} keys of the Parley that wrote it.\n"
    return f"{line}\n{render_job(job)}"


def resolve_paths(job: Job) -> Job:
    """Return the job with absolute file paths, for resuming from another working directory.

    The data keep their name in the ledger, which the job may take from their path.
    """
    folder = Path.cwd()
    sections = {name: locate_section(getattr(job, name), folder) for name in Job.model_fields}
    if sections["data"] != job.data and not job.privacy.dataset:
        named = {"dataset": job.data.name}
        sections["privacy"] = sections["privacy"].model_copy(update=named)
    return job.model_copy(update=sections)


def _dump(line: RoundLine) -> str:
    return format_json(line.to_json(), compact=True) + "\n"
