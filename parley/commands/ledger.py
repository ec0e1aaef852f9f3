"""`parley ledger`: show, verify, copy, upgrade, free, raise."""

from __future__ import annotations

from typing import Annotated

import typer

from parley.command_options import AsJson
from parley.privacy.accounting.rounding import format_exact, format_rounded_up
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.hash_chain import ChainHead
from parley.safe_io.json_writing import format_json
from parley.safe_io.printable_text import to_one_line
from parley.terminal.ledger_terminal import (
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
    typer.Argument(
        metavar="LEDGER",
        help="Ledger file, postgresql:// URL, or a run's folder: the file that its job names, "
        "else its own. A URL that a folder names is never connected to.",
    ),
]

LedgerUrl = Annotated[
    str | None,
    typer.Option("--ledger", metavar="URL", help="Where the ledger of a run's folder is."),
]


@ledger_app.command("show")
def show_ledger(ledger: LedgerPath, as_json: AsJson = False) -> None:
    """Show what runs released on which data, what that cost, and what is left."""
    content = read_ledger(ledger)
    if as_json:
        typer.echo(format_json(content.to_json()))
    else:
        print_ledger(content)


@ledger_app.command("verify")
def verify_ledger_command(ledger: LedgerPath, named: LedgerUrl = None) -> None:
    """Check the ledger's hash chain and totals; name an entry that somebody edited."""
    problems, entries, head = verify_ledger(ledger, ledger_url=named)
    if problems:
        for problem in problems:
            typer.echo(to_one_line(f"✗ {problem}"), err=True)
        raise typer.Exit(1)
    typer.echo(f"✓ {entries} entries, chain and totals intact.")
    typer.echo(f"  {_format_head(head)}")


def _format_head(head: ChainHead) -> str:
    """Return the end of the log, which shows whether a restored copy is the newest."""
    return f"{head.records} records, hash {head.hash}"


@ledger_app.command("copy")
def copy_ledger_command(
    ledger: LedgerPath,
    target: Annotated[
        str, typer.Argument(metavar="TO", help="File or postgresql:// URL without a ledger.")
    ],
) -> None:
    """Copy a ledger, also while it is in use: a backup, or a move to or from PostgreSQL.

    The key of the row digests is copied, too. Both ledgers are verified. Treat the copy like a
    private key, and never let two processes use the two ledgers: they would not add up.
    """
    head = copy_ledger(ledger, target)
    typer.echo(f"Copied and verified.\n  {_format_head(head)}")


@ledger_app.command("upgrade")
def upgrade_ledger_command(
    ledger: LedgerPath,
    copy: Annotated[
        str | None,
        typer.Option(
            metavar="TO",
            help="Where the old ledger is copied to. Default: next to the file, with its version.",
        ),
    ] = None,
) -> None:
    """Upgrade a ledger from before Parley 1.0, and keep a copy of the old one.

    It is verified before and after. Its budgets and what was spent stay the same, and so do the
    rules of its accounts. An older Parley then refuses it.
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
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's name in the ledger.")],
) -> None:
    """Give back what a killed run still holds for rounds that it won't make.

    Before its first round a run sets aside what all its rounds need; when it ends, it gives back
    the rest. After a kill, `parley run --resume` continues it. What it reserved stays charged.
    """
    for dataset, releases in free_ledger(ledger, run).items():
        typer.echo(to_one_line(f"{dataset}: {releases} releases given back."))


@ledger_app.command("raise")
def raise_budget_command(
    ledger: LedgerPath,
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="The data's name in the ledger.")
    ],
    reason: Annotated[str, typer.Option(help="Why; it stays in the ledger's chain for good.")],
    epsilon: Annotated[float | None, typer.Option(help="The new total ε.")] = None,
    delta: Annotated[float | None, typer.Option(help="The new total δ.")] = None,
    unit: Annotated[Unit, typer.Option(help="Whose budget.")] = Unit.RECORD,
) -> None:
    """Raise a data set's budget on purpose. It can't be taken back.

    People were promised the old one: ask whoever answers for the data first. Jobs on these data
    say the new total from then on (privacy.dataset-epsilon).
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
