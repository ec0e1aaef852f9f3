"""Open a session: resolve its data or deployment, terms, ledger and folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from parley.analytics.backends import SessionParties, build_simulated_parties, connect_real_parties
from parley.analytics.session_settings import Settings, build_counting, parse_settings
from parley.client.data.data_sources import Source
from parley.client.data.file_format_overrides import is_file_list, list_files
from parley.client.data.memory_columns import build_memory_table
from parley.client.data.party_file_pattern import find_party_files
from parley.client.data.query_party_block import PersonIds, RawPartyBlock, read_raw_party_block
from parley.client.data.schema import Schema, load_schema
from parley.client.queries.base import QueryError
from parley.privacy.accounting.account_admission import (
    AccountCertificate,
    compute_reserved_delta,
)
from parley.privacy.accounting.rounding import format_exact
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.sampling.random_stream import Randomness
from parley.server.planning.budget_check import MAX_DELTA, describe_large_delta
from parley.server.planning.session_terms import QUERY_LAWS, SessionTerms
from parley.server.records.session_folder import SessionFolder
from parley.server.rounds.party_requests import Transport
from parley.server.rounds.query_session import QuerySession
from parley.simulations.engine.sharding import build_table_shards, split_source

_SIMULATED = b"a simulation's"
"""Key that selects a person's records in a simulation, where the choice need not be secret."""


def open_session(
    stack: ExitStack,
    data: Any,
    *,
    resume: Path | None,
    schema: Schema | Mapping[str, Any] | str | Path | None = None,
    out: str | Path | None = None,
    transport: Transport | None = None,
    **given: Any,
) -> tuple[QuerySession, Settings]:
    """Return an open session and its settings; `stack` closes what it opened.

    Raises:
        QueryError, SchemaError, DataError: the settings or data cannot be used.
        RunFolderError, LedgerError: the folder or ledger cannot be used.
        JobError: too few parties of a deployment are connected.
    """
    folder = None
    if resume is not None:
        if given or out is not None or schema is not None:
            raise QueryError(
                "Expected only the data with resume: the session has its own settings."
            )
        folder = SessionFolder.open(resume)
        given, known = dict(folder.settings), Schema.from_toml(folder.schema)
    else:
        known = _read_schema(schema)
    settings = parse_settings(given)
    build_counting(settings)
    if settings.deployment and data is not None:
        raise QueryError("Expected either data or a deployment, got both.")
    simulated = None
    if not settings.deployment:
        persons, sources = build_persons(settings), _list_sources(data, known)
        block = read_parties(data, known, parties=settings.parties, persons=persons)
        dealt = partial(build_table_shards, sources, block, persons, settings.seed)
        simulated = build_simulated_parties(stack, settings, block, dealt)
    if folder is None:
        if simulated is not None:
            _check_delta(simulated.terms)
        plain = settings.model_dump(mode="json", exclude_defaults=True)
        target = None if out is None else Path(out)
        folder = SessionFolder.create(target, plain, schema=known.to_toml())
    stack.enter_context(folder.hold_lock())
    asked = simulated or connect_real_parties(stack, settings, known, folder, transport=transport)
    ledger = stack.enter_context(Ledger.open(settings.ledger or folder.ledger_path))
    budget = _build_budget(settings, asked)
    ledger.check()
    (registered,) = ledger.register(budget)
    session = QuerySession(
        folder=folder,
        ledger=ledger,
        budget=registered,
        build_cohort=asked.build_cohort,
        terms=asked.terms.with_budget(registered),
        is_server_trusted=asked.trusting,
        randomness=Randomness(seed=settings.seed, party=None),
    )
    return session, settings


def _check_delta(terms: SessionTerms) -> None:
    """Raise QueryError if δ is too large for the public number of records, or of parties."""
    counts = {Unit.RECORD: (terms.facts.records, "records"), Unit.PARTY: (terms.parties, "parties")}
    count, many = counts.get(terms.counting.unit, (None, ""))
    if count is None or terms.delta <= MAX_DELTA:
        return
    if what := describe_large_delta(terms.delta, count, many, key="delta"):
        raise QueryError(what)


