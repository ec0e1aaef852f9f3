"""Jobs for a deployment that runs: submitted, watched and stopped on the server's machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from parley.deploy.flower.app_bundle import job_app
from parley.deploy.flower.control import Control, find_desk
from parley.deploy.flower.watching import follow_flower
from parley.deploy.folders import DeployError, ServerHome, check_server
from parley.deploy.follow import STALE, farewell
from parley.deploy.reaching import check_reachable
from parley.deploy.refusals import board_of, refusals
from parley.server.jobs.file import load_job
from parley.server.jobs.section import JobError
from parley.server.model_file import open_model
from parley.server.records.reading import read_summary
from parley.server.records.run import Run
from parley.server.records.run_folder import RunFolder, anchored
from parley.terminal.progress import RunDisplay
from parley.terminal.standing import RunStanding, Standing


def submit_job(
    job: Path | None, *, to: Path, sets: Sequence[str], resume: str | None, quiet: bool
) -> Run:
    """Submits a job, follows it to its end, writes its report, and returns what it came to.

    Raises:
        what `parley.simulations.engine.fast.simulate` raises; DeployError, PkiError, ProcessError.
    """

    from parley.report.page import write_report  # noqa: PLC0415 - start-up: `submit` waits for the run first (altair takes .5 s)

    with _connected(to) as (home, control):
        runs = home.folder / "runs"
        if resume is not None:
            if job is not None or sets:
                raise DeployError("Expected --resume RUN alone: the run goes on with its own job.")
            folder, loaded = RunFolder.open(runs / Path(resume).name)
            _check_open(folder.path, control)
        else:
            loaded = anchored(load_job(job, overrides=sets))
            if loaded.data.test_source:
                raise JobError(
                    "Expected no data.test-source where Flower carries the messages, got "
                    f"{loaded.data.test_source!r}: `parley predict` reads the run's model."
                )
            folder = RunFolder.create(
                loaded.model_copy(update={"run": loaded.run.model_copy(update={"out": str(runs)})})
            )
        for name in STALE:
            (folder.path / name).unlink(missing_ok=True)
        number = control.start(job_app(loaded, run_folder=folder.path.name))
        (folder.path / "flower-run").write_text(f"{number}\n", encoding="utf-8")
        path, leaving = folder.path, partial(farewell, folder=folder.path, to=to)
        try:
            with RunDisplay(quiet=quiet, farewell=leaving) as display:
                summary = follow_flower(path, loaded, control=control, run=number, observer=display)
        finally:
            for line in refusals(path, loaded):
                print(line, file=sys.stderr)
    write_report(folder.path)
    theta = open_model(folder.path).tensors["theta"]
    return Run(summary=summary, folder=folder.path, theta=theta)


def _check_open(run: Path, control: Control) -> None:
    """Raises DeployError where there is nothing to go on with, or it goes on already."""
    summary = read_summary(run)
    if summary is not None and summary.status == "complete":
        raise DeployError(f"{run.name} is complete. Its page: parley report {run}")
    if any(one.run == _number(run) and not one.finished for one in control.runs()):
        raise DeployError(f"{run.name} is going on. It ends with: parley stop DIR {run.name}")


def look(folder: Path) -> Standing:
    """How the deployment stands."""
    with _connected(folder) as (home, control):
        online = control.online()
        numbers = {status.run: status for status in control.runs()}
        runs = []
        for run in sorted((home.folder / "runs").iterdir()):
            status = numbers.get(_number(run))
            how = "unknown to the server" if status is None else status.outcome or status.status
            runs.append(
                RunStanding(
                    name=run.name,
                    state=how,
                    board=board_of(run) if status and not status.finished else {},
                    notes=() if (run / "summary.json").exists() else tuple(_refusals(run)),
                )
            )
        return Standing(
            address=home.deployment.server_address,
            spoken=home.deployment.spoken,
            parties={party.name: party.name in online for party in home.deployment.parties},
            runs=tuple(runs),
        )


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


def _refusals(run: Path) -> list[str]:

    try:
        return refusals(run, load_job(run / "job.toml"))
    except JobError:
        return []
