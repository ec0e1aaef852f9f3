"""A run in Flower's simulation: a separate process (`parley.deploy.flower_process`)."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from parley.deploy.follow import follow
from parley.deploy.processes import Supervisor, own_environment
from parley.server.jobs.job import Job
from parley.server.jobs.section import JobError
from parley.server.records.summary import RunSummary
from parley.server.rounds.observer import Observer


def run_simulation(
    run: Path, supervisor: Supervisor
) -> Callable[[Job, Observer | None], RunSummary]:
    """What runs a job in Flower's simulation, every party a node; JobError without Ray."""
    if importlib.util.find_spec("ray") is None:
        raise JobError(
            "The flower engine needs Ray, which is not installed. Add it with: "
            'pip install "parley[ray]"'
        )

    def launch(job: Job, observer: Observer | None) -> RunSummary:
        # Ray's sockets are files, and a socket's path is 107 characters at most.
        with tempfile.TemporaryDirectory(prefix="parley-", ignore_cleanup_errors=True) as scratch:
            process = supervisor.start(
                "Flower's simulation",
                [
                    *(sys.executable, "-P", "-m", "parley.deploy.flower_process"),
                    *(str(run), str(job.parties.count)),
                ],
                environment=_environment(Path(scratch), run),
                log=run / "logs" / "server.log",
            )
            try:
                return follow(
                    run,
                    ended=lambda: None if process.running else "finished",
                    observer=observer,
                )
            finally:
                supervisor.end()  # before its files go

    return launch


def _environment(scratch: Path, run: Path) -> dict[str, str]:
    """All that Flower or Ray keep goes under `scratch`; nothing is asked of the network."""
    return {
        **own_environment(),
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
