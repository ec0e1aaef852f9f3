"""Queries as they travel to a running server: strict JSON, checked at once, answered in turn.

The server's parties rebuild every query once more, from what the server asks them. A server that
was killed goes on with the session in the run's folder: what was answered is not paid for twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parley.analytics.query_file import AskedQuery, QueryFile, cost_of
from parley.analytics.session import Session
from parley.analytics.session_settings import counting_of, settings_from
from parley.analytics.table_one import check_is_table
from parley.client.contract.party_protocol import strict_json
from parley.client.contract.strict_decoding import DecodingError, as_came, facts_from, value_from
from parley.client.data.schema import Schema
from parley.client.queries import query_from
from parley.client.queries.base import Facts, QueryError
from parley.client.queries.query_batch import MOST_QUERIES
from parley.deploy.stream.run_queue import ANSWERS, ASKED, PAGE, SESSION
from parley.privacy.accounting.threat_model import Neighbouring
from parley.safe_io.file_writing import write_file
from parley.safe_io.json_writing import json_text
from parley.server.jobs.external_references import check_from_elsewhere
from parley.server.jobs.section_base import JobError
from parley.server.rounds.transport import Transport

_KEYS = {"version", "schema", "session", "plan", "batches", "table"}
_OF_QUERY = ("name", "epsilon", "share", "law", "by_party")
_SIMULATED = {"seed", "faults", "masked", "parties", "deployment", "id"}
_MOST_BATCHES = 1000


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What is asked of a server that runs.

    Attributes:
        file: its settings and batches; no data, schema or deployment among the settings.
        schema: the parties', a copy.
        plan: only expected errors and costs are wanted.
    """

    file: QueryFile
    schema: Schema
    plan: bool = False

    def to_json(self) -> str:
        """One JSON object."""
        batches = [
            [
                {name: getattr(each, name) for name in _OF_QUERY} | {"query": each.query.to_json()}
                for each in batch
            ]
            for batch in self.file.batches
        ]
        return json_text(
            {
                "version": 1,
                "schema": self.schema.to_toml(),
                "session": self.file.session,
                "plan": self.plan,
                "batches": batches,
                "table": self.file.table,
            }
        )


def submission_from(text: str, *, own_files: bool = True) -> Submission:
    """The inverse, of an operator's words.

    Args:
        own_files: it may name files of the server's machine.

    Raises:
        QueryError, SchemaError, WhereError: what was expected, what came.
    """
    try:
        return _read(strict_json(text), own_files=own_files)
    except DecodingError as error:
        raise QueryError(str(error)) from error
    except ValueError as error:
        if type(error) is ValueError:  # no JSON: a class of ours says more
            raise QueryError(f"Expected a submission of queries in JSON. {error}") from error
        raise


def _read(given: Any, *, own_files: bool) -> Submission:
    if not isinstance(given, Mapping) or set(given) != _KEYS:
        raise QueryError(f"Expected the keys {', '.join(sorted(_KEYS))}, got others.")
    if type(given["version"]) is not int or given["version"] != 1:
        raise QueryError(f"Expected version 1, got {as_came(given['version'])}.")
    if not isinstance(given["schema"], str) or not isinstance(given["plan"], bool):
        raise QueryError("Expected schema as a text and plan as true or false, got other types.")
    session = _session(given["session"], own_files=own_files)
    schema = Schema.from_toml(given["schema"], source="the operator's schema")
    settings = settings_from(session)
    relation = counting_of(settings).relation(Neighbouring(settings.neighbouring))
    batches = tuple(
        tuple(map(_query, _listed(batch, MOST_QUERIES, "queries in a batch")))
        for batch in _listed(given["batches"], _MOST_BATCHES, "batches")
    )
    for batch in batches:
        for each in batch:
            each.query.check(schema, relation)
    table = value_from(int | None, given["table"], "table")
    if table is not None:
        if not 0 <= table < len(batches):
            raise QueryError(
                f"Expected table, the place of one of {len(batches)} batches, got another."
            )
        queries = [each.query for each in batches[table]]
        check_is_table(queries, Facts(schema=schema, neighbouring=relation, records=None))
    file = QueryFile(session=session, batches=batches, table=table)
    return Submission(file=file, schema=schema, plan=given["plan"])


def _session(given: Any, *, own_files: bool) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise QueryError(f"Expected session as an object, got {type(given).__name__}.")
    session = {str(key).replace("-", "_"): value for key, value in given.items()}
    settings = settings_from(session)
    if wrong := sorted(_SIMULATED & settings.model_fields_set):
        raise QueryError(
            f"Expected no {wrong[0]} with a server's parties, got one: it is a simulation's, or "
            "the server's own."
        )
    if not settings.dataset:
        raise QueryError("Expected dataset, the name that parties serve the data under, got none.")
    if not own_files:
        try:
            check_from_elsewhere(settings)
        except JobError as error:
            raise QueryError(str(error)) from error
    return session


def _listed(given: Any, most: int, name: str) -> Sequence[Any]:
    if not isinstance(given, list) or not 1 <= len(given) <= most:
        raise QueryError(f"Expected 1 to {most} {name}, got another number, or no list.")
    return given


def _query(given: Any) -> AskedQuery:
    if not isinstance(given, dict):
        raise QueryError(f"Expected a query as an object, got {as_came(given)}.")
    rest = dict(given)
    asked = query_from(rest.pop("query", None))
    return facts_from(AskedQuery, rest, query=asked, batch="")


class ServedQueries:
    """What `parley.deploy.stream.run_queue.Questions` asks for."""

    def check(self, text: str, *, own_files: bool) -> None:
        """See `Questions.check`."""
        submission_from(text, own_files=own_files)

    def answer(self, folder: Path, *, home: Path, transport: Transport) -> None:
        """See `Questions.answer`."""
        asked = submission_from((folder / ASKED).read_text(encoding="utf-8"))
        with _opened(asked, folder / SESSION, home=home, transport=transport) as session:
            file, planned = asked.file, asked.file.planned(session)
            batches = [] if asked.plan else list(file.answers(session, planned))
            told = {
                "whole": cost_of(planned, session.totals.budget),
                "left": session.remaining,
                "answers": [
                    {"name": name, **answer.to_json(), "text": str(answer)}
                    for batch in batches
                    for name, answer in batch
                ],
                "plans": list(file.plans(session)) if asked.plan else [],
            }
            if not asked.plan:
                table = 0 if file.table is None else batches[file.table][0][1].ledger.index
                session.report(folder / PAGE, table_one=table)
        write_file(folder / ANSWERS, json_text(told) + "\n")


def _opened(asked: Submission, own: Path, *, home: Path, transport: Transport) -> Session:
    if (own / "session.json").exists():
        return Session(resume=own, transport=transport)
    return Session(
        deployment=str(home),
        schema=asked.schema,
        out=own,
        transport=transport,
        **asked.file.session,
    )
