"""`parley deploy …`: folders and keys of a deployment, made, renewed and rotated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from parley.client.contract.roster import Deployment
from parley.command_options import PartyDir
from parley.deploy.provisioning import (
    accept,
    add_party,
    make_deployment,
    make_own_keys,
    propose_keys,
    remove_party,
    renew_certificates,
    rotate_party,
)
from parley.deploy.server_address import DeployError

deploy_app = typer.Typer(suggest_commands=False, no_args_is_help=True)

DeploymentDir = Annotated[Path, Argument(metavar="DIR", help="The deployment's folder.")]


@deploy_app.command("init")
def create_deployment_command(
    folder: Annotated[Path, Argument(metavar="DIR", help="A new folder.")],
    host: Annotated[
        list[str],
        Option(help="Host name or address at which parties reach the server. Repeatable."),
    ],
    parties: Annotated[
        int, Option(max=10_000, help="Number of parties, named site-1, site-2, …")
    ] = 0,
    party: Annotated[
        list[str] | None, Option("--party", help="A party by name. Repeatable.")
    ] = None,
    port: Annotated[int, Option(min=1, max=65535, help="The server's port.")] = 9092,
) -> None:
    """Make a deployment: a certificate authority, a server, and a folder with keys per party.

    Example: [bold]parley deploy init consortium --host fl.example.org --party north --party south
    --party east[/bold]
    """
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
def renew_command(
    folder: DeploymentDir,
    host: Annotated[
        list[str] | None,
        Option(
            "--host",
            help="New host name or address at which parties reach the server. Repeatable; the "
            "first is written into the roster.",
        ),
    ] = None,
) -> None:
    """Renew all TLS certificates before they expire after 397 days. Parties keep their keys."""
    renewal = renew_certificates(folder, hosts=host or [])
    typer.echo(f"Copy {folder}/server/*.pem and *.key to the server and restart it.")
    for name in renewal.parties:
        typer.echo(f"Send {name} its new party.pem (public): {folder}/parties/{name}/party.pem")
    if (folder / "operator").is_dir():
        typer.echo(f"Send operators elsewhere the new keys in {folder}/operator, secretly.")
    if renewal.new_roster is not None:
        typer.echo(
            f"The server's address is now {renewal.new_roster.server_address}; the deployment's "
            "id stays.\n"
            f"Send everyone the new roster, {folder}/authority/deployment.toml. Each party\n"
            "restarts with it."
        )


@deploy_app.command("rotate")
def rotate_command(
    folder: DeploymentDir,
    name: Annotated[str, Argument(metavar="PARTY", help="Party whose keys are replaced.")],
) -> None:
    """Replace a party's keys, for example after one was lost. The old keys are then refused."""
    deployment = rotate_party(folder, name)
    typer.echo(f"Send {name} its new keys from {folder}/parties/{name}, secretly.")
    _print_roster_steps(folder, deployment)


@deploy_app.command("add-party")
def add_party_command(
    folder: DeploymentDir,
    name: Annotated[str, Argument(metavar="PARTY", help="Name of the new party.")],
) -> None:
    """Add a party: make its folder and keys. The other parties keep theirs."""
    deployment = add_party(folder, name)
    typer.echo(f"{folder}/parties/{name} → {name}, secretly:  parley party DIR")
    _print_roster_steps(folder, deployment)


@deploy_app.command("remove-party")
def remove_party_command(
    folder: DeploymentDir, name: Annotated[str, Argument(metavar="PARTY", help="Party to remove.")]
) -> None:
    """Remove a party from the roster. The server then refuses its TLS certificate."""
    _print_roster_steps(folder, remove_party(folder, name))


def _print_roster_steps(folder: Path, deployment: Deployment) -> None:
    typer.echo(
        f"Send everyone the new roster, {folder}/authority/deployment.toml, and restart the\n"
        "server. Active runs end, because they have the old roster. The deployment's id\n"
        f"is now:\n  {deployment.spoken}"
    )


@deploy_app.command("own-keys")
def make_own_keys_command(folder: PartyDir) -> None:
    """On the party's machine: replace both keys, so that no one else ever had them."""
    entry = make_own_keys(folder)
    typer.echo(
        f"Send {entry} (public) to the server administrator: parley deploy accept DIR {entry.name}"
    )
    typer.echo("Until everyone has the new deployment.toml, this party cannot take part.")


@deploy_app.command("accept")
def accept_keys_command(
    folder: DeploymentDir,
    entry: Annotated[Path, Argument(metavar="FILE", help="A party's NAME.public.toml.")],
    yes: Annotated[bool, Option("--yes", help="Accept without asking.")] = False,
) -> None:
    """Add the public keys that a party made itself to the roster.

    The party's keys and the deployment's id change. Both are shown, and you are asked to confirm.
    """
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
