"""From what a person gives to an open session: data or a deployment, terms, ledger, folder."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from parley.client.data.frames import Frame, frame_of
from parley.client.data.records import find_party_files
from parley.client.data.schema import Schema, load_schema
from parley.client.data.table_block import TableBlock, read_table_block
from parley.client.queries.base import Facts, QueryError
from parley.privacy.accounting.guarantee import Neighbouring, NoisePoint, Unit
from parley.privacy.ledger.ledger import DatasetBudget, Ledger
from parley.privacy.sampling.randomness import Randomness
from parley.secure_agg.parameters import assumed_corrupt
from parley.server.planning.queries import Terms
from parley.server.queries.folder import SessionFolder
from parley.server.queries.session import QuerySession
from parley.simulations.engine.faults import parse_faults
from parley.simulations.engine.query_cohort import BlockQueries

__all__ = ["Settings", "open_session"]


class Settings(BaseModel):
    """What a session is, beside its data: the keys of `[session]` in a file of queries."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )

    epsilon: float = Field(
        gt=0, allow_inf_nan=False, strict=True, description="Budget of all that is ever asked."
    )
    delta: float = Field(0.0, ge=0, lt=1, strict=True, description="At which ε is counted.")
    neighbouring: Literal["replace-one", "add-or-remove-one"] = Field(
        "replace-one", description="What one neighbour differs by: one record, in which way."
    )
    parties: int | None = Field(
        None, ge=1, strict=True, description="How many, where one file is split among them."
    )
    min_survivors: int | None = Field(
        None, ge=1, strict=True, description="Least number of parties in a sum; default 2/3."
    )
    corrupt: int | None = Field(
        None, ge=0, strict=True, description="Parties that may collude with the server."
    )
    noise_point: Literal["server", "share"] = Field(
        "server", description="Who adds the noise: the server, or every party a share of it."
    )
    masked: bool = Field(
        False, strict=True, description="Run the masked protocol in full (slower, same bits)."
    )
    law: Literal["auto", "laplace", "gaussian"] = Field(
        "auto", description="Of the noise; auto: whichever errs less. Gaussian needs δ > 0."
    )
    most_records: int = Field(
        2**20,
        ge=1,
        strict=True,
        description="With add-or-remove-one: a party's sum is cut to what so many records reach.",
    )
    ledger: str = Field("", description="A shared ledger: path or URL; default the session's own.")
    dataset: str = Field("", description="Name of the data in the ledger.")
    seed: int | None = Field(
        None, ge=0, strict=True, description="Of the noise: repeatable, and protects nobody."
    )
    faults: str = Field("", description="Parties that drop out, as run.faults has it.")


def open_session(
    stack: ExitStack,
    data: Any,
    *,
    resume: Path | None,
    schema: Schema | str | Path | None = None,
    out: str | Path | None = None,
    **given: Any,
) -> tuple[QuerySession, Terms]:
    """A session with its parties; what it opens is closed by `stack`.

    Raises:
        QueryError, SchemaError, DataError: settings or data that cannot be used.
        RunFolderError, LedgerError: a folder or ledger that cannot.
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
    block = read_parties(data, known, parties=settings.parties)
    terms = _terms(settings, block)
    if folder is None:
        plain = settings.model_dump(mode="json", exclude_defaults=True)
        folder = SessionFolder.create(
            None if out is None else Path(out), plain, schema=known.to_toml()
        )
    stack.enter_context(folder.locked())
    ledger = stack.enter_context(Ledger.open(settings.ledger or folder.ledger))
    contents = str(block.contents)
    budget = DatasetBudget(
        name=settings.dataset or "session " + hashlib.sha256(contents.encode()).hexdigest()[:12],
        fingerprint=contents,
        contents=contents,
        unit=Unit.RECORD,
        neighbouring=terms.facts.neighbouring,
        epsilon=settings.epsilon,
        delta=settings.delta,
    )
    ledger.check()
    (registered,) = ledger.register(budget)
    randomness = Randomness(seed=settings.seed, party=None)
    cohort = BlockQueries(
        block=block,
        corrupt=terms.corrupt,
        masked=settings.masked,
        faults=parse_faults(settings.faults, seed=settings.seed or 0),
        randomness=randomness,
    )
    session = QuerySession(
        folder=folder, ledger=ledger, budget=registered, cohort=cohort, randomness=randomness
    )
    stack.callback(session.close)
    return session, terms


def settings_from(given: dict[str, Any]) -> Settings:
    """Settings as a person gave them.

    Raises:
        QueryError: a key or value that is none.
    """
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            keys = ", ".join(Settings.model_fields)
            raise QueryError(f"Expected settings of {keys}, got {key!r}.") from None
        expected = str(fault["msg"]).removeprefix("Input should be ")
        got = "none" if fault["type"] == "missing" else repr(fault["input"])
        raise QueryError(f"{key}: Expected {expected}, got {got}.") from None


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


def _terms(settings: Settings, block: TableBlock) -> Terms:
    private = Neighbouring(settings.neighbouring) is Neighbouring.ADD_OR_REMOVE_ONE
    parties = block.parties
    corrupt = assumed_corrupt(parties) if settings.corrupt is None else settings.corrupt
    if not 0 <= corrupt < max(parties, 2):
        raise QueryError(f"Expected corrupt from 0 to {parties - 1}, got {corrupt}.")
    least = max(-(-2 * parties // 3), (parties + corrupt) // 2 + 1) if parties > 1 else 1
    survivors = settings.min_survivors or least
    if survivors > parties:
        raise QueryError(f"Expected min_survivors from 1 to {parties}, got {survivors}.")
    return Terms(
        facts=Facts(
            schema=block.schema,
            neighbouring=Neighbouring(settings.neighbouring),
            records=None if private else block.records,
        ),
        parties=parties,
        min_records=1 if private else int(block.sizes.min()),
        most_records=settings.most_records if private else int(block.sizes.max()),
        min_survivors=survivors,
        corrupt=corrupt,
        noise_point=NoisePoint(settings.noise_point),
        delta=settings.delta,
        seeded=settings.seed is not None,
    )
