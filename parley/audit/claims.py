"""The claims of a file of queries, batch by batch.

It differs from a job by its `[session]`. Its schema is read, never its data.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import click

from parley.analytics.query_file import load_queries
from parley.analytics.settings import settings_from
from parley.client.contract.toml_reading import load_toml
from parley.client.data.schema import load_schema
from parley.privacy.accounting.guarantee import NOISE_POINTS, Neighbouring
from parley.simulations.audit.audited import Audited, asked
from parley.simulations.audit.measure import views


def is_of_queries(path: Path | None) -> bool:
    """Whether it is a file of queries."""
    try:
        return path is not None and "session" in load_toml(path)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False  # who reads it as a job says what is wrong


def claims_of_queries(path: Path, *, seed: int | None) -> Iterator[Audited]:
    """Every batch of a file of queries."""
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
        yield from views(claim)
