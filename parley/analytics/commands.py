"""`parley query`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parley.server.records.plain_json import json_text

if TYPE_CHECKING:
    from parley.analytics.query_file import QueryFile
    from parley.analytics.session import Session

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
    from parley.analytics.query_file import example_file, load_queries, load_session  # noqa: PLC0415 - start-up: for this command alone
    from parley.client.queries.base import QueryError  # noqa: PLC0415 - start-up: for this command alone

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
    if server is not None:
        from parley.analytics.server_command import ask_server  # noqa: PLC0415 - start-up: gRPC

        if out is not None:
            raise QueryError("Expected --server without --out, got both: the server has a folder.")
        ask_server(
            server,
            queries,
            epsilon=epsilon,
            session_file=session_file,
            covers=covers,
            plan=plan,
            resume=resume,
            as_json=as_json,
        )
        return
    if queries is None:
        raise QueryError("Expected a file of queries; parley query --print-query writes one.")
    if queries.lstrip()[:6].upper() == "SELECT":
        settings = load_session(session_file) | covers
        _select(queries, epsilon, settings, plan, out, resume, as_json)
        return
    if epsilon is not None:
        raise QueryError("Expected --epsilon with a SELECT; a file says each query's own.")
    asked = load_queries(Path(queries))
    asked.session.update(covers)
    _ask_file(asked, plan, out, resume, as_json)


def _ask_file(
    asked: QueryFile, plan: bool, out: Path | None, resume: Path | None, as_json: bool
) -> None:
    """Every batch of a file, one after another."""
    if plan:
        with ExitStack() as stack:
            session = stack.enter_context(_session(asked, out=None, resume=None, stack=stack))
            _show_plans(session, asked)
        return
    with _session(asked, out=out, resume=resume, stack=None) as session:
        for batch in asked.batches:  # what cannot be asked is refused before the first is paid for
            session.plan([each.query for each in batch], **batch[0].price(batch))
        answers = []
        for batch in asked.batches:
            given = session.release([each.query for each in batch], **batch[0].price(batch))
            for each, answer in zip(batch, given, strict=True):
                answers.append({"name": each.name, **answer.to_json()})
                typer.echo(f"{answer}\n", err=as_json)
        _finish(session, answers, as_json=as_json)


def _finish(session: Session, answers: list[dict[str, Any]], *, as_json: bool) -> None:
    """Writes the session's page, and says where all is."""
    page = session.report()
    if as_json:
        answered = {"session": str(session.folder), "left": session.remaining, "answers": answers}
        typer.echo(json_text({**answered, "report": str(page)}))
    else:
        typer.echo(f"answers and ledger in {session.folder}; all on one page: {page}")


def _select(
    text: str,
    epsilon: float | None,
    settings: dict[str, Any],
    plan: bool,
    out: Path | None,
    resume: Path | None,
    as_json: bool,
) -> None:
    """One statement, all of it for one price."""
    from parley.analytics.batch import plan_text  # noqa: PLC0415 - start-up: for this command alone
    from parley.analytics.query_file import QueryFile  # noqa: PLC0415 - start-up: for this command alone
    from parley.analytics.sql import parse_sql  # noqa: PLC0415 - start-up: for this command alone
    from parley.client.data.schema import load_schema  # noqa: PLC0415 - start-up: for this command alone
    from parley.client.queries.base import QueryError  # noqa: PLC0415 - start-up: for this command alone

    if epsilon is None:
        raise QueryError("Expected --epsilon with a SELECT, what it may cost, got none.")
    asked = QueryFile(session=settings)
    if isinstance(settings.get("schema"), str):  # refused before a session's folder is made
        parse_sql(text, load_schema(settings["schema"]))
    with ExitStack() as stack:
        session = stack.enter_context(
            _session(asked, out=out, resume=resume, stack=stack if plan else None)
        )
        statement = parse_sql(text, session.schema)
        if plan:
            planned = session.plan(statement.queries, epsilon=epsilon)
            terms = session.terms
            typer.echo(plan_text(planned, statement.queries, terms=terms, epsilon=epsilon))
            return
        answers = session.release(statement.queries, epsilon=epsilon)
        for answer in answers:
            typer.echo(f"{answer}\n", err=as_json)
        given = [
            {"name": name, **answer.to_json()}
            for name, answer in zip(statement.names, answers, strict=True)
        ]
        _finish(session, given, as_json=as_json)


def _session(
    asked: QueryFile, *, out: Path | None, resume: Path | None, stack: ExitStack | None
) -> Session:
    """The session; with a stack, one that leaves nothing behind: to plan in."""
    from parley.analytics.session import Session  # noqa: PLC0415 - start-up: for this command alone

    settings = {key.replace("-", "_"): value for key, value in asked.session.items()}
    data = settings.pop("data", None)
    if stack is not None:
        settings.pop("ledger", None)
        out = Path(stack.enter_context(TemporaryDirectory(prefix="parley-plan-"))) / "session"
    elif resume is not None:
        return Session(data, resume=resume)
    return Session(data, out=out, **settings)


def _show_plans(session: Session, asked: QueryFile) -> None:
    from parley.analytics.batch import plan_text  # noqa: PLC0415 - start-up: for this command alone

    for batch in asked.batches:
        price, queries = batch[0].price(batch), [each.query for each in batch]
        planned = session.plan(queries, **price)
        text = plan_text(planned, queries, terms=session.terms, epsilon=price["epsilon"])
        typer.echo(text + "\n")


def add_query_commands(app: typer.Typer) -> None:
    """Adds it to the command line."""
    app.command()(query)
