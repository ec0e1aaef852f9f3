"""Submit queries to a running deployment and wait for answers: `parley query … --server DIR`.

`[session]` has the settings of a session with real parties: `dataset`, `schema` (a copy of the
parties' file) and `epsilon`. It has no data and no deployment: the server has both.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from parley.analytics.answer_output import format_answers
from parley.analytics.query_file import QueryFile
from parley.analytics.short_answers import list_answer_lines
from parley.analytics.submitted_queries import Submission, parse_submission
from parley.client.contract.strict_decoding import parse_strict_json
from parley.client.data.schema import load_schema
from parley.client.queries.base import QueryError
from parley.deploy.process_errors import ProcessError
from parley.deploy.run_watcher import RunStopped, wait_until_ended
from parley.deploy.stream.operator_client import OperatorClient, load_operator_home
from parley.deploy.stream.run_queue import ANSWERS_FILE, PAGE_FILE, QUERIES_FILE
from parley.safe_io.file_reading import MAX_LOG_BYTES, read_text
from parley.safe_io.json_writing import format_json

_KEYS = {"whole", "left", "answers", "plans"}
_EXPECTED = "Expected answers in the format of this Parley version"


def query_server(
    server_folder: Path,
    file: QueryFile | None,
    *,
    plan: bool,
    resume: Path | None,
    as_json: bool,
    verbose: bool = False,
) -> None:
    """Submit queries, wait for the answers and print them.

    Args:
        server_folder: Folder of the server or of an operator.
        file: The queries; None with `resume`.

    Raises:
        QueryError, SchemaError: the queries are not valid; nothing was sent.
        ProcessError, DeployError, PkiError: the server cannot be reached or used. An error of
            `parley.Session` at the server, too.
    """
    if (file is None) == (resume is None):
        raise QueryError(
            "Expected queries for --server, or --resume RUN to resume one of its runs, got "
            f"{'neither' if file is None else 'both'}."
        )
    submission = "" if file is None else _build_submission(file, plan=plan)
    name = "" if resume is None else resume.name
    answered = _await_answers(submission, server_folder=server_folder, resume=name)
    texts = format_response(answered)  # also writes the CSV files
    in_full = as_json or verbose or not answered["answers"] or _has_table_one(answered)
    for text in texts if in_full else ():
        typer.echo(f"{text}\n", err=as_json)
    if as_json:
        answers = [{k: v for k, v in each.items() if k != "text"} for each in answered["answers"]]
        typer.echo(format_json({**answered, "answers": answers}))
    elif not in_full:
        typer.echo("\n".join(format_short_response(answered)))
    elif answered["report"]:
        typer.echo(f"Answers: {answered['folder']}. All on one page: {answered['report']}")


def format_response(response: dict[str, Any]) -> list[str]:
    """Return a server's answers as text and write their CSV files; raise ProcessError if
    malformed.
    """
    try:
        return [*response["plans"]] or [response["whole"], *_format_batches(response)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProcessError(f"{_EXPECTED}, got something else in {response['folder']}.") from error


def _has_table_one(response: dict[str, Any]) -> bool:
    submitted = read_text(Path(response["folder"]) / QUERIES_FILE)
    return parse_submission(submitted).file.table is not None


def format_short_response(response: dict[str, Any]) -> list[str]:
    """Return a server's answers in at most 15 lines; raise ProcessError if malformed."""
    try:
        return list_answer_lines(response["answers"], response["folder"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ProcessError(f"{_EXPECTED}, got others in {response['folder']}.") from error


def _format_batches(response: dict[str, Any]) -> Iterator[str]:
    """Yield each batch's answers as text, by the queries that were submitted."""
    folder, answers = Path(response["folder"]), iter(response["answers"])
    file = parse_submission(read_text(folder / QUERIES_FILE)).file
    for place, batch in enumerate(file.batches):
        own = list(islice(answers, len(batch)))
        yield format_answers(own, folder, cost_text=response["whole"], table=place == file.table)


def _build_submission(file: QueryFile, *, plan: bool) -> str:
    """Return the submission as text, parsed once here as the server will, to report errors
    early.
    """
    settings = dict(file.session)
    if wrong := sorted({"data", "deployment"} & set(settings)):
        raise QueryError(
            f"Expected no {wrong[0]} in [session] with --server, got one: the server asks its own "
            "parties."
        )
    schema = load_schema(str(settings.pop("schema", "")))
    asked = QueryFile(session=settings, batches=file.batches, table=file.table)
    text = Submission(file=asked, schema=schema, plan=plan).to_json()
    parse_submission(text)
    return text


def _await_answers(submission: str, *, server_folder: Path, resume: str) -> dict[str, Any]:
    """Submit queries, or resume the query run `resume`, and wait for the answers."""
    with OperatorClient(load_operator_home(server_folder)) as operator:
        folder = (
            operator.begin("query", queries=submission) if submission else (operator.resume(resume))
        )
        typer.echo(
            f"{folder.name} is queued. Its answers will be in {folder}. To stop it: parley stop "
            f"DIR {folder.name}",
            err=True,
        )
        state = wait_until_ended(folder, lambda: operator.poll_end(folder), every=2)
    if state == "stopped":
        raise RunStopped
    return read_answers(folder, state)


def read_answers(folder: Path, state: str) -> dict[str, Any]:
    """Read a server's answers. The caller chooses the folder, never the server.

    Raises:
        ProcessError: there are none, or they are malformed.
    """
    try:
        came = parse_strict_json(read_text(folder / ANSWERS_FILE, max_bytes=MAX_LOG_BYTES))
    except (OSError, ValueError) as error:
        raise ProcessError(
            f"The queries ended ({state}) without answers. See the server's log."
        ) from error
    if not isinstance(came, dict) or set(came) != _KEYS:
        raise ProcessError(f"{_EXPECTED}, got something else in {folder}.")
    page = folder / PAGE_FILE
    own = {"run": folder.name, "folder": str(folder)}
    return {**own, **came, "report": str(page) if page.exists() else ""}
