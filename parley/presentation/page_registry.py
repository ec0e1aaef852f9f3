"""The registry of pages: each kind is a builder in one file, and a row of text here.

A builder is a function that returns a `Document`. It is imported when its page is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from parley.module_loading.plugin_table import PluginTable
from parley.presentation.document import Document

PAGES = PluginTable[Callable[..., Document]](
    {
        "run": "parley.presentation.run_page:build_run_document",
        "overview": "parley.presentation.short_run:build_overview_document",
        "plan": "parley.presentation.plan_page:build_plan_document",
        "session": "parley.analytics.session_page:build_session_document",
        "audit": "parley.audit.audit_page:build_audit_document",
        "sweep": "parley.sweeps.sweep_page:build_sweep_document",
        "comparison": "parley.sweeps.comparison_page:build_comparison_document",
        "owner": "parley.owner.owner_status:build_owner_document",
        "approval": "parley.owner.owner_status:build_approval_document",
        "certificate": "parley.certificate.certificate_page:build_certificate_document",
    }
)
"""Kind of page → builder of its document."""


def write_page(kind: str, target: Path, *facts: Any, **more: Any) -> Path:
    """Build the document of a page of this kind, write it as HTML, and return its path.

    Args:
        facts, more: Arguments of the page's builder.

    Raises:
        OSError: the page cannot be written.
        what the builder raises.
    """
    from parley.presentation.html_renderer import write_html  # noqa: PLC0415 - spares jinja2 where no page is written

    return write_html(PAGES[kind](*facts, **more), target)
