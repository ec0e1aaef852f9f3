"""`parley query`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from parley.analytics.query_file import QueryFile, asked_for, example_file
from parley.analytics.server_command import ask_server
from parley.analytics.session import Session
from parley.client.queries.base import QueryError
from parley.server.records.plain_json import json_text

Asked = Annotated[
    str | None,
    typer.Argument(
        metavar="[QUERIES]", help="File of queries (TOML); or one SELECT, with --epsilon."
    ),
]
Price = Annotated[
    float | None, typer.Option(help="With SELECT: what the statement may cost, whole.")
]
SessionFile = Annotated[
    Path, typer.Option("--session", help="With SELECT: file whose \\[session] is asked.")
]
PlanOnly = Annotated[
    bool, typer.Option("--plan", help="Expected errors and costs; nothing is asked or charged.")
]
Out = Annotated[Path | None, typer.Option(help="Session folder to make (default: runs/…).")]
Resume = Annotated[
    Path | None,
    typer.Option(metavar="SESSION", help="Go on with this session: answers are not paid twice."),
]
AtServer = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Have a running server ask its parties: its folder, or an operator's.",
    ),
]
AtOnce = Annotated[
    bool, typer.Option("--simultaneous", help="Intervals hold for all cells at once.")
]
Sampling = Annotated[
    bool, typer.Option("--sampling", help="Intervals cover sampling error beside the noise.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="One JSON object on stdout, all else on stderr.")
]
PrintQuery = Annotated[
    bool, typer.Option("--print-query", help="Write a file of queries with every key.")
]


def query(
    queries: Asked = None,
    epsilon: Price = None,
    session_file: SessionFile = Path("queries.toml"),
    plan: PlanOnly = False,
    out: Out = None,
    resume: Resume = None,
    server: AtServer = None,
    simultaneous: AtOnce = False,
    sampling: Sampling = False,
    as_json: AsJson = False,
    print_query: PrintQuery = False,
) -> None:
    """Ask several parties for statistics: counts, histograms, sums, means; each charged first.

    Every answer has its interval and says what it cost and what is left.
    """
    if print_query:
        typer.echo(example_file(), nl=False)
        return
    covers = {"simultaneous": simultaneous, "sampling": sampling}
    covers = {name: True for name, on in covers.items() if on}
    if covers and resume is not None:
        raise QueryError(
            f"Expected --{next(iter(covers))} with a new session, got --resume: a session that "
            "goes on has its settings."
        )
    if queries is None and server is None:
        raise QueryError("Expected a file of queries; parley query --print-query writes one.")
    file = None if queries is None else asked_for(queries, epsilon, session_file)
    if file is not None:
        file.session.update(covers)
    if server is not None:
        if out is not None:
            raise QueryError("Expected --server without --out, got both: the server has a folder.")
        ask_server(server, file, plan=plan, resume=resume, as_json=as_json)
    elif file is not None and plan:
        _plan(file)
    elif file is not None:
        _ask(file, out, resume, as_json=as_json)


def _plan(file: QueryFile) -> None:
    """What every batch would release, in a session that leaves nothing behind."""
    file.session.pop("ledger", None)
    with (
        TemporaryDirectory(prefix="parley-plan-") as place,
        _session(file, out=Path(place) / "session", resume=None) as session,
    ):
        for text in file.plans(session):
            typer.echo(f"{text}\n")


def _ask(file: QueryFile, out: Path | None, resume: Path | None, *, as_json: bool) -> None:
    """Every batch, one after another; then the page of all answers."""
    with _session(file, out=out, resume=resume) as session:
        answers = []
        for name, answer in file.answers(session):
            answers.append({"name": name, **answer.to_json()})
            typer.echo(f"{answer}\n", err=as_json)
        page = session.report()
        if as_json:
            told = {"session": str(session.folder), "left": session.remaining, "answers": answers}
            typer.echo(json_text({**told, "report": str(page)}))
        else:
            typer.echo(f"answers and ledger in {session.folder}; all on one page: {page}")


def _session(file: QueryFile, *, out: Path | None, resume: Path | None) -> Session:
    settings = dict(file.session)
    data = settings.pop("data", None)
    if resume is not None:
        return Session(data, resume=resume)
    return Session(data, out=out, **settings)
