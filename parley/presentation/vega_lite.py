"""Build Vega-Lite specifications as plain dictionaries (https://vega.github.io/vega-lite/docs)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Spec = dict[str, Any]


def build_layer(values: Iterable[Spec], mark: str, encoding: Spec, **look: Any) -> Spec:
    """Return a layer with one mark per value."""
    return {"data": {"values": list(values)}, "mark": {"type": mark, **look}, "encoding": encoding}


def build_quantitative(field: str, **rest: Any) -> Spec:
    """Return a channel of numbers."""
    return {"field": field, "type": "quantitative", **rest}


def build_nominal(field: str, **rest: Any) -> Spec:
    """Return a channel of names."""
    return {"field": field, "type": "nominal", **rest}


def build_bar_end(field: str) -> Spec:
    """Return the channel of the other end of a bar or an area."""
    return {"field": field}
