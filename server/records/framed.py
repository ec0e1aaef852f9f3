"""A page of ours within a notebook: closed at first, in a frame that runs nothing."""

from __future__ import annotations

from html import escape
from pathlib import Path


def framed(page: Path, title: str) -> str:
    """HTML that opens the page's text in a frame without scripts; empty where there is no page."""
    try:
        text = page.read_text(encoding="utf-8")
    except OSError:
        return ""
    return (
        f"<details><summary>{escape(title)}</summary>"
        f'<iframe sandbox srcdoc="{escape(text)}" title="{escape(title)}" '
        'style="width: 100%; height: 40em; border: 1px solid #8888"></iframe></details>'
    )
