"""The commands of a deployment: deploy, server, party, submit, status, stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parley.server.records.plain_json import json_text

if TYPE_CHECKING:
    from parley.client.contract.roster import Deployment
    from parley.deploy.stream.queue import Questions

deploy_app = typer.Typer(
    suggest_commands=False,
    no_args_is_help=True,
    help="Make a deployment's folders and keys, renew and rotate them.",
)

DeploymentDir = Annotated[Path, typer.Argument(metavar="DIR", help="The deployment's folder.")]
ServerDir = Annotated[Path, typer.Argument(metavar="DIR", help="The server's folder.")]
PartyDir = Annotated[Path, typer.Argument(metavar="DIR", help="This party's folder.")]
LogJson = Annotated[
    bool, typer.Option("--log-json", help="Say what happens as one JSON object a line, on stderr.")
]


def add_deploy_commands(app: typer.Typer, *, questions: Callable[[], Questions]) -> None:
    """Adds them to the command line; `questions` makes what answers queries at a server."""

    def server(
        folder: ServerDir,
        monitor: Annotated[
            int | None,
            typer.Option(
                metavar="PORT",
                min=0,
                max=65535,
                help="Show /metrics (Prometheus) and /healthz at this port of 127.0.0.1 (0: any).",
            ),
        ] = None,
        log_json: LogJson = False,
    ) -> None:
        """Run a deployment's server in the foreground; Ctrl-C (or systemd) stops it.

        One port, TLS. Parties connect to it; nothing connects to them. It runs no code but this
        installation's. Runs that were going on when it ended go on when it starts.
        """
        from parley.deploy.events import teller  # noqa: PLC0415 - start-up: for this command alone
        from parley.deploy.folders import check_server  # noqa: PLC0415 - start-up: for this command alone
        from parley.deploy.processes import check_port  # noqa: PLC0415 - start-up: for this command alone
        from parley.deploy.stream.server import serve  # noqa: PLC0415 - start-up: for this command alone

        home = check_server(folder)
        remedy = (
            f"Set another port in {home.folder / 'server.toml'}; parties then start with --server "
            "HOST:PORT."
        )
        check_port(home.listen, home.port, remedy=remedy)
        serve(home, say=teller(as_json=log_json), monitor=monitor, questions=questions())

    panel = "Deployments: real parties, each on its own machine"
    app.add_typer(deploy_app, name="deploy", rich_help_panel=panel)
    for command in (server, party, submit, status, stop):
        app.command(name=command.__name__, rich_help_panel=panel)(command)


@deploy_app.command("init")
def deploy_init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    host: Annotated[
        list[str],
        typer.Option(help="Name or address by which parties reach the server. Repeatable."),
    ],
    parties: Annotated[int, typer.Option(help="So many parties: site-1, site-2, …")] = 0,
    party: Annotated[
        list[str] | None, typer.Option("--party", help="A party by name. Repeatable.")
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The server's one port.")] = 9092,
) -> None:
    """Make a deployment: a certificate authority, a server, a folder and keys for every party.

    [bold]parley deploy init consortium --host fl.example.org --party north --party south
    --party east[/bold]
    """
    from parley.deploy.folders import DeployError  # noqa: PLC0415 - start-up: for this command alone
    from parley.deploy.making import make_deployment  # noqa: PLC0415 - start-up: for this command alone

    names = list(party or []) or [f"site-{index + 1}" for index in range(parties)]
    if len(names) < 2 or (party and parties):
        raise DeployError("Expected --parties N (2 or more), or --party NAME twice or more.")
    deployment = make_deployment(folder, hosts=host, parties=names, port=port)
    typer.echo(f"Deployment made; the server is {deployment.server_address}. Its id:")
    typer.echo(f"  {deployment.spoken}")
    typer.echo(f"  {folder}/server → the server's machine:  parley server DIR")
    for name in names:
        typer.echo(f"  {folder}/parties/{name} → {name}, secretly:  parley party DIR")
    typer.echo(f"  {folder}/operator → who submits from elsewhere:  parley submit --to DIR")
    typer.echo(f"  {folder}/authority → keep it offline: it can name another server.")
    typer.echo("Each party then writes its data sets and limits into its own party.toml.")


@deploy_app.command("renew")
def deploy_renew(
    folder: DeploymentDir,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="Other names of the server than now. Repeatable."),
    ] = None,
) -> None:
    """Make all certificates anew, before they expire (after 397 days); keys of parties stay."""
    from parley.deploy.making import renew_certificates  # noqa: PLC0415 - start-up: for this command alone

    renewed = renew_certificates(folder, hosts=host or [])
    typer.echo(f"Copy {folder}/server/*.pem and *.key to the server and restart it.")
    for name in renewed:
        typer.echo(f"Send {name} its new party.pem (public): {folder}/parties/{name}/party.pem")


@deploy_app.command("rotate")
def deploy_rotate(
    folder: DeploymentDir,
    name: Annotated[str, typer.Argument(metavar="PARTY", help="Whose keys are made anew.")],
) -> None:
    """Make a party's keys anew, say after one was lost; the old ones are then refused."""
    from parley.deploy.making import rotate_party  # noqa: PLC0415 - start-up: for this command alone

    deployment = rotate_party(folder, name)
    typer.echo(f"Send {name} its new keys from {folder}/parties/{name}, secretly.")
    _tell_roster(folder, deployment)


