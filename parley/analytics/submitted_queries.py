"""Encode queries for a running server as strict JSON, check them on receipt, and answer them.

The server's parties rebuild every query from the server's request. A server that was killed resumes
the session in the run's folder, so no answer is paid for twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parley.analytics.query_file import QueryEntry, QueryFile, format_cost
from parley.analytics.session import Session
from parley.analytics.session_settings import build_counting, parse_settings
from parley.analytics.table_one import check_is_table
from parley.client.contract.strict_decoding import (
    DecodingError,
    decode_dataclass,
    decode_value,
    format_received,
    parse_strict_json,
)
from parley.client.data.schema import Schema
from parley.client.queries.base import QueryError, QueryFacts
from parley.client.queries.query_batch import MAX_QUERIES
from parley.client.queries.query_decoding import decode_query
from parley.deploy.stream.run_queue import ANSWERS_FILE, PAGE_FILE, QUERIES_FILE, SESSION_FOLDER
from parley.privacy.accounting.threat_model import Neighbouring
from parley.safe_io.error_translation import translate_errors
from parley.safe_io.file_reading import read_text
from parley.safe_io.file_writing import write_file
from parley.safe_io.json_writing import format_json
from parley.server.jobs.machine_references import check_submission
from parley.server.jobs.section_base import JobError
from parley.server.rounds.party_requests import Transport

_KEYS = {"version", "schema", "session", "plan", "batches", "table"}
_QUERY_KEYS = ("name", "epsilon", "share", "law", "by_party")
_SIMULATED = {"seed", "faults", "masked", "parties", "deployment", "id"}
_MAX_BATCHES = 1000


@dataclass(frozen=True, kw_only=True)
class Submission:
    """Queries for a running server.

    Attributes:
        file: Settings and batches; the settings have no data, schema or deployment.
        schema: A copy of the parties' schema.
        plan: Whether only expected errors and costs are requested.
    """

    file: QueryFile
    schema: Schema
    plan: bool = False

    def to_json(self) -> str:
        """Return the submission as one JSON object."""
        batches = [
            [
                {name: getattr(each, name) for name in _QUERY_KEYS}
                | {"query": each.query.to_json()}
                for each in batch
            ]
            for batch in self.file.batches
        ]
        head = {"version": 1, "schema": self.schema.to_toml(), "session": self.file.session}
        rest = {"plan": self.plan, "batches": batches, "table": self.file.table}
        return format_json(head | rest)


def parse_submission(text: str, *, own_files: bool = True) -> Submission:
    """Parse the JSON of a submission, from an operator.

    Args:
        own_files: Whether it may name files of the server's machine.

    Raises:
        QueryError, SchemaError, WhereError: what was expected and what was found.
    """
    try:
        return _parse(parse_strict_json(text), own_files=own_files)
    except DecodingError as error:
        raise QueryError(str(error)) from error
    except ValueError as error:
        if type(error) is ValueError:  # not JSON; Parley's own error classes have a better text
            raise QueryError(f"Expected a submission of queries in JSON. {error}") from error
        raise


def _parse(value: Any, *, own_files: bool) -> Submission:
    if not isinstance(value, Mapping) or set(value) != _KEYS:
        raise QueryError(f"Expected the keys {', '.join(sorted(_KEYS))}, got others.")
    if type(value["version"]) is not int or value["version"] != 1:
        raise QueryError(f"Expected version 1, got {format_received(value['version'])}.")
    if not isinstance(value["schema"], str) or not isinstance(value["plan"], bool):
        raise QueryError("Expected schema as text and plan as true or false, got other types.")
    session = _check_session(value["session"], own_files=own_files)
    schema = Schema.from_toml(value["schema"], source="the operator's schema")
    settings = parse_settings(session)
    relation = build_counting(settings).get_relation(Neighbouring(settings.neighbouring))
    batches = tuple(
        tuple(map(_parse_query, _check_list(batch, MAX_QUERIES, "queries in a batch")))
        for batch in _check_list(value["batches"], _MAX_BATCHES, "batches")
    )
    for batch in batches:
        for each in batch:
            each.query.check(schema, relation)
    table = decode_value(int | None, value["table"], "table")
    if table is not None:
        if not 0 <= table < len(batches):
            raise QueryError(
                f"Expected table, the index of one of {len(batches)} batches, got something else."
            )
        queries = [each.query for each in batches[table]]
        check_is_table(queries, QueryFacts(schema=schema, neighbouring=relation, records=None))
    file = QueryFile(session=session, batches=batches, table=table)
    return Submission(file=file, schema=schema, plan=value["plan"])


def _check_session(content: Any, *, own_files: bool) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise QueryError(f"Expected session as an object, got {type(content).__name__}.")
    session = {str(key).replace("-", "_"): value for key, value in content.items()}
    settings = parse_settings(session)
    if wrong := sorted(_SIMULATED & settings.model_fields_set):
        raise QueryError(
            f"Expected no {wrong[0]} with a server's parties, got one: it is only for simulations, "
            "or set by the server."
        )
    if not settings.dataset:
        raise QueryError("Expected dataset, the parties' name for the data, got none.")
    if not own_files:
        with translate_errors(JobError, QueryError):
            check_submission(settings)
    return session


def _check_list(value: Any, max_length: int, name: str) -> Sequence[Any]:
    if not isinstance(value, list) or not 1 <= len(value) <= max_length:
        raise QueryError(f"Expected 1 to {max_length} {name}, got another number, or no list.")
    return value


def _parse_query(value: Any) -> QueryEntry:
    if not isinstance(value, dict):
        raise QueryError(f"Expected a query as an object, got {format_received(value)}.")
    rest = dict(value)
    asked = decode_query(rest.pop("query", None))
    return decode_dataclass(QueryEntry, rest, query=asked, batch="")


class ServedQueries:
    """Implementation of `parley.deploy.stream.run_queue.QueryAnswerer`."""

    def check(self, text: str, *, own_files: bool) -> None:
        """See `QueryAnswerer.check`."""
        parse_submission(text, own_files=own_files)

    def answer(self, folder: Path, *, home: Path, transport: Transport) -> None:
        """See `QueryAnswerer.answer`."""
        asked = parse_submission(read_text(folder / QUERIES_FILE))
        kept = folder / SESSION_FOLDER
        with _open_session(asked, kept, home=home, transport=transport) as session:
            file, planned = asked.file, asked.file.plan_batches(session)
            batches = [] if asked.plan else list(file.release_batches(session, planned))
            told = {
                "whole": format_cost(planned, session.totals.budget),
                "left": session.remaining,
                "answers": [
                    {"name": name, **answer.to_json(), "text": str(answer)}
                    for batch in batches
                    for name, answer in batch
                ],
                "plans": list(file.format_plans(session)) if asked.plan else [],
            }
            if not asked.plan:
                table = 0 if file.table is None else batches[file.table][0][1].ledger.index
                session.report(folder / PAGE_FILE, table_one=table)
        write_file(folder / ANSWERS_FILE, format_json(told) + "\n")


def _open_session(asked: Submission, folder: Path, *, home: Path, transport: Transport) -> Session:
    if (folder / "session.json").exists():
        return Session(resume=folder, transport=transport)
    own: dict[str, Any] = {"deployment": str(home), "schema": asked.schema, "out": folder}
    return Session(transport=transport, **own, **asked.file.session)
