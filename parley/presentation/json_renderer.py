"""Render documents as plain JSON values: texts and tables, without plots."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from parley.presentation.document import Document
from parley.server.statements.guarantee_text import Fact

_DRAWN = {"plot", "keys", "html"}
"""Fields that only a page shows."""


def to_json(document: Document) -> dict[str, Any]:
    """Return a document as plain values. Each part names its kind; absent content has no key."""
    shown: dict[str, Any] = _convert(document)
    return shown


def _convert(value: Any) -> Any:
    if isinstance(value, Fact):
        return [value.name, value.value]
    if hasattr(value, "__dataclass_fields__"):
        kind = {"kind": value.kind} if hasattr(value, "kind") else {}
        own = {each.name: getattr(value, each.name) for each in fields(value)}
        shown = {name: _convert(part) for name, part in own.items() if name not in _DRAWN}
        return kind | {name: part for name, part in shown.items() if part or part == 0}
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return value
    return [_convert(part) for part in value]
