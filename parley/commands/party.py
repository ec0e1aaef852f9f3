"""`parley party`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer
from typer import Option

from parley.client.contract.roster import load_deployment
from parley.command_options import LogJson, PartyDir
from parley.deploy.deployment_folder_checks import find_own_party
from parley.deploy.event_log import LogEvent, build_notifier
from parley.deploy.folder_lock import hold_folder
from parley.deploy.party_check import check_accounts, check_items
from parley.deploy.stream.party_client import PartyClient, build_answer_request


def run_party(
    folder: PartyDir,
    server_address: Annotated[
        str | None,
        Option(
            "--server",
            metavar="HOST:PORT",
            help="Address of the server, instead of that in deployment.toml.",
        ),
    ] = None,
    check: Annotated[
        bool,
        Option("--check", help="Check the folder and the connection, list what is wrong, and end."),
    ] = False,
    log_json: LogJson = False,
) -> None:
    """Run a party in the foreground; Ctrl-C (or systemd) stops it.

    The file party.toml in this folder decides what this party accepts. The ledger in this folder
    records what it has spent. A party runs no code that a server sends.
    """
    items = []
    for item in check_items(folder, server=server_address):
        items.append(item)
        if check or (item.status and not item.waits):
            typer.echo(item.line, err=not check)
    # What is wrong with the folder counts before what is wrong with the server.
    if wrong := max(item.status for item in items if check or not item.waits):
        raise typer.Exit(wrong)
    if check:
        return
    folder = folder.resolve()
    deployment = load_deployment(folder / "deployment.toml")
    name = find_own_party(folder, deployment).name
    address = server_address or deployment.server_address
    tell = build_notifier(as_json=log_json)
    for item in items:
        if item.waits:
            line = f"{item.said}\nWaiting for as long as it takes, dialling again; Ctrl-C ends it."
            tell(LogEvent("waiting", line, server=address))
    ready = f"{name} is ready for {address}. The deployment's id:\n  {deployment.spoken}"
    tell(LogEvent("ready", ready, party=name, server=address, deployment=deployment.id))

    # At once: what an answer relies on is on disk before it is returned, and an interrupt that is
    # raised inside a library's callback may never be heard.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, partial(_end, tell))
    tell(f"What it answers is in {folder / 'party.log'}.")
    answers = build_answer_request(folder, check=partial(check_accounts, folder))
    with hold_folder(folder, role="party", command="parley party"):
        PartyClient(folder, address=address, answers=answers, say=tell).run_forever()


def _end(print_line: Callable[[str], None], _number: int, _frame: object) -> None:
    print_line("parley: interrupted.")
    os._exit(130)
