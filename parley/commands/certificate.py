"""`parley certificate RUN`, `parley certificate verify FILE`, `parley certificate registry RUN`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import click
import typer
from typer import Argument, Option
from typer.core import TyperGroup

from parley.certificate.certificate_files import write_certificate
from parley.certificate.certificate_statement import CertificateError
from parley.certificate.issuance import build_statement
from parley.certificate.verification import verify_certificate
from parley.safe_io.file_writing import write_file
from parley.safe_io.json_writing import format_json
from parley.safe_io.plurals import format_noun
from parley.safe_io.printable_text import to_one_line
from parley.server.records.run_reader import read_summary

LedgerUrl = Annotated[
    str | None, Option(metavar="URL", help="URL of the run's ledger, if its job names one.")
]


class _IssueUnlessNamed(TyperGroup):
    """A group whose first word is a run's folder unless it is the name of a command."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        known = args and args[0] in self.commands
        return super().resolve_command(ctx, args if known else ["issue", *args])


certificate_app = typer.Typer(cls=_IssueUnlessNamed, suggest_commands=False, no_args_is_help=True)


@certificate_app.command("issue")
def issue_run_certificate(
    run: Annotated[Path, Argument(metavar="RUN", help="A run's folder.")],
    key: Annotated[
        Path | None,
        Option(
            help="File of the Ed25519 key to sign with, created if it does not exist. Default: "
            "certificate.key in your configuration folder."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            help="JSON file to write (default: RUN/certificate.json). A page (.html) is written "
            "next to it."
        ),
    ] = None,
    ledger: LedgerUrl = None,
) -> None:
    """Sign a statement of a run's model, job, ledger and privacy guarantee.

    The certificate states what was computed, ε, δ, unit, relation and adversary. It contains the
    charged entries, so that others can compute ε again. It names columns, but no data set, path or
    party; only if the schema is an unreviewed draft, it names the file that the draft was read
    from.
    """
    certificate, target, page = write_certificate(run, out, key=key, ledger=ledger)
    typer.echo(f"{target}, signed by key {certificate.signer}")
    typer.echo(f"{page}: the same facts on one page, to read and print")


@certificate_app.command("registry")
def export_registry_draft(
    run: Annotated[Path, Argument(metavar="RUN", help="A run's folder.")],
    about: Annotated[
        Path,
        Option(
            metavar="FILE", help="TOML file with the facts that the run folder does not contain."
        ),
    ],
    out: Annotated[Path | None, Option(help="File to write (default: RUN/registry.json).")] = None,
    ledger: LedgerUrl = None,
) -> None:
    """Write a draft entry for the public registry of DP deployments.

    ε is computed from the ledger's entries, as in a certificate. The entry will be public: read it
    before you send it.
    """
    from parley.certificate.opendp_registry import build_entry, read_about  # noqa: PLC0415 - spares polars

    target = out or run / "registry.json"
    if target.exists():
        raise CertificateError(f"Expected a new file for --out, {target} exists.")
    summary = read_summary(run)
    statement, known = build_statement(run, ledger=ledger), read_about(about)
    if summary is None:
        raise CertificateError(f"Expected a run that ended, {run} has no summary.")
    write_file(target, format_json(build_entry(statement, summary, known), indent=2) + "\n")
    typer.echo(f"{target}: a draft. To propose it, see opendp/deployments-registry-data")


@certificate_app.command("verify")
def check_certificate_file(
    file: Annotated[Path, Argument(metavar="FILE", help="A certificate (JSON).")],
    signer: Annotated[
        str | None,
        Option(help="The signer's public key (64 hex digits), from a source that you trust."),
    ] = None,
    run: Annotated[
        Path | None,
        Option(help="The run's folder, to compare its model, job and ledger with the certificate."),
    ] = None,
    ledger: LedgerUrl = None,
) -> None:
    """Check a certificate offline: its signature, and ε computed again from its entries.

    What could not be checked is listed. No connection is made except to a --ledger that you name.
    Exit status 2: a check failed.
    """
    verdict = verify_certificate(file, signer=signer, run=run, ledger=ledger)
    facts = verdict.certificate.statement
    about = (
        f"{facts.run_id}: {facts.algorithm}, {facts.parties} "
        f"{format_noun(facts.parties, 'party')}, {facts.rounds_done} of {facts.rounds} "
        f"{format_noun(facts.rounds, 'round')}, {facts.status}, engine {facts.engine}; issued "
        f"{facts.issued}"
    )
    typer.echo(to_one_line(about))
    for line in verdict.confirmed:
        typer.echo(to_one_line(f"✓ {line}"))
    for line in verdict.unchecked:
        typer.echo(to_one_line(f"? not checked: {line}"))