@deploy_app.command("add-party")
def deploy_add_party(
    folder: DeploymentDir,
    name: Annotated[str, typer.Argument(metavar="PARTY", help="Who joins.")],
) -> None:
    """Make the folder and keys of one more party; the others keep theirs."""
    from parley.deploy.making import add_party  # noqa: PLC0415 - start-up: for this command alone

    deployment = add_party(folder, name)
    typer.echo(f"{folder}/parties/{name} → {name}, secretly:  parley party DIR")
    _tell_roster(folder, deployment)


@deploy_app.command("remove-party")
def deploy_remove_party(
    folder: DeploymentDir,
    name: Annotated[str, typer.Argument(metavar="PARTY", help="Who leaves.")],
) -> None:
    """Take a party out of the roster; the server then refuses its certificate."""
    from parley.deploy.making import remove_party  # noqa: PLC0415 - start-up: for this command alone

    _tell_roster(folder, remove_party(folder, name))


def _tell_roster(folder: Path, deployment: Deployment) -> None:
    typer.echo(
        f"Send everyone the new roster, {folder}/authority/deployment.toml, and restart the\n"
        "server. Runs that are going on end: their roster is the old one. The deployment's id\n"
        f"is now:\n  {deployment.spoken}"
    )


@deploy_app.command("own-keys")
def deploy_own_keys(folder: PartyDir) -> None:
    """On the party's machine: make both keys anew, so that not even the operator had them."""
    from parley.deploy.making import make_own_keys  # noqa: PLC0415 - start-up: for this command alone

    entry = make_own_keys(folder)
    typer.echo(f"Send {entry} (public) to the operator: parley deploy accept DIR {entry.name}")
    typer.echo("Until everyone has the new deployment.toml, this party cannot take part.")


@deploy_app.command("accept")
def deploy_accept(
    folder: DeploymentDir,
    entry: Annotated[Path, typer.Argument(metavar="FILE", help="NAME.public.toml of a party.")],
    yes: Annotated[bool, typer.Option("--yes", help="Accept without asking.")] = False,
) -> None:
    """Put the public keys that a party made itself into the roster.

    Shows what changes, which is one party's keys and the deployment's id, and asks.
    """
    from parley.deploy.making import accept, propose_keys  # noqa: PLC0415 - start-up: for this command alone

    proposed = propose_keys(folder, entry)
    name = proposed.new.name
    typer.echo(f"{name}, and no other party, gets new keys:")
    for what, old, new in (
        ("identity", proposed.old.identity.hex(), proposed.new.identity.hex()),
        ("the deployment's id", proposed.before.spoken, proposed.after.spoken),
    ):
        typer.echo(f"  {what}, before: {old}")
        typer.echo(f"  {what}, after:  {new}" if new != old else f"  {what}, after:  the same")
    if not yes:
        typer.confirm(f"Did {name} read this identity to you? Accept", abort=True)
    accept(folder, proposed)
    typer.echo(f"Send everyone {folder}/authority/deployment.toml and restart the server.")
    pem = folder / "parties" / name / "party.pem"
    typer.echo(f"Send {name} its certificate, too (public): {pem}")


