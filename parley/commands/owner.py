"""`parley owner`: what a party's owner is asked, and says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from parley.command_options import AsJson, PartyDir
from parley.owner.offers import ApprovalRequest, open_party
from parley.owner.owner_page import serve_page
from parley.owner.owner_status import Row, build_status, list_budgets, list_notes, list_runs
from parley.safe_io.json_writing import format_json
from parley.safe_io.printable_text import to_one_line
from parley.terminal.terminal_screen import Screen, build_plain_table

owner_app = typer.Typer(suggest_commands=False, no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(metavar="ID", help="32 hex digits, as `parley owner pending` shows them.")
]


@owner_app.command("status")
def show_owner_status(folder: PartyDir, as_json: AsJson = False) -> None:
    """One screen: what waits, what is left, who asked what and what was paid."""
    with open_party(folder) as party:
        if as_json:
            typer.echo(format_json(build_status(party)))
            return
        waits, rows, runs, noted = (
            party.list_requests(),
            list_budgets(party),
            list_runs(party),
            list_notes(party),
        )
    screen = Screen()
    screen.print(f"{party.name}, of the deployment of {party.deployment.server_address}")
    _print_table(screen, "What is left", rows)
    _print_table(screen, "What was paid, the last first", runs)
    for note in noted:
        screen.print(to_one_line(note))
    screen.print(Text("What waits for you", style="bold"))
    for offer in waits:
        screen.print(f"{offer.name}  {offer.dataset}: {offer.price}")
    screen.print(
        f"`parley owner pending {folder}` says what each is."
        if waits
        else "Nothing waits for your yes."
    )


@owner_app.command("pending")
def show_pending_jobs(folder: PartyDir, as_json: AsJson = False) -> None:
    """Show the jobs that wait for a yes, and what each would compute and cost, as this party
    derives it.
    """
    with open_party(folder) as party:
        offers = party.list_requests()
    if as_json:
        typer.echo(format_json([offer.to_json() for offer in offers]))
        return
    screen = Screen()
    for offer in offers:
        _print_offer(screen, offer)
        screen.print(f"parley owner accept {folder} {offer.name}", soft_wrap=True)
        screen.print(f"parley owner refuse {folder} {offer.name}\n", soft_wrap=True)
    if not offers:
        screen.print("Nothing waits for your yes.")


def _print_offer(screen: Screen, offer: ApprovalRequest) -> None:
    screen.print(Text(f"{offer.name}  {offer.dataset}", style="bold"))
    screen.print(offer.price)
    table = build_plain_table("", "", header=False)
    for fact in offer.facts:
        table.add_row(Text(fact.name, style="dim"), fact.value)
    screen.print(table)
    for found in offer.attackers:
        screen.print(f"{found.caption}.")
        table = build_plain_table(*found.head, left=1)
        for row in found.rows:
            table.add_row(*row)
        screen.print(table)


def _print_table(screen: Screen, title: str, rows: Sequence[Row]) -> None:
    screen.print(Text(title, style="bold"))
    if not rows:
        screen.print("nothing yet")
        return
    table = build_plain_table(*rows[0])
    for row in rows:
        table.add_row(*(to_one_line(text) for text in row.values()))
    screen.print(table)


@owner_app.command("accept")
def accept_job(folder: PartyDir, name: Name) -> None:
    """Say yes: to every round of this run as it was shown, and to nothing else."""
    with open_party(folder) as party:
        typer.echo(party.decide(name, accepted=True))


@owner_app.command("refuse")
def refuse_job(
    folder: PartyDir,
    name: Name,
    reason: Annotated[
        str, typer.Option(help="Why, in one line; it stays in this party's ledger alone.")
    ] = "",
) -> None:
    """Say no, also after a yes: the party takes no part from its next round on."""
    with open_party(folder) as party:
        typer.echo(party.decide(name, accepted=False, reason=reason))


@owner_app.command("page")
def serve_owner_page(
    folder: PartyDir,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Of 127.0.0.1; 0: any that is free.")
    ] = 0,
) -> None:
    """Serve a page in this machine's browser to see and decide the same; Ctrl-C ends it.

    Its address holds a secret: anyone who has it can say yes. It is not opened by itself, since a
    browser's command line can be read by others on this machine.
    """
    with open_party(folder):  # what is wrong with the folder is said here
        pass
    with serve_page(folder, port=port) as page:
        typer.echo(f"Open this address on this machine, and give it to nobody:\n  {page.address}")
        page.serve()
