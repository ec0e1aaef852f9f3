"""From what a person gives to an open session: data or a deployment, terms, ledger, folder."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from parley.analytics.parties import real_parties, simulated_parties
from parley.analytics.settings import Settings, settings_from
from parley.client.data.frames import Frame, frame_of
from parley.client.data.records import find_party_files
from parley.client.data.schema import Schema, load_schema
from parley.client.data.table_block import TableBlock, read_table_block
from parley.client.queries.base import QueryError
from parley.privacy.accounting.guarantee import Unit
from parley.privacy.ledger.ledger import DatasetBudget, Ledger
from parley.privacy.sampling.randomness import Randomness
from parley.server.planning.queries import Terms
from parley.server.queries.folder import SessionFolder
from parley.server.queries.session import QuerySession
from parley.server.rounds.transport import Transport

__all__ = ["open_session", "read_parties"]


def open_session(
    stack: ExitStack,
    data: Any,
    *,
    resume: Path | None,
    schema: Schema | str | Path | None = None,
    out: str | Path | None = None,
    transport: Transport | None = None,
    **given: Any,
) -> tuple[QuerySession, Terms, Settings]:
    """A session with its parties; what it opens is closed by `stack`.

    Raises:
        QueryError, SchemaError, DataError: settings or data that cannot be used.
        RunFolderError, LedgerError: a folder or ledger that cannot.
        JobError: too few parties of a deployment are there.
    """
    folder = None
    if resume is not None:
        if given or out is not None or schema is not None:
            raise QueryError("Expected resume with the data alone: a session has its settings.")
        folder = SessionFolder.open(resume)
        given, known = dict(folder.settings), Schema.from_toml(folder.schema)
    else:
        known = schema if isinstance(schema, Schema) else load_schema(_named(schema))
    settings = settings_from(given)
    if settings.deployment and data is not None:
        raise QueryError("Expected either data or a deployment, got both.")
    simulated = None
    if not settings.deployment:
        block = read_parties(data, known, parties=settings.parties)
        simulated = simulated_parties(settings, block)
    if folder is None:
        plain = settings.model_dump(mode="json", exclude_defaults=True)
        folder = SessionFolder.create(
            None if out is None else Path(out), plain, schema=known.to_toml()
        )
    stack.enter_context(folder.locked())
    asked = simulated or real_parties(
        stack, settings, known, folder, home=Path(settings.deployment), transport=transport
    )
    ledger = stack.enter_context(Ledger.open(settings.ledger or folder.ledger))
    budget = DatasetBudget(
        name=settings.dataset or "session " + hashlib.sha256(asked.data.encode()).hexdigest()[:12],
        fingerprint=asked.data,
        contents=asked.contents,
        unit=Unit.RECORD,
        neighbouring=asked.terms.facts.neighbouring,
        epsilon=settings.epsilon,
        delta=settings.delta,
    )
    ledger.check()
    (registered,) = ledger.register(budget)
    session = QuerySession(
        folder=folder,
        ledger=ledger,
        budget=registered,
        cohort=asked.cohort,
        facts=asked.terms.facts,
        randomness=Randomness(seed=settings.seed, party=None),
    )
    stack.callback(session.close)
    return session, asked.terms, settings


def read_parties(data: Any, schema: Schema, *, parties: int | None) -> TableBlock:
    """The parties' records: one file or frame each, or one that is split among `parties`.

    Raises:
        QueryError, DataError: no data, or not what the schema says.
    """
    several = _sources(data, schema)
    if parties is None or len(several) > 1:
        if parties is not None and len(several) != parties:
            raise QueryError(f"Expected {parties} files or frames, got {len(several)}.")
        return read_table_block(several, schema)
    whole = read_table_block(several, schema)
    if not 1 <= parties <= whole.records:
        raise QueryError(
            f"Expected 1 to {whole.records} parties of {whole.records} records, got {parties}."
        )
    ends = np.linspace(0, whole.records, parties + 1).astype(np.int64)
    return TableBlock(schema=schema, columns=whole.columns, offsets=ends, contents=whole.contents)


def _sources(data: Any, schema: Schema) -> Sequence[str | Path | Frame]:
    if data is None:
        raise QueryError("Expected data: files, one a party, or frames in memory, got none.")
    if isinstance(data, str | Path):
        globbed = any(mark in str(data) for mark in "*?[")
        return list(find_party_files(str(data))) if globbed else [data]
    if isinstance(data, list | tuple) and all(isinstance(each, str | Path) for each in data):
        if not data:
            raise QueryError("Expected at least one file, got none.")
        return list(data)
    given = list(data) if isinstance(data, list) else [data]
    return [
        frame_of(each, schema=schema, name=f"party {place}") for place, each in enumerate(given)
    ]


def _named(schema: Any) -> str | Path:
    if not isinstance(schema, str | Path):
        raise QueryError(f"Expected schema, a file or a Schema, got {type(schema).__name__}.")
    return schema
