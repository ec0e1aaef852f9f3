"""Jobs for a deployment that runs: submitted, watched and stopped on the server's machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from parley.deploy.app_bundle import job_app
from parley.deploy.control import Control, find_desk
from parley.deploy.folders import DeployError, ServerHome, check_reachable, check_server
from parley.deploy.follow import STALE, follow
from server.run_folder import RunFolder
from simulations.engine import Simulation

__all__ = ["describe", "stop_runs", "submit_job"]


def submit_job(
    job: Path | None, *, to: Path, sets: Sequence[str], resume: str | None, quiet: bool
) -> Simulation:
    """Submits a job, follows it to its end, writes its report, and returns what it came to.

    Raises:
        what `simulations.engine.simulate` raises; DeployError, PkiError, ProcessError.
    """
    from safetensors.numpy import load_file

    from parley.display import RunDisplay
    from parley.report import write_report
    from server.job_file import load_job

    with _connected(to) as (home, control):
        runs = home.folder / "runs"
        if resume is not None:
            if job is not None or sets:
                raise DeployError("Expected --resume RUN alone: the run goes on with its own job.")
            folder, loaded = RunFolder.open(runs / Path(resume).name)
        else:
            loaded = load_job(job, overrides=sets)
            folder = RunFolder.create(
                loaded.model_copy(update={"run": loaded.run.model_copy(update={"out": str(runs)})})
            )
        for name in STALE:
            (folder.path / name).unlink(missing_ok=True)
        number = control.start(job_app(loaded, run_folder=folder.path.name))
        (folder.path / "flower-run").write_text(f"{number}\n", encoding="utf-8")
        with RunDisplay(quiet=quiet) as display:
            summary = follow(folder.path, loaded, control=control, run=number, observer=display)
    write_report(folder.path)
    theta = load_file(folder.path / "model.safetensors")["theta"]
    return Simulation(summary=summary, folder=folder.path, theta=theta)


def describe(folder: Path) -> Iterator[str]:
    """Lines about the deployment's parties and runs."""
    with _connected(folder) as (home, control):
        online = control.online()
        yield f"Deployment {home.deployment.id} at {home.deployment.server_address}"
        for party in home.deployment.parties:
            yield f"  {party.name}: {'online' if party.name in online else 'offline'}"
        numbers = {status.run: status for status in control.runs()}
        for run in sorted((home.folder / "runs").iterdir()):
            status = numbers.get(_number(run))
            how = "unknown to the server" if status is None else status.outcome or status.status
            yield f"{run.name}: {how}{_board(run) if status and not status.finished else ''}"


def stop_runs(folder: Path, run: str | None) -> list[str]:
    """Stops the named run, or all that have not ended; their names.

    Raises:
        DeployError: there is no such run going on.
    """
    with _connected(folder) as (home, control):
        going = {status.run for status in control.runs() if not status.finished}
        chosen = [
            path
            for path in sorted((home.folder / "runs").iterdir())
            if _number(path) in going and run in {None, path.name}
        ]
        if run is not None and not chosen:
            raise DeployError(f"Expected a run that is going on, got {run}.")
        for path in chosen:
            control.stop(_number(path))
        return [path.name for path in chosen]


@contextmanager
def _connected(folder: Path) -> Iterator[tuple[ServerHome, Control]]:
    home = check_server(folder)
    desk = find_desk(home.folder)
    check_reachable(desk.address, home.folder / "ca.crt")
    control = Control(desk)
    try:
        yield home, control
    finally:
        control.close()


def _number(run: Path) -> int:
    try:
        return int((run / "flower-run").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0


def _board(run: Path) -> str:
    try:
        board = json.loads((run / "parties.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    states = ", ".join(
        f"{party['name']} {party['state']}" + (f" ({party['reason']})" if party["reason"] else "")
        for party in board["parties"]
    )
    return f", round {board['round']}, {board['stage']}: {states}"
