"""The commands of a deployment: deploy, server, party, submit, status, stop."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from parley.server.records.plain_json import json_text

__all__ = ["add_deploy_commands"]

deploy_app = typer.Typer(
    suggest_commands=False,
    no_args_is_help=True,
    help="Make a deployment's folders and keys, renew and rotate them.",
)

ServerDir = Annotated[Path, typer.Argument(metavar="DIR", help="The server's folder.")]
Hosts = Annotated[
    list[str],
    typer.Option("--host", help="Name or address by which parties reach the server. Repeatable."),
]
SetKeys = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a job's key.")
]


def add_deploy_commands(app: typer.Typer) -> None:
    """Adds them to the command line."""
    panel = "Deployments: real parties on machines of their own"
    app.add_typer(deploy_app, name="deploy", rich_help_panel=panel)
    for command in (server, party, submit, status, stop):
        app.command(name=command.__name__, rich_help_panel=panel)(command)


@deploy_app.command("init")
def deploy_init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    host: Hosts,
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
    from parley.deploy.folders import DeployError, make_deployment  # noqa: PLC0415 - start-up: for this command alone

    names = list(party or []) or [f"site-{index + 1}" for index in range(parties)]
    if len(names) < 2 or (party and parties):
        raise DeployError("Expected --parties N (2 or more), or --party NAME twice or more.")
    deployment = make_deployment(folder, hosts=host, parties=names, port=port)
    typer.echo(f"Deployment made; the server is {deployment.server_address}. Its id:")
    typer.echo(f"  {deployment.spoken}")
    typer.echo(f"  {folder}/server → the server's machine:  parley server DIR")
    for name in names:
        typer.echo(f"  {folder}/parties/{name} → {name}, secretly:  parley party DIR")
    typer.echo(f"  {folder}/authority → keep it offline: it can name another server.")
    typer.echo("Each party then writes its data sets and limits into its own party.toml.")


@deploy_app.command("renew")
def deploy_renew(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The deployment's folder.")],
    host: Hosts,
) -> None:
    """Make the server's certificate anew, before it expires (after 397 days)."""
    from parley.deploy.folders import renew_certificate  # noqa: PLC0415 - start-up: for this command alone

    renew_certificate(folder, hosts=host)
    typer.echo(f"Copy {folder}/server/server.pem and server.key to the server and restart it.")


@deploy_app.command("rotate")
def deploy_rotate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The deployment's folder.")],
    name: Annotated[str, typer.Argument(metavar="PARTY", help="Whose keys are made anew.")],
) -> None:
    """Make a party's keys anew, say after one was lost; the old ones are then refused."""
    from parley.deploy.folders import rotate_party  # noqa: PLC0415 - start-up: for this command alone

    deployment = rotate_party(folder, name)
    typer.echo(f"Send {name} its new identity.key and supernode.key, secretly, and everyone the")
    typer.echo("new deployment.toml. Runs that are going on end: their roster is the old one.")
    typer.echo(f"The deployment's id is now:\n  {deployment.spoken}")


@deploy_app.command("own-keys")
def deploy_own_keys(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="This party's folder.")],
) -> None:
    """On the party's machine: make both keys anew, so that not even the operator had them."""
    from parley.deploy.folders import make_own_keys  # noqa: PLC0415 - start-up: for this command alone

    entry = make_own_keys(folder)
    typer.echo(f"Send {entry} (public) to the operator: parley deploy accept DIR {entry.name}")
    typer.echo("Until everyone has the new deployment.toml, this party cannot take part.")


@deploy_app.command("accept")
def deploy_accept(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The deployment's folder.")],
    entry: Annotated[Path, typer.Argument(metavar="FILE", help="NAME.public.toml of a party.")],
    yes: Annotated[bool, typer.Option("--yes", help="Accept without asking.")] = False,
) -> None:
    """Put the public keys that a party made itself into the roster.

    Shows what changes, which is one party's keys and the deployment's id, and asks.
    """
    from parley.deploy.folders import accept, propose_keys  # noqa: PLC0415 - start-up: for this command alone

    proposed = propose_keys(folder, entry)
    typer.echo(f"{proposed.name}, and no other party, gets new keys:")
    for what, old, new in (
        ("identity", proposed.old.identity.hex(), proposed.new.identity.hex()),
        ("node key", proposed.old.node, proposed.new.node),
        ("the deployment's id", proposed.before.spoken, proposed.after.spoken),
    ):
        typer.echo(f"  {what}, before: {old}")
        typer.echo(f"  {what}, after:  {new}" if new != old else f"  {what}, after:  the same")
    if not yes:
        typer.confirm(f"Did {proposed.name} read this identity to you? Accept", abort=True)
    accept(folder, proposed)
    typer.echo("Send everyone the new deployment.toml and restart the server.")


