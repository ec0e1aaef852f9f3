"""What `parley audit` is asked about: a job's claims, those of a file of queries, or all of Parley.

A file of queries differs from a job by its `[session]`. Its schema is read, never its data.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from parley.analytics.query_file import load_queries
from parley.analytics.settings import settings_from
from parley.client.contract.toml_reading import load_toml
from parley.client.data.schema import load_schema
from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.accounting.noise_points import NOISE_POINTS
from parley.server.jobs.file import load_job
from parley.simulations.audit.asked import asked
from parley.simulations.audit.audited import Audited
from parley.simulations.audit.matrix import matrix, trials_of, trials_of_queries
from parley.simulations.audit.measure import views, views_of

Claims = Iterator[tuple[Audited, int]]
"""Each claim, and in how many worlds it is audited by itself."""


def is_of_queries(path: Path | None) -> bool:
    """Whether it is a file of queries."""
    try:
        return path is not None and "session" in load_toml(path)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False  # who reads it as a job says what is wrong


def claims_of_everything(
    overrides: Sequence[str], *, features: int | None, seed: int | None
) -> Claims:
    """The matrix."""
    return matrix(overrides=overrides, features=features, seed=seed)


def claims_of_job(
    path: Path | None, overrides: Sequence[str], *, features: int | None, seed: int | None
) -> Claims:
    """Every guarantee of a job.

    Raises:
        JobError, AuditError: as loading and planning it would.
    """
    job = load_job(path, overrides=list(overrides))
    for each in views_of(job, seed=seed, features=features):
        yield each, trials_of(job)


def claims_of_queries(path: Path, *, seed: int | None) -> Claims:
    """Every batch of a file of queries.

    Raises:
        QueryError, SchemaError: as asking would.
        click.UsageError: a session without a schema's file.
    """
    file = load_queries(path)
    given = {key: value for key, value in file.session.items() if key not in {"data", "schema"}}
    settings = settings_from(given)
    if not isinstance(file.session.get("schema"), str):
        raise click.UsageError(f"Expected schema in [session] of {path}, got none.")
    schema = load_schema(file.session["schema"])
    point = settings.noise_point or ("share" if settings.deployment else "server")
    for batch in file.batches:
        law = batch[0].law or settings.law
        claim = asked(
            [each.query for each in batch],
            schema,
            epsilon=float(batch[0].epsilon or 0.0),
            delta=settings.delta,
            neighbouring=Neighbouring(settings.neighbouring),
            noise_point=NOISE_POINTS[point],
            law=law,
            shares=[each.share for each in batch],
            seed=seed,
        )
        for each in views(claim):
            yield each, trials_of_queries(each)
