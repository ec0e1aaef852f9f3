"""`parley query … --server DIR`: queries for a deployment that runs, followed to their answers.

`[session]` then has the settings of a session with real parties: `dataset`, `schema` (a copy of the
parties' file), `epsilon`; no data and no deployment, which are the server's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from parley.analytics.answer_output import told
from parley.analytics.query_file import QueryFile
from parley.analytics.submission import Submission, submission_from
from parley.client.contract.party_protocol import strict_json
from parley.client.data.schema import load_schema
from parley.client.queries.base import QueryError
from parley.deploy.child_processes import ProcessError
from parley.deploy.run_watcher import RunStopped, until_ended
from parley.deploy.stream.operator_client import Operator, operator_home
from parley.deploy.stream.run_queue import ANSWERS, ASKED, PAGE
from parley.safe_io.file_reading import LARGEST_LOG, text_of
from parley.safe_io.json_writing import json_text

_KEYS = {"whole", "left", "answers", "plans"}
_EXPECTED = "Expected answers as a server of this version writes them"


def ask_server(
    to: Path, file: QueryFile | None, *, plan: bool, resume: Path | None, as_json: bool
) -> None:
    """Submits, waits, and prints.

    Args:
        to: the server's folder, or an operator's.
        file: what is asked; None with `resume`.

    Raises:
        QueryError, SchemaError: it cannot be asked; nothing was sent.
        what `parley.Session` raises, as the server refused it; ProcessError, DeployError, PkiError.
    """
    if (file is None) == (resume is None):
        raise QueryError(
            "Expected queries for --server, or --resume RUN to go on with a run of it, got "
            f"{'neither' if file is None else 'both'}."
        )
    submission = "" if file is None else _submission(file, plan=plan)
    answered = _answered(submission, to=to, resume="" if resume is None else resume.name)
    for text in texts_of(answered):
        typer.echo(f"{text}\n", err=as_json)
    if as_json:
        answers = [{k: v for k, v in each.items() if k != "text"} for each in answered["answers"]]
        typer.echo(json_text({**answered, "answers": answers}))
    elif answered["report"]:
        typer.echo(f"answers in {answered['folder']}; all on one page: {answered['report']}")


def texts_of(answered: dict[str, Any]) -> list[str]:
    """What is shown of a server's answers; writes their CSV files. Raises ProcessError."""
    try:
        return [*answered["plans"]] or [answered["whole"], *_told(answered)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProcessError(f"{_EXPECTED}, got others in {answered['folder']}.") from error


def _told(answered: dict[str, Any]) -> Iterator[str]:
    """Every batch's answers, by what was asked."""
    folder, answers = Path(answered["folder"]), iter(answered["answers"])
    file = submission_from((folder / ASKED).read_text(encoding="utf-8")).file
    for place, batch in enumerate(file.batches):
        own = list(islice(answers, len(batch)))
        yield told(own, folder, whole=answered["whole"], table=place == file.table)


def _submission(file: QueryFile, *, plan: bool) -> str:
    """What is sent; read here once more as the server will, so that faults are heard at once."""
    settings = dict(file.session)
    if wrong := sorted({"data", "deployment"} & set(settings)):
        raise QueryError(
            f"Expected no {wrong[0]} in [session] with --server, got one: the server's parties "
            "are asked."
        )
    schema = load_schema(str(settings.pop("schema", "")))
    asked = QueryFile(session=settings, batches=file.batches, table=file.table)
    text = Submission(file=asked, schema=schema, plan=plan).to_json()
    submission_from(text)
    return text


def _answered(submission: str, *, to: Path, resume: str) -> dict[str, Any]:
    """Submits queries, or goes on with the run `resume` of them, and waits for the answers."""
    with Operator(operator_home(to)) as operator:
        folder = (
            operator.begin("query", queries=submission) if submission else (operator.resume(resume))
        )
        typer.echo(
            f"{folder.name} waits for its turn; what it answers is in {folder}. "
            "To end it: parley stop.",
            err=True,
        )
        state = until_ended(folder, lambda: operator.ended(folder), every=2)
    if state == "stopped":
        raise RunStopped
    return answers_in(folder, state)


def answers_in(folder: Path, state: str) -> dict[str, Any]:
    """What a server answered. In which folder that is, is not the server's to say.

    Raises:
        ProcessError: there is none, or it is something else.
    """
    try:
        came = strict_json(text_of(folder / ANSWERS, largest=LARGEST_LOG))
    except (OSError, ValueError) as error:
        raise ProcessError(
            f"The queries ended ({state}) without answers; the server's log says why."
        ) from error
    if not isinstance(came, dict) or set(came) != _KEYS:
        raise ProcessError(f"{_EXPECTED}, got others in {folder}.")
    page = folder / PAGE
    own = {"run": folder.name, "folder": str(folder)}
    return {**own, **came, "report": str(page) if page.exists() else ""}
