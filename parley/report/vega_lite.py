"""Vega-Lite's words for a plot: plain dictionaries (https://vega.github.io/vega-lite/docs)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Spec = dict[str, Any]


def build_layer(values: Iterable[Spec], mark: str, encoding: Spec, **look: Any) -> Spec:
    """One mark for each of some values."""
    return {"data": {"values": list(values)}, "mark": {"type": mark, **look}, "encoding": encoding}


def build_quantitative(field: str, **rest: Any) -> Spec:
    """A channel of numbers."""
    return {"field": field, "type": "quantitative", **rest}


def build_nominal(field: str, **rest: Any) -> Spec:
    """A channel of names."""
    return {"field": field, "type": "nominal", **rest}


def build_bar_end(field: str) -> Spec:
    """The other end of a bar or an area."""
    return {"field": field}
