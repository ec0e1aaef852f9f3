"""Write a run's certificate as JSON and as one HTML page: for `parley certificate` and `Run`."""

from __future__ import annotations

from pathlib import Path

import typer

from parley.certificate.certificate_statement import CertificateError, SignedCertificate
from parley.certificate.issuance import issue_certificate, load_signing_key
from parley.presentation.page_registry import write_page
from parley.safe_io.file_writing import write_file


def write_certificate(
    run: Path, target: Path | None = None, *, key: Path | None = None, ledger: str | None = None
) -> tuple[SignedCertificate, Path, Path]:
    """Issue a run's certificate; return it, its JSON file and its page.

    Args:
        target: JSON file; default certificate.json in the run's folder. The page's name ends in
            .html.
        key: signing key, made if there is none; default certificate.key in the user's configuration
            folder.
        ledger: path or URL of the run's ledger, if its job names a URL.

    Raises:
        CertificateError: a file exists already, or the run cannot be certified.
    """
    target = target or run / "certificate.json"
    if target.suffix == ".html":
        raise CertificateError(
            f"Expected a name for the JSON file, got {target}. Its page gets the same name with "
            f".html: {target.with_suffix('.json')}"
        )
    page = target.with_name(f"{target.name.removesuffix('.json')}.html")
    for file in (target, page):
        if file.exists():
            raise CertificateError(f"{file} exists already. Name another file.")
    private = load_signing_key(key or Path(typer.get_app_dir("parley")) / "certificate.key")
    certificate = issue_certificate(run, private, ledger=ledger)
    write_file(target, certificate.to_text())
    write_page("certificate", page, target)
    return certificate, target, page
