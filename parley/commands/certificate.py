"""`parley certificate RUN`, `parley certificate verify FILE`, `parley certificate registry RUN`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import click
import typer
from typer.core import TyperGroup

from parley.certificate.certificate_statement import CertificateError
from parley.certificate.issuance import certified, issued, signing_key
from parley.certificate.verification import verified
from parley.safe_io.file_writing import write_file
from parley.safe_io.json_writing import json_text
from parley.safe_io.plurals import noun
from parley.safe_io.printable_text import one_line
from parley.server.records.run_reader import read_summary

NamedLedger = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where the run's ledger is, if its job names a URL."),
]


class _IssueUnlessNamed(TyperGroup):
    """What is no command's name is a run's folder."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        known = args and args[0] in self.commands
        return super().resolve_command(ctx, args if known else ["issue", *args])


certificate_app = typer.Typer(
    cls=_IssueUnlessNamed,
    suggest_commands=False,
    no_args_is_help=True,
)


@certificate_app.command("issue")
def certificate_issue(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    key: Annotated[
        Path | None,
        typer.Option(
            help="Ed25519 key to sign with (64 hex digits), made where there is none. Default: "
            "certificate.key in your configuration folder."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write (default: RUN/certificate.json).")
    ] = None,
    ledger: NamedLedger = None,
) -> None:
    """Write a signed statement that binds model, job, ledger head and accounts of a run.

    It says ε, δ, unit, relation and adversary, and holds the charged entries, so that anybody can
    compute ε again. It names no data, path or party. If the schema is a draft that was not
    reviewed, it names the file that the draft was read from.
    """
    target = out or run / "certificate.json"
    if target.exists():
        raise CertificateError(f"Expected a new file for --out, {target} exists.")
    private = signing_key(key or Path(typer.get_app_dir("parley")) / "certificate.key")
    certificate = issued(run, private, ledger=ledger)
    write_file(target, certificate.text())
    typer.echo(f"{target}, signed by key {certificate.signer}")


@certificate_app.command("registry")
def certificate_registry(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    about: Annotated[
        Path, typer.Option(metavar="FILE", help="TOML with what a run does not know of itself.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="File to write (default: RUN/registry.json).")
    ] = None,
    ledger: NamedLedger = None,
) -> None:
    """Write a run as a draft for the public registry of DP deployments, in its schema.

    ε comes from the ledger's entries, as in a certificate. Read it before you send it: it is for
    the public.
    """
    from parley.certificate.opendp_registry import entry, read_about  # noqa: PLC0415 - spares polars

    target = out or run / "registry.json"
    if target.exists():
        raise CertificateError(f"Expected a new file for --out, {target} exists.")
    summary = read_summary(run)
    statement, known = certified(run, ledger=ledger), read_about(about)
    if summary is None:
        raise CertificateError(f"Expected a run that ended, {run} has no summary.")
    write_file(target, json_text(entry(statement, summary, known), indent=2) + "\n")
    typer.echo(f"{target}: a draft; opendp/deployments-registry-data says how to propose it")


@certificate_app.command("verify")
def certificate_verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A certificate.")],
    signer: Annotated[
        str | None,
        typer.Option(help="The signer's public key, from a source that you trust (64 hex)."),
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="The run's folder: holds model, job and ledger against it.")
    ] = None,
    ledger: NamedLedger = None,
) -> None:
    """Check a certificate, offline: signature, and ε from its entries by the accountants here.

    Connects to nothing but a --ledger that you name. Says what it could not check. Status 2 where
    something does not hold.
    """
    verdict = verified(file, signer=signer, run=run, ledger=ledger)
    facts = verdict.certificate.statement
    about = (
        f"{facts.run_id}: {facts.algorithm}, {facts.parties} {noun(facts.parties, 'party')}, "
        f"{facts.rounds_done} of "
        f"{facts.rounds} {noun(facts.rounds, 'round')}, "
        f"{facts.status}, engine {facts.engine}; issued {facts.issued}"
    )
    typer.echo(one_line(about))
    for line in verdict.held:
        typer.echo(one_line(f"✓ {line}"))
    for line in verdict.open:
        typer.echo(one_line(f"? not checked: {line}"))
