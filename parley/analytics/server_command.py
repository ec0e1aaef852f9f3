"""`parley query … --server DIR`: what the command line gives becomes a submission, and its answers.

`[session]` then has the settings of a session with real parties: `dataset`, `schema` (a copy of the
parties' file), `epsilon`; no data and no deployment, which are the server's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from parley.analytics.asked import Submission, submission_from
from parley.analytics.query_file import AskedQuery, QueryFile, load_queries, load_session
from parley.analytics.sql import parse_sql
from parley.analytics.submission import submit_queries
from parley.client.data.schema import load_schema
from parley.client.queries.base import QueryError
from parley.server.records.plain_json import json_text


def ask_server(
    to: Path,
    queries: str | None,
    *,
    epsilon: float | None,
    session_file: Path,
    covers: dict[str, Any],
    plan: bool,
    resume: Path | None,
    as_json: bool,
) -> None:
    """Submits, waits, and prints.

    Args:
        to: the server's folder, or an operator's.
        queries: a file of queries, or a SELECT; None with `resume`.
        epsilon: of a SELECT.
        session_file: whose [session] a SELECT has.
        covers: what intervals shall cover: keys of [session].
        plan: only expected errors and costs.
        resume: a run of queries at the server to go on with.
        as_json: one JSON object on stdout.

    Raises:
        QueryError, SchemaError: it cannot be asked; nothing was sent.
        what `submit_queries` raises.
    """
    asked = None
    if (queries is None) == (resume is None):
        raise QueryError(
            "Expected queries for --server, or --resume RUN to go on with a run of it, got "
            f"{'neither' if queries is None else 'both'}."
        )
    if queries is not None:
        asked = _submission(queries, epsilon, session_file, covers, plan=plan)
    answered = submit_queries(
        asked,
        to=to,
        resume=None if resume is None else resume.name,
        say=lambda line: typer.echo(line, err=True),
    )
    if as_json:
        answers = [{k: v for k, v in each.items() if k != "text"} for each in answered["answers"]]
        typer.echo(json_text({**answered, "answers": answers}))
        return
    for text in [*answered["plans"], *(each["text"] for each in answered["answers"])]:
        typer.echo(f"{text}\n")
    if answered["report"]:
        typer.echo(f"answers in {answered['folder']}; all on one page: {answered['report']}")


def _submission(
    queries: str,
    epsilon: float | None,
    session_file: Path,
    covers: dict[str, Any],
    *,
    plan: bool,
) -> Submission:
    """What is sent; read here once more as the server will, so that faults are heard at once."""
    select = queries.lstrip()[:6].upper() == "SELECT"
    if select != (epsilon is not None):
        raise QueryError("Expected --epsilon with a SELECT, and with it alone; see --help.")
    file = QueryFile(session=load_session(session_file)) if select else load_queries(Path(queries))
    settings = {**file.session, **covers}
    if wrong := sorted({"data", "deployment"} & set(settings)):
        raise QueryError(
            f"Expected no {wrong[0]} in [session] with --server, got one: the server's parties "
            "are asked."
        )
    schema = load_schema(str(settings.pop("schema", "")))
    batches = file.batches
    if select:
        statement = parse_sql(queries, schema)
        prices = [epsilon, *[None] * (len(statement.queries) - 1)]
        batches = (
            tuple(
                AskedQuery(name=name, query=query, epsilon=price)
                for name, query, price in zip(
                    statement.names, statement.queries, prices, strict=True
                )
            ),
        )
    asked = Submission(file=QueryFile(session=settings, batches=batches), schema=schema, plan=plan)
    return submission_from(asked.to_json())