def party(
    folder: PartyDir,
    server_address: Annotated[
        str | None,
        typer.Option("--server", metavar="HOST:PORT", help="Instead of deployment.toml's."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only check, item by item, and say what is wrong.")
    ] = False,
    log_json: LogJson = False,
) -> None:
    """Take part, in the foreground; Ctrl-C (or systemd) stops it.

    Only party.toml in this folder says what this party agrees to, and only its ledger what it has
    spent. Whatever code a server sends is left alone: this installation answers.
    """
    from parley.client.contract.roster import load_deployment  # noqa: PLC0415 - start-up: for this command alone
    from parley.deploy.events import Event, teller  # noqa: PLC0415 - start-up: for this command alone
    from parley.deploy.folders import own_entry  # noqa: PLC0415 - start-up: for this command alone
    from parley.deploy.party_check import check_items  # noqa: PLC0415 - start-up: for this command alone

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
    name = own_entry(folder, deployment).name
    address = server_address or deployment.server_address
    tell = teller(as_json=log_json)
    for item in items:
        if item.waits:
            line = f"{item.said}\nWaiting for as long as it takes, dialling again; Ctrl-C ends it."
            tell(Event("waiting", line, server=address))
    ready = f"{name} is ready for {address}. The deployment's id:\n  {deployment.spoken}"
    tell(Event("ready", ready, party=name, server=address, deployment=deployment.id))
    from parley.deploy.stream.party import Attending, party_answers  # noqa: PLC0415 - start-up: for this command alone

    # At once: what an answer relies on is on disk before it is returned, and an interrupt that is
    # raised inside a library's callback may never be heard.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, partial(_end, tell))
    tell(f"What it answers is in {folder / 'party.log'}.")
    Attending(folder, address=address, answers=party_answers(folder), say=tell).forever()


def _end(tell: Callable[[str], None], _number: int, _frame: object) -> None:
    tell("parley: interrupted.")
    os._exit(130)


def submit(
    job: Annotated[Path | None, typer.Argument(metavar="[JOB]", help="Job file (TOML).")] = None,
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="The server's folder, or an operator's.")
    ] = Path(),
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a job's key."),
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Go on with this run of DIR/runs.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout, all else on stderr.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Run a job with the parties of a deployment, from the server's folder or an operator's.

    Ctrl-C stops watching, not the run: [bold]parley status DIR[/bold] shows it, [bold]parley stop
    DIR[/bold] ends it.
    """
    from parley.deploy.stream import submission  # noqa: PLC0415 - start-up: for this command alone

    result = submission.submit_job(job, to=to, sets=sets or [], resume=resume, quiet=quiet)
    if as_json:
        typer.echo(json_text(result.summary.to_json()))
    else:
        from parley.terminal.result import print_result  # noqa: PLC0415 - start-up: for this command alone

        print_result(result)
    ended = result.summary.status
    if ended != "complete":
        raise typer.Exit(3 if ended == "budget-exhausted" else 1)


def status(
    folder: ServerDir,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it as a table, over and over; Ctrl-C ends it.")
    ] = False,
) -> None:
    """Show a deployment's parties and its runs, and in a run where every party stands."""
    from parley.deploy.stream import submission  # noqa: PLC0415 - start-up: for this command alone

    if watch:
        from parley.deploy.processes import ProcessError  # noqa: PLC0415 - start-up: for this option alone
        from parley.terminal.standing import watch as watch_it  # noqa: PLC0415 - start-up: for this option alone

        watch_it(partial(submission.look, folder), lost=ProcessError)
    for line in submission.look(folder).lines():
        typer.echo(line)


def stop(
    folder: ServerDir,
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="One run; none: all.")] = None,
) -> None:
    """End what runs; `parley submit --resume RUN` goes on with it.

    A round that is open then is asked for again: parties answer it with the same contributions,
    and nothing is paid for twice.
    """
    from parley.deploy.stream import submission  # noqa: PLC0415 - start-up: for this command alone

    for name in submission.stop_runs(folder, run):
        typer.echo(f"{name}: stopping.")
