"""A run in Flower's simulation: a separate process, which runs Parley's two Flower apps.

python -m parley.deploy.flower_engine RUN PARTIES
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from parley.client.contract.printable import guard_streams
from parley.deploy.follow import follow
from parley.deploy.processes import Supervisor, own_environment
from parley.server.jobs.job import Job
from parley.server.records.summary import RunSummary
from parley.server.rounds.observer import Observer


def run_simulation(
    run: Path, supervisor: Supervisor
) -> Callable[[Job, Observer | None], RunSummary]:
    """Gives what runs a job in Flower's simulation; that raises ProcessError where it was lost."""

    def launch(job: Job, observer: Observer | None) -> RunSummary:
        # Ray's sockets are files, and a socket's path is 107 characters at most.
        with tempfile.TemporaryDirectory(prefix="parley-", ignore_cleanup_errors=True) as scratch:
            process = supervisor.start(
                "Flower's simulation",
                [
                    *(sys.executable, "-P", "-m", "parley.deploy.flower_engine"),
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


def main() -> None:
    """Entry point of the process: returns when the run is over."""
    from flwr.simulation import run_simulation as simulate  # noqa: PLC0415 - start-up: who starts this process needs no Flower (seconds)

    from parley.client.app import app as party  # noqa: PLC0415 - start-up: as above
    from parley.server.app import app as server  # noqa: PLC0415 - start-up: as above

    guard_streams()
    simulate(server_app=server, client_app=party, num_supernodes=int(sys.argv[2]))


if __name__ == "__main__":
    main()
