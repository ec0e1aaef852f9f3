"""A file of queries as it travels to a running server: strict JSON, decoded by code of ours.

The server's parties rebuild every query once more, from what the server asks them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.analytics.query_file import AskedQuery, QueryFile
from parley.analytics.settings import Settings, counting_of, settings_from
from parley.client.contract.decoding import DecodingError, as_came
from parley.client.contract.protocol import strict_json
from parley.client.data.schema import Schema
from parley.client.queries import query_from
from parley.client.queries.base import QueryError
from parley.client.queries.batch import MOST_QUERIES
from parley.privacy.accounting.guarantee import Neighbouring
from parley.server.jobs.naming import check_from_elsewhere
from parley.server.jobs.section import JobError
from parley.server.records.plain_json import json_text

_KEYS = {"version", "schema", "session", "plan", "batches"}
_OF_QUERY = {"name", "query", "epsilon", "share", "law", "by_party"}
_SIMULATED = {"seed", "faults", "masked", "parties", "deployment", "id"}
_MOST_BATCHES = 1000
_LONGEST_NAME = 200


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
                {
                    "name": each.name,
                    "query": each.query.to_json(),
                    "epsilon": each.epsilon,
                    "share": each.share,
                    "law": each.law,
                    "by_party": each.by_party,
                }
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
            }
        )

    @property
    def settings(self) -> Settings:
        """Of the session."""
        return settings_from(self.file.session)


def submission_from(text: str, *, own_files: bool = True) -> Submission:
    """The inverse, of an operator's words.

    Args:
        text: what came.
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
    batches = tuple(_batch(each) for each in _listed(given["batches"], _MOST_BATCHES, "batches"))
    asked = [each for batch in batches for each in batch]
    if len({each.name for each in asked}) < len(asked):
        raise QueryError("Expected every name once, got one twice.")
    for each in asked:
        each.query.check(schema, relation)
    file = QueryFile(session=session, batches=batches)
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


def _batch(given: Any) -> tuple[AskedQuery, ...]:
    batch = tuple(_query(each) for each in _listed(given, MOST_QUERIES, "queries in a batch"))
    if batch[0].epsilon is None or any(each.epsilon is not None for each in batch[1:]):
        raise QueryError("Expected epsilon with a batch's first query, and with none after it.")
    if len({each.by_party for each in batch}) > 1:
        raise QueryError("Expected all queries of a batch by party, or none, got some.")
    return batch


def _query(given: Any) -> AskedQuery:
    if not isinstance(given, Mapping) or set(given) != _OF_QUERY:
        raise QueryError(f"Expected a query's keys {', '.join(sorted(_OF_QUERY))}, got others.")
    name, law = given["name"], given["law"]
    if not (isinstance(name, str) and isinstance(law, str) and len(name) <= _LONGEST_NAME):
        raise QueryError("Expected name and law as short texts, got others.")
    if not isinstance(given["by_party"], bool):
        raise QueryError(f"Expected by_party as true or false, got {as_came(given['by_party'])}.")
    return AskedQuery(
        name=name,
        query=query_from(given["query"]),
        epsilon=None if given["epsilon"] is None else _positive(given["epsilon"], "epsilon"),
        share=_positive(given["share"], "share"),
        law=law,
        by_party=given["by_party"],
    )


def _positive(value: Any, name: str) -> float:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if not known or not 0 < value < math.inf:
        raise QueryError(f"Expected {name}, a number > 0, got {as_came(value)}.")
    return float(value)
