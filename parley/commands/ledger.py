"""`parley ledger`: show, verify, copy, upgrade, free, raise."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Argument, Option

from parley.command_options import AsJson
from parley.privacy.accounting.rounding import format_exact, format_rounded_up
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.hash_chain import ChainHead
from parley.safe_io.json_writing import format_json
from parley.safe_io.printable_text import to_one_line
from parley.terminal.ledger_operations import (
    copy_ledger,
    free_ledger,
    print_ledger,
    raise_budget,
    read_ledger,
    upgrade_ledger,
    verify_ledger,
)

ledger_app = typer.Typer(suggest_commands=False, no_args_is_help=True)

LedgerPath = Annotated[
    str,
    Argument(
        metavar="LEDGER",
        help="Ledger file, postgresql:// URL, or a run's folder: then the ledger file that its job "
        "names, or the folder's own. Parley never connects to a URL because a folder names it.",
    ),
]

LedgerUrl = Annotated[
    str | None,
    Option("--ledger", metavar="URL", help="URL of the run's ledger, if LEDGER is a run's folder."),
]


@ledger_app.command("show")
def show_ledger(ledger: LedgerPath, as_json: AsJson = False) -> None:
    """Show the releases on each data set, their cost and the budget that is left."""
    content = read_ledger(ledger)
    if as_json:
        typer.echo(format_json(content.to_json()))
    else:
        print_ledger(content)


@ledger_app.command("verify")
def verify_ledger_command(ledger: LedgerPath, named: LedgerUrl = None) -> None:
    """Check the ledger's hash chain and totals, and report edited entries."""
    problems, entries, head = verify_ledger(ledger, ledger_url=named)
    if problems:
        for problem in problems:
            typer.echo(to_one_line(f"✗ {problem}"), err=True)
        raise typer.Exit(1)
    typer.echo(f"✓ {entries} entries, chain and totals intact.")
    typer.echo(f"  {_format_head(head)}")


def _format_head(head: ChainHead) -> str:
    """Return the end of the log, which shows whether a restored copy is the newest."""
    return f"{head.records} lines in its log, hash {head.hash}"


@ledger_app.command("copy")
def copy_ledger_command(
    ledger: LedgerPath,
    target: Annotated[
        str, Argument(metavar="TO", help="File or postgresql:// URL without a ledger.")
    ],
) -> None:
    """Copy a ledger as a backup, or to move it to or from PostgreSQL. It may be in use.

    Both ledgers are verified. Protect the copy like a private key, because it contains the key of
    the row digests. Never use both ledgers for runs: neither would count what the other spent.
    """
    head = copy_ledger(ledger, target)
    typer.echo(f"Copied and verified.\n  {_format_head(head)}")


@ledger_app.command("upgrade")
def upgrade_ledger_command(
    ledger: LedgerPath,
    copy: Annotated[
        str | None,
        Option(
            metavar="TO",
            help="Where to copy the old ledger (default: next to it, "
            "with its version in the name).",
        ),
    ] = None,
) -> None:
    """Upgrade a ledger from before Parley 1.0, and keep a copy of the old one.

    The ledger is verified before and after. Its budgets, its charges and the rules of its accounts
    stay the same. Older versions of Parley refuse the upgraded ledger.
    """
    made = upgrade_ledger(ledger, copy)
    if made is None:
        typer.echo("The ledger has the current version. Nothing was changed.")
        return
    typer.echo(to_one_line(f"Version {made.before} was copied to {made.copy}."))
    typer.echo(f"Upgraded and verified.\n  {_format_head(made.head)}")


@ledger_app.command("free")
def free_ledger_command(
    ledger: LedgerPath,
    run: Annotated[str, Argument(metavar="RUN", help="The run's name in the ledger.")],
) -> None:
    """Free the budget that a killed run holds for rounds that it will not run.

    A run holds the budget for all its rounds from the start, and frees the rest when it ends. If it
    was killed, either continue it with `parley run --resume` or free the rest here. Rounds that it
    had begun stay charged.
    """
    for dataset, releases in free_ledger(ledger, run).items():
        typer.echo(to_one_line(f"{dataset}: {releases} releases given back."))


@ledger_app.command("raise")
def raise_budget_command(
    ledger: LedgerPath,
    dataset: Annotated[str, Argument(metavar="DATASET", help="The data's name in the ledger.")],
    reason: Annotated[str, Option(help="The reason. It is recorded in the ledger for good.")],
    epsilon: Annotated[float | None, Option(help="The new total ε.")] = None,
    delta: Annotated[float | None, Option(help="The new total δ.")] = None,
    unit: Annotated[Unit, Option(help="The unit whose budget is raised.")] = Unit.RECORD,
) -> None:
    """Raise the total budget of a data set. This cannot be undone.

    The people in the data were promised the old budget: ask the person responsible for the data
    first. Afterwards, jobs on these data must state the new total (privacy.dataset-epsilon).
    """
    before, after, raises = raise_budget(
        ledger, dataset, unit=unit, reason=reason, epsilon=epsilon, delta=delta
    )
    typer.echo(f"{dataset}: {before.guarantee} is now {after.guarantee}.")
    together = min(1.0, (raises + 1) * after.delta)
    if together:
        typer.echo(
            f"If answers decided on it, ε = {format_exact(after.epsilon)} holds at δ = "
            f"{format_rounded_up(together, 3)}: {raises + 1} times δ, after "
            f"{raises} raise{'s' if raises > 1 else ''}."
        )
