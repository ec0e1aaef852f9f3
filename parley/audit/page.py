"""`audit.json` and `audit.html`: written aside and moved into place; the page needs nothing else.

The page is a Jinja2 template with autoescape and strict names; it has no script, and its own
content-security policy asks for nothing over a network.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from parley.audit.figure import figure_svg
from parley.audit.words import bound_text, claim_text, verdict_text
from parley.report.parts import write_page
from parley.server.records.plain_json import json_text
from parley.simulations.audit.results import AuditReport, combined


def write_audit(reports: Sequence[AuditReport], folder: Path) -> Path:
    """Write both files into a folder, which is made, and return the page's path.

    Raises:
        OSError: the folder can't be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    verdict = combined([each.verdict for each in reports])
    whole = {"verdict": verdict, "audits": [each.to_json() for each in reports]}
    draft = folder / ".audit.json.part"
    draft.write_text(json_text(whole, indent=2) + "\n", encoding="utf-8")
    os.replace(draft, folder / "audit.json")
    return write_page(
        folder / "audit.html",
        "audit.html.j2",
        package="parley.audit",
        verdict=verdict,
        audits=[
            {
                "claim": claim_text(each),
                "verdict": each.verdict,
                "confidence": f"{100 * each.confidence:g} %",
                # Of numbers and of names in tables of ours: drawn by vl-convert, which escapes.
                "figure": Markup(figure_svg(each)),  # noqa: S704
                "changed": each.environment["changed"],
                "rows": [
                    {
                        "result": result,
                        "bound": bound_text(result),
                        "verdict": verdict_text(result),
                    }
                    for result in each.results
                ],
            }
            for each in reports
        ],
    )
