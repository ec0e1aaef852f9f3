"""`parley audit`: measure a job or a file of queries, or compute a bound from counts."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import click
import typer
from typer import Argument, Option
from typer.core import TyperGroup

from parley.analytics.query_file import load_queries
from parley.analytics.session_settings import parse_settings
from parley.audit.audit_page import write_audit
from parley.audit.audit_result_text import format_report
from parley.client.data.schema import load_schema
from parley.command_options import AsJson, Overrides
from parley.commands.audit_bound import bound_app
from parley.privacy.accounting.threat_model import NOISE_POINTS, Neighbouring
from parley.safe_io.json_writing import format_json
from parley.safe_io.toml_reading import load_toml
from parley.server.jobs.job_file import load_job
from parley.server.records.run_folder_opening import open_run_folder
from parley.simulations.audit.audit_results import AuditReport, combine_verdicts
from parley.simulations.audit.audit_target import AuditTarget, build_query_target
from parley.simulations.audit.guarantee_audit import (
    Effort,
    audit_guarantee,
    audit_released,
    list_job_targets,
    list_views,
)
from parley.simulations.audit.model_attacks import TRAININGS


def is_query_file(path: Path | None) -> bool:
    """Return whether it is a file of queries."""
    try:
        return path is not None and "session" in load_toml(path)
    except (OSError, tomllib.TOMLDecodeError):
        return False  # who reads it as a job says what is wrong


def build_query_targets(path: Path, *, seed: int | None) -> Iterator[AuditTarget]:
    """Build a target per batch of a file of queries."""
    file = load_queries(path)
    given = {key: value for key, value in file.session.items() if key not in {"data", "schema"}}
    settings = parse_settings(given)
    if not isinstance(file.session.get("schema"), str):
        raise click.UsageError(f"Expected schema in [session] of {path}, got none.")
    schema = load_schema(file.session["schema"])
    point = settings.noise_point or ("share" if settings.deployment else "server")
    for batch in file.batches:
        claim = build_query_target(
            [each.query for each in batch],
            schema,
            epsilon=float(batch[0].epsilon or 0.0),
            delta=settings.delta,
            neighbouring=Neighbouring(settings.neighbouring),
            noise_point=NOISE_POINTS[point],
            law=batch[0].law or settings.law,
            shares=[each.share for each in batch],
            seed=seed,
        )
        yield from list_views(claim)


REFUTED = 4
"""Exit status if a claim was refuted, and the refutation confirmed."""


class _JobFileOrCommand(TyperGroup):
    """A group whose first word is a job file unless it is the name of a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["job", *args]
        return super().parse_args(ctx, args)


audit_app = typer.Typer(
    cls=_JobFileOrCommand,
    suggest_commands=False,
    help="Attack a job in simulation, and compute a lower bound on its real ε.\n\n"
    "[bold]parley audit job.toml[/bold] is short for [bold]parley audit job job.toml[/bold]. The "
    "result is a lower bound, not an estimate. It holds with the stated confidence, and its size "
    "is limited by the number of trials. Exit status 4: a claimed ε was refuted. Exit status 0: "
    "none was; if there were too few trials to refute it, a line gives the largest ε that they "
    "could show.",
)
audit_app.add_typer(bound_app, name="bound")


def _split_names(text: str | None) -> tuple[str, ...]:
    return () if text in (None, "auto") else tuple(str(text).split(","))


JobOrRun = Annotated[
    Path | None,
    Argument(
        metavar="[JOB]",
        help="Job file or query file (TOML), or a run's folder; none: the defaults.",
    ),
]
Attack = Annotated[
    str,
    Option(
        help="auto, or names separated by commas: dirac, crowd, on-off, party, corners; on the "
        "final model: membership, clipbkd, label-flip."
    ),
]
ScoresLeak = Annotated[
    bool,
    Option(
        "--scores-leak",
        help="With --data job: confirm that the scores reveal something about these records, which "
        "no ε covers.",
    ),
]


