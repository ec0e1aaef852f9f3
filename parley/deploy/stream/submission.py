"""Jobs for a deployment that runs: submitted, watched and stopped, here or from another machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from parley.client.contract.printable import one_line
from parley.client.data.schema import load_schema
from parley.deploy.folders import DeployError
from parley.deploy.follow import board_from, counted, farewell, follow, refusals
from parley.deploy.processes import ProcessError
from parley.deploy.stream.operator import Operator, operator_home
from parley.report.page import write_report
from parley.server.jobs.file import load_job, render_job
from parley.server.jobs.job import Job
from parley.server.model_file import open_model
from parley.server.records.run import Run
from parley.server.records.run_folder import anchored
from parley.terminal.progress import RunDisplay
from parley.terminal.standing import RunStanding, Standing


def submit_job(
    job: Path | None, *, to: Path, sets: Sequence[str], resume: str | None, quiet: bool
) -> Run:
    """Submits a job, follows it to its end, writes its report, and returns what it came to."""
    if resume is not None and (job is not None or sets):
        raise DeployError("Expected --resume RUN alone: the run goes on with its own job.")
    with Operator(operator_home(to)) as operator:
        if resume is None:
            own, schema = _with_schema(anchored(load_job(job, overrides=sets)))
            folder = operator.begin("submit", job=render_job(own), **schema)
        else:
            folder = operator.resume(Path(resume).name)
        operator.ended(folder)  # a copy has its files now
        loaded = load_job(folder / "job.toml")

        def ended() -> str | None:
            try:
                return operator.ended(folder)
            except ProcessError:
                return None  # the server is started again, or the line is cut: it is asked again

        leaving = partial(farewell, folder=folder, to=to)
        try:
            with RunDisplay(quiet=quiet, farewell=leaving) as display:
                summary = follow(folder, ended=ended, observer=display, every=3)
        finally:
            for line in refusals(folder, loaded):
                print(line, file=sys.stderr)
    write_report(folder)
    theta = open_model(folder).tensors["theta"]
    return Run(summary=summary, folder=folder, theta=theta)


def _with_schema(job: Job) -> tuple[Job, dict[str, str]]:
    """The job without the file of this machine that `data.schema` names, and what is in it."""
    if not job.data.data_schema:
        return job, {}
    text = load_schema(job.data.data_schema).to_toml()
    data = job.data.model_copy(update={"data_schema": ""})
    return job.model_copy(update={"data": data}), {"schema": text}


def look(folder: Path) -> Standing:
    """How the deployment stands."""
    with Operator(operator_home(folder)) as operator:
        said = operator.ask("status")
    try:
        return Standing(
            address=one_line(str(said["address"])),
            spoken=one_line(str(said["id"])),
            parties={one_line(str(each["name"])): bool(each["online"]) for each in said["parties"]},
            runs=tuple(map(_standing, said["runs"])),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ProcessError("Expected how the deployment stands, the server said else.") from error


def _standing(said: Any) -> RunStanding:
    refused = board_from({"parties": [], "refused": said["refused"]})["refused"]
    return RunStanding(
        name=one_line(str(said["name"])),
        state=one_line(str(said["state"])),
        board=board_from(said["board"]),
        notes=(*counted(refused), *filter(None, [one_line(str(said.get("reason") or ""))])),
    )


def stop_runs(folder: Path, run: str | None) -> list[str]:
    """Stops the named run, or all that have not ended; their names. DeployError without it."""
    with Operator(operator_home(folder)) as operator:
        stopping = [str(name) for name in operator.ask("stop", run=run)["stopping"]]
    if run is not None and not stopping:
        raise DeployError(f"Expected a run that is going on, got {run}.")
    return list(map(one_line, stopping))
