"""`parley query`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from typer import Argument, Option

from parley.analytics.answer_output import format_answers
from parley.analytics.query_file import (
    QueryFile,
    build_example_file,
    build_table_one_file,
    format_cost,
    load_request,
)
from parley.analytics.remote_queries import query_server
from parley.analytics.session import Session
from parley.analytics.short_answers import list_answer_lines
from parley.client.queries.base import QueryError
from parley.command_options import AsJson, Verbose
from parley.privacy.ledger.ledger_copy import copy_ledger
from parley.safe_io.json_writing import format_json

QueryFileOrSelect = Annotated[
    str | None,
    Argument(metavar="[QUERIES]", help="Query file (TOML), or one SELECT together with --epsilon."),
]
EpsilonOption = Annotated[
    float | None, Option(help="With SELECT or --table-one: the ε that it may spend in total.")
]
SessionFile = Annotated[
    Path,
    Option("--session", help="With SELECT or --table-one: query file with the \\[session] to use."),
]
TableOneColumns = Annotated[
    str | None,
    Option(
        "--table-one",
        metavar="COLUMNS",
        help="Make a study's first table of these columns, separated by commas, or of all.",
    ),
]
ByGroup = Annotated[
    str | None, Option("--by", help="With --table-one: the column whose groups are compared.")
]
PlanOnly = Annotated[
    bool, Option("--plan", help="Only show expected errors and costs; charge nothing.")
]
Out = Annotated[Path | None, Option(help="Session folder to make (default: runs/…).")]
Resume = Annotated[
    Path | None,
    Option(
        metavar="SESSION", help="Continue this session. Answers that it has are not charged again."
    ),
]
ServerFolder = Annotated[
    Path | None,
    Option(
        metavar="DIR",
        help="Send the queries to a running server: the server's folder, or an operator's.",
    ),
]
Simultaneous = Annotated[
    bool, Option("--simultaneous", help="Make intervals that hold for all cells at once.")
]
Sampling = Annotated[
    bool,
    Option("--sampling", help="Make intervals that cover the sampling error as well as the noise."),
]
PrintQuery = Annotated[
    bool, Option("--print-query", help="Print an example query file with every key.")
]


def query(
    queries: QueryFileOrSelect = None,
    epsilon: EpsilonOption = None,
    session_file: SessionFile = Path("queries.toml"),
    table: TableOneColumns = None,
    by: ByGroup = None,
    plan: PlanOnly = False,
    out: Out = None,
    resume: Resume = None,
    server: ServerFolder = None,
    simultaneous: Simultaneous = False,
    sampling: Sampling = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
    print_query: PrintQuery = False,
) -> None:
    """Query parties for private statistics: counts, histograms, sums, means and more.

    Each query is charged before it is answered. Each answer shows its interval, its cost and the
    budget that is left.
    """
    if print_query:
        typer.echo(build_example_file(), nl=False)
        return
    covers = {"simultaneous": simultaneous, "sampling": sampling}
    covers = {name: True for name, on in covers.items() if on}
    if covers and resume is not None:
        raise QueryError(
            f"Expected --{next(iter(covers))} with a new session, got --resume: a session that "
            "goes on has its settings."
        )
    if queries is None and server is None and table is None:
        raise QueryError("Expected a query file. parley query --print-query writes one.")
    if table is not None and (queries is not None or covers):
        got = "queries" if covers == {} else f"--{next(iter(covers))}"
        raise QueryError(f"Expected --table-one alone, with --session FILE, got {got} too.")
    if table is None and by is not None:
        raise QueryError("Expected --by with --table-one; a SELECT has GROUP BY, a file by = […].")
    file: QueryFile | None = None
    if table is not None:
        file = build_table_one_file(table, by=by, epsilon=epsilon, session_file=session_file)
    elif queries is not None:
        file = load_request(queries, epsilon, session_file)
    if file is not None:
        file.session.update(covers)
    if server is not None:
        if out is not None:
            raise QueryError(
                "Expected --server without --out, got both: the server makes the folder."
            )
        query_server(server, file, plan=plan, resume=resume, as_json=as_json, verbose=verbose)
    elif file is not None and plan:
        _print_query_plan(file)
    elif file is not None:
        _run_queries(file, out, resume, as_json=as_json, verbose=verbose)


def _print_query_plan(file: QueryFile) -> None:
    """Print what every batch would release, in a session that writes nothing.

    The session has a copy of the file's ledger, so that its plan is refused as its answers are.
    """
    ledger = file.session.pop("ledger", None)
    with TemporaryDirectory(prefix="parley-plan-") as place:
        if ledger is not None and "://" in str(ledger):  # a plan opens no connection
            typer.echo(f"`parley ledger show {ledger}` shows what is left.\n")
        elif ledger is not None and Path(ledger).exists():
            file.session["ledger"] = str(Path(place) / "ledger.sqlite")
            copy_ledger(ledger, file.session["ledger"])
        with _open_session(file, out=Path(place) / "session", resume=None) as session:
            for text in file.format_plans(session):
                typer.echo(f"{text}\n")
            if file.find_refusal(session, file.plan_batches(session)):
                raise typer.Exit(3)


def _run_queries(
    file: QueryFile, out: Path | None, resume: Path | None, *, as_json: bool, verbose: bool
) -> None:
    """Print the total cost, run every batch, and write the page of all answers."""
    with _open_session(file, out=out, resume=resume) as session:
        planned, answers, table = file.plan_batches(session), list[dict[str, Any]](), 0
        whole = format_cost(planned, session.totals.budget)
        in_full = as_json or verbose or file.table is not None
        if in_full:
            typer.echo(f"{whole}\n", err=as_json)
        for place, batch in enumerate(file.release_batches(session, planned)):
            own = [{"name": name, **each.to_json(), "text": str(each)} for name, each in batch]
            if place == file.table:
                table = own[0]["index"]
            shown = format_answers(own, session.folder, cost_text=whole, table=place == file.table)
            if in_full:
                typer.echo(f"{shown}\n", err=as_json)
            answers += own
        page = session.report(table_one=table)
        if as_json:
            for each in answers:
                del each["text"]
            facts = {"session": str(session.folder), "whole": whole, "left": session.remaining}
            typer.echo(format_json({**facts, "answers": answers, "report": str(page)}))
        elif not in_full:
            typer.echo("\n".join(list_answer_lines(answers, session.folder)))
        else:
            typer.echo(f"answers and ledger in {session.folder}; all on one page: {page}")


def _open_session(file: QueryFile, *, out: Path | None, resume: Path | None) -> Session:
    settings = dict(file.session)
    data = settings.pop("data", None)
    if resume is not None:
        return Session(data, resume=resume)
    return Session(data, out=out, **settings)