def server(folder: ServerDir) -> None:
    """Run a deployment's server in the foreground; Ctrl-C (or systemd) stops it.

    One port, TLS. Parties connect to it; nothing connects to them. It runs no code but this
    installation's.
    """
    from parley.deploy.folders import check_server  # noqa: PLC0415 - start-up: for this command alone
    from parley.deploy.keeping import Keeping  # noqa: PLC0415 - start-up: for this command alone
    from parley.deploy.network import start_superlink  # noqa: PLC0415 - start-up: for this command alone
    from parley.deploy.processes import ProcessError, Supervisor, check_port  # noqa: PLC0415 - start-up: for this command alone

    home = check_server(folder)
    check_port(
        home.listen,
        home.port,
        remedy=f"Set another port in {home.folder / 'server.toml'}; parties then start with "
        "--server HOST:PORT.",
    )
    known = [party.name for party in home.deployment.parties]
    with Supervisor() as supervisor:
        link = start_superlink(supervisor, home.folder, port=home.port, host=home.listen)
        control = link.control()
        _tell(f"Listening on {home.listen}:{home.port} for {', '.join(known)}. The roster's id:")
        _tell(f"  {home.deployment.spoken}")
        keeping = Keeping(supervisor, say=_tell)
        online: set[str] = set()
        while True:
            now = online
            if keeping.look():
                with suppress(ProcessError):  # it has just started, or is about to end
                    now = control.online() & set(known)
            for name in sorted(now - online):
                _tell(f"+ {name} is online ({len(now)} of {len(known)}).")
            for name in sorted(online - now):
                _tell(f"- {name} is offline ({len(now)} of {len(known)}).")
            online = now
            time.sleep(2)


def party(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="This party's folder.")],
    server_address: Annotated[
        str | None,
        typer.Option("--server", metavar="HOST:PORT", help="Instead of deployment.toml's."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only check, item by item, and say what is wrong.")
    ] = False,
) -> None:
    """Take part, in the foreground; Ctrl-C (or systemd) stops it.

    Only party.toml in this folder says what this party agrees to, and only its ledger what it has
    spent. Whatever code a server sends is left alone: this installation answers.
    """
    from parley.deploy.folders import check_party  # noqa: PLC0415 - start-up: for this command alone
    from parley.deploy.keeping import Keeping  # noqa: PLC0415 - start-up: for this command alone
    from parley.deploy.network import start_supernode  # noqa: PLC0415 - start-up: for this command alone
    from parley.deploy.party_check import check_items  # noqa: PLC0415 - start-up: for this command alone
    from parley.deploy.processes import Supervisor, free_ports  # noqa: PLC0415 - start-up: for this command alone

    wrong = 0
    for item in check_items(folder, server=server_address):
        # What is wrong with the folder counts before what is wrong with the server.
        wrong = max(wrong, item.status)
        if check or item.status:
            typer.echo(item.line, err=not check)
    if wrong:
        raise typer.Exit(wrong)
    if check:
        return
    home = check_party(folder)
    address = server_address or home.deployment.server_address

    def explain(_process: object) -> str:
        said = [item.said for item in check_items(folder, server=server_address) if item.status]
        return " ".join(said)

    _tell(f"{home.name} is ready for {address}. The deployment's id:")
    _tell(f"  {home.deployment.spoken}")
    with Supervisor() as supervisor:
        start_supernode(
            supervisor, home.folder, name=home.name, server=address, port=free_ports(1)[0]
        )
        _tell(f"What it answers is in {home.folder / 'party.log'}.")
        keeping = Keeping(supervisor, say=_tell, explain=explain)
        while True:
            keeping.look()
            time.sleep(1)


def _tell(line: str) -> None:
    typer.echo(line, err=True)


def submit(
    job: Annotated[Path | None, typer.Argument(metavar="[JOB]", help="Job file (TOML).")] = None,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The server's folder.")] = Path(),
    sets: SetKeys = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Go on with this run of DIR/runs.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout, all else on stderr.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Run a job with the parties of a deployment, on the server's machine.

    Ctrl-C stops watching, not the run: [bold]parley status DIR[/bold] shows it, [bold]parley stop
    DIR[/bold] ends it.
    """
    from parley.deploy.submission import submit_job  # noqa: PLC0415 - start-up: for this command alone

    result = submit_job(job, to=to, sets=sets or [], resume=resume, quiet=quiet)
    if as_json:
        typer.echo(json_text(result.summary.to_json()))
    else:
        from parley.terminal.display import print_result  # noqa: PLC0415 - start-up: for this command alone

        print_result(result)
    ended = result.summary.status
    if ended != "complete":
        raise typer.Exit(3 if ended == "budget-exhausted" else 1)


def status(folder: ServerDir) -> None:
    """Show a deployment's parties and its runs, and in a run where every party stands."""
    from parley.deploy.submission import describe  # noqa: PLC0415 - start-up: for this command alone

    for line in describe(folder):
        typer.echo(line)


def stop(
    folder: ServerDir,
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="One run; none: all.")] = None,
) -> None:
    """End what runs; `parley submit --resume RUN` goes on with it.

    A round that is open then is asked for again: parties answer it with the same contributions,
    and nothing is paid for twice.
    """
    from parley.deploy.submission import stop_runs  # noqa: PLC0415 - start-up: for this command alone

    for name in stop_runs(folder, run):
        typer.echo(f"{name}: stopping.")
