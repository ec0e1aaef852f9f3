"""`parley owner`: what a party's owner is asked, and says."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Argument, Option

from parley.command_options import AsJson, PartyDir
from parley.owner.approval_requests import open_party
from parley.owner.owner_page_server import serve_page
from parley.owner.owner_status import build_status
from parley.presentation.page_registry import PAGES
from parley.safe_io.json_writing import format_json
from parley.terminal.document_output import print_document

owner_app = typer.Typer(suggest_commands=False, no_args_is_help=True)

Name = Annotated[
    str,
    Argument(
        metavar="ID", help="The request's id: 32 hex digits, shown by `parley owner pending`."
    ),
]


@owner_app.command("status")
def show_owner_status(folder: PartyDir, as_json: AsJson = False) -> None:
    """Show waiting jobs, the budget that is left, and past jobs with their cost."""
    with open_party(folder) as party:
        if as_json:
            typer.echo(format_json(build_status(party)))
        else:
            print_document(PAGES["owner"](party))


@owner_app.command("pending")
def show_pending_jobs(folder: PartyDir, as_json: AsJson = False) -> None:
    """Show the jobs that wait for approval: what each computes and costs, as derived here."""
    with open_party(folder) as party:
        offers = party.list_requests()
    if as_json:
        typer.echo(format_json([offer.to_json() for offer in offers]))
        return
    for offer in offers:
        print_document(PAGES["approval"](offer, folder))
    if not offers:
        typer.echo("Nothing waits for your approval.")


@owner_app.command("accept")
def accept_job(folder: PartyDir, name: Name) -> None:
    """Approve all rounds of this run as they were shown, and nothing else."""
    with open_party(folder) as party:
        typer.echo(party.decide(name, accepted=True))


@owner_app.command("refuse")
def refuse_job(
    folder: PartyDir,
    name: Name,
    reason: Annotated[
        str, Option(help="The reason, in one line. It is recorded only in this party's ledger.")
    ] = "",
) -> None:
    """Refuse a job, even an approved one: the party takes no part from the next round on."""
    with open_party(folder) as party:
        typer.echo(party.decide(name, accepted=False, reason=reason))


@owner_app.command("page")
def serve_owner_page(
    folder: PartyDir,
    port: Annotated[int, Option(min=0, max=65535, help="Port on 127.0.0.1; 0: any free one.")] = 0,
) -> None:
    """Serve a web page on this machine to see and decide the same. Ctrl-C ends it.

    The address contains a secret: anyone who has it can approve jobs. Open it yourself; Parley does
    not, because other users of this machine can read a browser's command line.
    """
    with open_party(folder):  # what is wrong with the folder is said here
        pass
    with serve_page(folder, port=port) as page:
        typer.echo(f"Open this address on this machine. Keep it secret:\n  {page.address}")
        page.serve()
