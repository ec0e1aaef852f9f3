"""Run a job in real processes: `parley run --engine processes` and `--engine flower`.

Both engines create the usual run folder with a folder per party. They start the server and the
parties as processes of the installed Parley, follow the run folder, and end all processes at the
end. They differ in the transport: `parley.deploy.stream`, or Flower in its simulation
(`parley.deploy.flower_simulation`, a separate process).

All files of a run are inside its folder. `parties/` has a folder per party, with its log and
ledger. `logs/` has the processes' logs. The transport uses `network/`, which is removed when the
run is over.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from parley.client.contract.roster import load_deployment
from parley.client.data.reading_progress import watch_reading
from parley.client.party.party_folder import erase_sessions
from parley.deploy.child_processes import Supervisor, build_environment
from parley.deploy.process_errors import ProcessError
from parley.deploy.run_watcher import STALE_FILES, follow
from parley.deploy.stream.multiprocess_engine import run_stream
from parley.exit_status import get_exit_status
from parley.module_loading.plugin_table import PluginTable
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.model_file import ModelFileError, open_model
from parley.server.records.run_folder import RunFolder, resolve_paths
from parley.server.records.run_folder_opening import open_run_folder
from parley.server.records.run_reader import read_summary
from parley.server.records.run_result import RunResult
from parley.server.records.run_summary import RunSummary
from parley.server.rounds.run_observer import Observer, tell_rows, tell_stage
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.data.simulated_experiment import Experiment
from parley.simulations.engine.party_folders import party_folders, prepare_parties
from parley.simulations.metrics.process_run_metrics import build_local_summary


def run_simulation(
    run: Path, supervisor: Supervisor, job: Job, observer: Observer | None
) -> RunSummary:
    """Run a job in Flower's simulation, with a node per party."""
    # A short path: Ray's sockets are files, and a socket's path has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="parley-", ignore_cleanup_errors=True) as scratch:
        command = [sys.executable, "-P", "-m", "parley.deploy.flower_simulation"]
        process = supervisor.start(
            "Flower's simulation",
            [*command, str(run), str(job.parties.count)],
            environment=_build_environment(Path(scratch), run),
            log=run / "logs" / "server.log",
        )

        def ended() -> str | None:
            return None if process.running else "finished"

        try:
            return follow(run, ended=ended, observer=observer)
        finally:
            supervisor.end()  # before its files are removed


def run_flower(job: Job | None, **options: Any) -> RunResult:
    """Run a job, or resume a run, in Flower's simulation; raise JobError without Ray."""
    if importlib.util.find_spec("ray") is None:
        raise JobError(
            "The flower engine needs Ray, which is not installed. Install it with: pip install "
            '"parley[ray]"'
        )
    return run_processes(run_simulation, job, **options)


def run_stream_processes(job: Job | None, **options: Any) -> RunResult:
    """Run a job, or resume a run, with real processes that talk over gRPC."""
    return run_processes(run_stream, job, **options)


def _build_environment(scratch: Path, run: Path) -> dict[str, str]:
    """Return an environment in which Flower and Ray store all files in `scratch` and use no
    network.
    """
    return {
        **build_environment(),
        "PARLEY_RUN": str(run),
        "FLWR_HOME": str(scratch),
        "TMPDIR": str(scratch),
        "RAY_TMPDIR": str(scratch),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_DEDUP_LOGS": "0",
    }


Launch = Callable[[Path, Supervisor, Job, Observer | None], RunSummary]
"""Function that starts the processes of a run in a folder, whose parties exist, and follows it to
its end.
"""

# Files removed from a party's folder after its run. A run that can be resumed keeps the last.
_SECRETS = ("party.key", "party.pem", "identity.key")


def run_processes(
    launch: Launch,
    job: Job | None,
    *,
    out: Path | None = None,
    resume: Path | None = None,
    observer: Observer | None = None,
) -> RunResult:
    """Run a job in processes on this machine, or resume a run.

    Raises:
        ProcessError: a process did not start, or ended unexpectedly. The fast engine's errors, too.
    """
    if resume is not None:
        folder, job = open_run_folder(resume)
    elif job is None:
        raise JobError("Expected a job or a run to resume, got neither.")
    else:
        job = resolve_paths(job)  # other processes have another working folder
        folder = RunFolder.create(job, out)
    run = folder.path.resolve()
    ended = None if resume is None else read_summary(run)
    if ended is not None and ended.status == "complete":
        # The run was stopped after its last round, in the baseline: its model is on disk.
        return _add_simulation_metrics(ended, job, folder, load_experiment(job))
    for name in STALE_FILES:
        (run / name).unlink(missing_ok=True)
    parties, finished = run / "parties", False
    try:
        with Supervisor() as supervisor:
            tell_stage(observer, "reading")
            with watch_reading(partial(tell_rows, observer)):
                experiment = load_experiment(job)
            tell_stage(observer, "preparing")
            job = job.resolve_auto(experiment.federation, experiment.data.classes)
            folder.save_job(job)
            if not (parties / "deployment.toml").exists():  # it exists if a run is resumed
                prepare_parties(job, parties, experiment=experiment)
            folder.save_schema(experiment.data.schema)
            served = launch(run, supervisor, job, observer)
        finished = True
    except Exception as error:
        # As in the fast engine, a job that cannot run leaves no files.
        if get_exit_status(error) in {2, 3} and not (run / "run-id").exists():
            shutil.rmtree(run, ignore_errors=True)
        raise
    finally:
        _clean(run, finished=finished)
    return _add_simulation_metrics(served, job, folder, experiment)


def _add_simulation_metrics(
    ended: RunSummary, job: Job, folder: RunFolder, experiment: Experiment
) -> RunResult:
    """Return a run whose model is on disk, with the metrics that only a simulation may compute."""
    run = folder.path.resolve()
    parties, model = run / "parties", _load_model(run)
    homes = party_folders(parties, len(load_deployment(parties / "deployment.toml").parties))
    summary = build_local_summary(ended, job=job, experiment=experiment, model=model, parties=homes)
    folder.write_summary(summary)
    return RunResult(summary=summary, folder=folder.path, theta=model["theta"])


ENGINES = PluginTable[Callable[..., RunResult]](
    {
        "flower": "parley.deploy.process_engines:run_flower",
        "processes": "parley.deploy.process_engines:run_stream_processes",
    }
)
"""Engines in addition to the fast one, by their name in --engine."""


def _clean(run: Path, *, finished: bool) -> None:
    """Remove the network's files and, if the run is over, all secrets of its parties.

    An interrupted run can be resumed: identities and last contributions stay, sessions do not.
    """
    shutil.rmtree(run / "network", ignore_errors=True)
    for home in (run / "parties").glob("party-*"):
        for name in _SECRETS if finished else _SECRETS[:-1]:
            (home / name).unlink(missing_ok=True)
        if finished:
            shutil.rmtree(home / "state", ignore_errors=True)
        else:
            # A resumed run joins its parties again, so these secrets are not needed any more.
            erase_sessions(home)


def _load_model(run: Path) -> dict[str, Any]:
    """Return the arrays of the run's model file."""
    try:
        return dict(open_model(run).tensors)
    except ModelFileError as error:
        raise ProcessError(f"The run ended without its model: {error}.") from error