def _build_budget(settings: Settings, asked: SessionParties) -> DatasetBudget:
    """Return the budget of the session's data. Raises QueryError."""
    reserved = settings.reserved_delta
    if reserved is None:
        reserved = compute_reserved_delta(settings.delta)
    elif not reserved < settings.delta:
        raise QueryError(
            f"Expected reserved_delta below delta = {format_exact(settings.delta)}, got "
            f"{format_exact(reserved)}."
        )
    return DatasetBudget(
        name=settings.dataset or "session " + hashlib.sha256(asked.data.encode()).hexdigest()[:12],
        fingerprint=asked.data,
        contents=asked.contents,
        rows=asked.rows,
        unit=asked.terms.counting.unit,
        neighbouring=asked.terms.neighbouring,
        epsilon=settings.epsilon,
        delta=settings.delta,
        certificate=choose_certificate(settings),
        reserved_delta=reserved,
        insists=settings.certificate != "auto",
    )


def choose_certificate(settings: Settings) -> AccountCertificate:
    """Return the certificate of an account that a session opens."""
    if settings.certificate != "auto":
        return AccountCertificate(settings.certificate)
    if not settings.delta:
        return AccountCertificate.PURE
    row = QUERY_LAWS.get(settings.law)  # None for auto, which may be either
    return AccountCertificate.ZCDP if row is None else row.certificate


def build_persons(settings: Settings) -> PersonIds | None:
    """Return the assignment of a simulation's records to persons, if the unit is a person.

    Raises:
        QueryError: the settings name no column for it.
    """
    if settings.records_per_id is None:
        return None
    if not settings.id:
        raise QueryError(
            "Expected id, the column that identifies the person of a record, got none."
        )
    return PersonIds(column=settings.id, max_records=settings.records_per_id, key=_SIMULATED)


def read_parties(
    data: Any, schema: Schema, *, parties: int | None, persons: PersonIds | None = None
) -> RawPartyBlock:
    """Return the parties' records: one file or frame each, or one that is split among `parties`.

    With `persons`, each party has at most their number of records per person.

    Raises:
        QueryError, DataError: there is no data, or it does not match the schema.
    """
    several = _list_sources(data, schema)
    if len(several) > 1 and parties not in (None, len(several)):
        raise QueryError(f"Expected {parties} files or frames, got {len(several)}.")
    block = read_raw_party_block(several, schema, persons=persons)
    divided = 0 if parties is None or len(several) > 1 else parties
    if divided > block.records:
        raise QueryError(
            f"Expected 1 to {block.records} parties for {block.records} records, got {parties}."
        )
    return split_source(block, divided, persons)


def _list_sources(data: Any, schema: Schema) -> Sequence[Source]:
    if data is None:
        raise QueryError(
            "Expected data, as one file or in-memory frame per party, got none. To ask real "
            "parties, name the server's folder (--server, or deployment=)."
        )
    if isinstance(data, str | Path):
        globbed = any(mark in str(data) for mark in "*?[")
        return list(find_party_files(str(data))) if globbed else [data]
    if isinstance(data, list | tuple) and not data:
        raise QueryError("Expected at least one file, got none.")
    if is_file_list(data):
        return list_files(data)
    given = list(data) if isinstance(data, list) else [data]
    return [
        build_memory_table(each, schema=schema, name=f"party {place}")
        for place, each in enumerate(given)
    ]


def _read_schema(schema: Any) -> Schema:
    """Return the schema that a caller gives as a file, a `Schema` or in short form."""
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, Mapping):
        return Schema.of(schema)
    if isinstance(schema, str | Path):
        return load_schema(schema)
    raise QueryError(
        "Session needs the columns' public ranges, because reading them from the records is not "
        'private: schema={"age": (0, 120), "ward": ["a", "b"]}.'
    )
