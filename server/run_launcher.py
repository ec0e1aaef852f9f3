"""Launch the coordinator for a run's folder, with the launcher's files there.

The folder is the interface between the process that runs a job and the one that waits for it:
`started.json` at the start, `rounds.jsonl` and `parties.json` during the run, `summary.json` or
`error.json` at the end.
"""

from __future__ import annotations

import secrets
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.numpy import load_file

from parley.privacy.accounting.account_admission import AccountCertificate
from parley.safe_io.file_reading import read_text
from parley.safe_io.file_writing import write_file
from parley.safe_io.json_writing import format_json
from parley.safe_io.os_errors import describe_error
from parley.server.records.run_folder import PROPOSED_ID_FILE, RunFolder
from parley.server.records.run_folder_opening import load_run_job, open_run_folder
from parley.server.rounds.run_coordinator import coordinate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from parley.client.contract.release_plan import ReleasePlan
    from parley.client.contract.roster import Deployment
    from parley.server.jobs.job import Job
    from parley.server.records.round_line import RoundLine
    from parley.server.records.run_summary import RunSummary
    from parley.server.rounds.party_requests import Transport
    from parley.server.rounds.run_observer import Observer


def launch_run(
    folder: RunFolder,
    job: Job,
    *,
    transport: Transport,
    deployment: Deployment,
    observer: Observer | None = None,
    schema: str = "",
) -> RunSummary:
    """Run the job of a folder, or resume it; raise what `coordinate` raises."""
    return coordinate(
        _choose_certificate(job),
        transport=transport,
        deployment=deployment,
        folder=folder,
        observer=_StartRecorder(observer),
        version=_get_version(),
        fingerprint=_read_fingerprint(folder.path),
        components=_load_components(folder.path),
        schema=schema,
    )


def _choose_certificate(job: Job) -> Job:
    """Return the job with noise for the charges of real parties' accounts, which runs share."""
    simulated = not job.run.in_process or job.seed is not None  # Real parties refuse a seed.
    if simulated or job.privacy.certificate != "auto" or job.privacy.ledger:
        return job
    found = AccountCertificate.GAUSSIAN if job.privacy.delta else AccountCertificate.PURE
    privacy = job.privacy.model_copy(update={"certificate": str(found)})
    return job.model_copy(update={"privacy": privacy})


@contextmanager
def record_error(get_folder: Callable[[], Path | None]) -> Iterator[None]:
    """Write an exception that ends the block to the folder's `error.json`, if there is a folder."""
    try:
        yield
    except BaseException as error:
        folder = get_folder()
        if folder is not None:
            write_error(folder, error)
        raise


def open_run(path: Path) -> tuple[RunFolder, Job]:
    """Open a folder that was created before this run began, with or without a ledger."""
    if (path / "run-id").exists():
        return open_run_folder(path)
    job, proposed = load_run_job(path), path / PROPOSED_ID_FILE
    new = f"{path.resolve().name[:100]}-{secrets.token_hex(8)}"
    return RunFolder(path, read_text(proposed).strip() if proposed.exists() else new), job


class _StartRecorder:
    """Writes the plan for the launcher's display; rounds are in `rounds.jsonl`.

    Args:
        observer: gets the same calls in this process.
    """

    def __init__(self, observer: Observer | None) -> None:
        self._observer = observer

    def started(self, job: Job, plan: ReleasePlan, folder: Path, done: int) -> None:
        """Write `started.json`."""
        started = format_json({"plan": plan.to_json(), "done": done})
        write_file(folder / "started.json", started)
        if self._observer is not None:
            self._observer.started(job, plan, folder, done)

    def round_done(self, line: RoundLine) -> None:
        """Forward the line, which the coordinator has written."""
        if self._observer is not None:
            self._observer.round_done(line)


def _read_fingerprint(run: Path) -> str:
    """Return the data's ledger name if the launcher prepared the data; else empty: the
    coordinator's.
    """
    try:
        return (run / "parties" / "fingerprint").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _load_components(run: Path) -> NDArray[np.float64] | None:
    """Return public components if the launcher prepared them; else None: the job's own file has
    them.
    """
    path = run / "parties" / "components.safetensors"
    return load_file(path)["components"] if path.exists() else None


def _get_version() -> str:
    try:
        return version("parley")
    except PackageNotFoundError:
        return ""


def write_error(folder: Path, error: BaseException) -> None:
    """Write the error's class, message and trace, atomically."""
    kind, trace = type(error), "".join(traceback.format_exception(error))
    said = {"error": f"{kind.__module__}.{kind.__qualname__}", "message": describe_error(error)}
    write_file(folder / "error.json", format_json({**said, "trace": trace}))