@audit_app.command("job")
def audit_job(
    job: JobOrRun = None,
    sets: Overrides = None,
    trials: Annotated[
        str,
        Option(
            help="Number of trials with the canary; as many without it. auto: chosen by the job."
        ),
    ] = "auto",
    confidence: Annotated[
        float, Option(help="Joint confidence of all bounds of one audit, between ½ and 1.")
    ] = 0.95,
    attack: Attack = "auto",
    data: Annotated[
        str, Option(help="Records for attacks on the final model: synthetic, or the job's own.")
    ] = "synthetic",
    scores_leak: ScoresLeak = False,
    method: Annotated[
        str, Option(help="auto, or names separated by commas: pair, mu, profile, factor, white.")
    ] = "auto",
    features: Annotated[
        int | None, Option(min=1, help="Number of columns of the simulated records.")
    ] = None,
    seed: Annotated[int | None, Option(min=0, help="Seed, to repeat the audit.")] = None,
    as_json: AsJson = False,
    out: Annotated[
        Path | None, Option(help="Folder to make for audit.json and audit.html.")
    ] = None,
) -> None:
    """Audit a job: run it thousands of times with and without a record, and attack the output."""
    released = _is_on_released_model(attack, data=data, scores_leak=scores_leak)
    if job is not None and job.is_dir():
        job = open_run_folder(job)[0].path / "job.toml"
    effort = Effort(
        trials=_parse_count(trials),
        confidence=confidence,
        attacks=_split_names(attack),
        methods=_split_names(method),
        seed=seed,
    )
    reports: list[AuditReport] = []
    if released:
        whole_job = load_job(job, overrides=sets or [])
        audits = iter([audit_released(whole_job, effort, own_records=scores_leak)])
    else:
        audits = _audit_claims(job, sets or [], effort, features)
    for each in audits:
        reports.append(each)
        if not as_json:
            typer.echo("\n".join(format_report(each)))
    verdict = combine_verdicts([each.verdict for each in reports])
    whole = {"verdict": verdict, "audits": [each.to_json() for each in reports]}
    if out is not None:
        page = write_audit(reports, out)
        if not as_json:
            typer.echo(f"{page}")
    if as_json:
        typer.echo(format_json(whole))
    else:
        typer.echo(f"{verdict.replace('-', ' ')}. Simulation only: no ledger was opened.")
    if verdict == "refuted":
        raise typer.Exit(REFUTED)


def _audit_claims(
    job: Path | None, sets: list[str], effort: Effort, features: int | None
) -> Iterator[AuditReport]:
    """Audit a job's guarantees, or batches of queries."""
    if job is not None and is_query_file(job):
        if sets or features:
            raise click.UsageError("Expected no --set or --features with a file of queries.")
        claims = build_query_targets(job, seed=effort.seed)
    else:
        loaded = load_job(job, overrides=sets)
        claims = list_job_targets(loaded, seed=effort.seed, features=features)
    for claim in claims:
        yield audit_guarantee(claim, effort)


def _is_on_released_model(attack: str, *, data: str, scores_leak: bool) -> bool:
    """Return whether attacks are on the released model."""
    if data not in {"synthetic", "job"}:
        raise click.UsageError(f"Expected --data synthetic or job, got {data!r}.")
    released = any(name in TRAININGS for name in _split_names(attack))
    if data == "job" and not released:
        raise click.UsageError(
            f"Expected --attack with --data job to be of {', '.join(TRAININGS)}, got {attack!r}: "
            "other attacks make their records."
        )
    if scores_leak != (data == "job"):
        raise click.UsageError(
            "Expected --data job and --scores-leak together: scores of attacks on the job's own "
            "records say something of them that no ε covers."
        )
    return released


def _parse_count(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isascii() or not text.isdigit():
        raise click.UsageError(f"Expected --trials as a whole number or auto, got {text!r}.")
    return int(text)
