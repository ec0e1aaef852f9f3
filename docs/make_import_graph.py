"""Draw the diagram of the packages and write the table of their imports, from the code's imports.

    python docs/make_import_graph.py

This writes `docs/import-graph.svg` and the table `docs/import-table.csv`. A test compares both with
the code. A node is a sub-package or module directly in a package. The table has all nodes. The
diagram shows sub-packages: an arrow leads from one to another that it imports, itself or through a
module. Arrows that follow from others are left out (a → b → c implies a → c). A red arrow joins
nodes that import each other in a circle.
"""

from __future__ import annotations

import ast
import csv
import io
import math
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import grimp

LOWEST = ("module_loading", "safe_io")
"""Folders of `parley/` that are below all other packages."""

PACKAGES = ("parley", "simulations", "server", "client", "secure_agg", "privacy", *LOWEST)
"""Packages from top to bottom. Imports go downward only."""

WHOLE = frozenset({"secure_agg", *LOWEST})
"""Packages without sub-packages: one node each."""

_ROOT = Path(__file__).parents[1]

Edges = dict[str, set[str]]
"""Node → the nodes that it imports. A node is "client.contract", "parley.cli" or "secure_agg"."""


def get_node(module: str) -> str | None:
    """Return the node of `parley.client.contract.release_plan`; None for a package's `__init__`."""
    parts = module.split(".")[1:]
    if not parts or parts[0] == "__main__":
        return None
    if parts[0] not in PACKAGES:
        parts = ["parley", *parts]
    if parts[0] in WHOLE:
        return parts[0]
    return ".".join(parts[:2]) if len(parts) > 1 else None


def build_import_graph(*, types: bool = True) -> grimp.ImportGraph:
    """Return every file and the files that it imports; with `types`, for type checkers too."""
    # Grimp follows folders alone, from where a package was imported: it is shown one of all six.
    subprocess.run([sys.executable, _ROOT / ".ci/view"], check=True)  # noqa: S603 - our own
    with patch.object(sys, "path", [str(_ROOT / "build/view"), *sys.path]), patch.dict(sys.modules):
        sys.modules.pop("parley", None)
        return grimp.build_graph("parley", cache_dir=None, exclude_type_checking_imports=not types)


def build_edges() -> Edges:
    """Return every node and the nodes that it imports, from the code that is importable as
    `parley`.
    """
    graph = build_import_graph()
    edges: Edges = {node: set() for module in graph.modules if (node := get_node(module))}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            source, target = get_node(module), get_node(imported)
            if source and target and source != target:
                edges[source].add(target)
    return edges


def get_package(node: str) -> str:
    """Return "client" for "client.contract"."""
    return node.split(".", maxsplit=1)[0]


def read_purpose(node: str) -> str:
    """Return the first sentence of a node's docstring."""
    at = _find_source(node)
    file = at / "__init__.py" if at.is_dir() else at.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def _find_source(node: str) -> Path:
    """Return a node's folder, or its file's path without the suffix."""
    return _ROOT / "parley" / node if node in LOWEST else _ROOT.joinpath(*node.split("."))


def build_table(edges: Edges) -> str:
    """Return the table as CSV: a row per node, packages from top to bottom."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["folder or module", "contains", "imports"])
    for package in PACKAGES:
        for node in sorted(r for r in edges if get_package(r) == package):
            ordered = sorted(edges[node], key=lambda r: (PACKAGES.index(get_package(r)), r))
            writer.writerow([node, read_purpose(node), ", ".join(ordered)])
    return out.getvalue()


# --- the diagram -------------------------------------------------------------------------------


def find_reachable(edges: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """Return the nodes that `start` imports, directly or not."""
    seen: set[str] = set()
    waiting = list(edges[start])
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting.extend(edges[node])
    return seen


def keep_folders(edges: Edges) -> Edges:
    """Return the sub-packages, each with those that it imports, itself or through a module."""
    folders = {node for node in edges if _find_source(node).is_dir()}

    def find_next(node: str) -> set[str]:
        own = edges[node]
        return (own & folders).union(*map(find_next, own - folders))

    return {node: find_next(node) for node in edges if node in folders}


@dataclass(frozen=True)
class Picture:
    """One package: its nodes in layers, and the arrows between them.

    Attributes:
        floors: layers from the top; names of nodes, and of places that a long arrow passes through.
        arrows: each a list of names, from importer to imported.
        circles: pairs of nodes that import each other.
    """

    floors: list[list[str]]
    arrows: list[list[str]]
    circles: set[tuple[str, str]]


def lay_out(package: str, edges: Edges) -> Picture:
    """Return the nodes in layers, each above all that it imports."""
    own = {r: {t for t in edges[r] if get_package(t) == package} for r in edges}
    own = {node: targets for node, targets in own.items() if get_package(node) == package}
    below = {node: find_reachable(own, node) for node in own}
    circles = {(a, b) for a in own for b in own[a] if a in below[b]}
    acyclic = {a: {b for b in own[a] if a not in below[b]} for a in own}
    # Who is in one circle is on one floor.
    alike = {
        node: {node} | {other for other in below[node] if node in below[other]} for node in own
    }

    def height(node: str) -> int:
        under = {b for a in alike[node] for b in acyclic[a]}
        return max((height(other) + 1 for other in under), default=0)

    heights = {node: height(node) for node in own}
    top = max(heights.values(), default=0)
    floors: list[list[str]] = [[] for _ in range(top + 1)]
    for node in sorted(own):
        floors[top - heights[node]].append(node)
    arrows = []
    for a in sorted(own):
        implied = {c for b in acyclic[a] for c in below[b] if c not in alike[b]}
        for b in sorted(acyclic[a] - implied):
            steps = range(top - heights[a] + 1, top - heights[b])
            through = [f"{a}>{b}@{floor}" for floor in steps]
            for floor, name in zip(steps, through, strict=True):
                floors[floor].append(name)
            arrows.append([a, *through, b])
    return Picture(floors=_untangle(floors, arrows), arrows=arrows, circles=circles)


def _untangle(floors: list[list[str]], arrows: list[list[str]]) -> list[list[str]]:
    """Return each layer in the order of its neighbours' mean places, a few times down and up."""
    near: dict[str, set[str]] = {name: set() for floor in floors for name in floor}
    for arrow in arrows:
        for a, b in pairwise(arrow):
            near[a].add(b)
            near[b].add(a)
    floors = [list(floor) for floor in floors]
    for _ in range(8):
        for order in (range(1, len(floors)), range(len(floors) - 2, -1, -1)):
            step = 1 if order.step < 0 else -1
            for at in order:
                beside = floors[at + step]
                place = {name: (i + 0.5) / len(beside) for i, name in enumerate(beside)}

                def middle(name: str, place: dict[str, float] = place) -> tuple[float, str]:
                    known = [place[other] for other in near[name] if other in place]
                    # fsum: of a set, whose order is no two runs' alike.
                    return (math.fsum(known) / len(known) if known else 0.5, name)

                floors[at].sort(key=middle)
    return floors


_LEAST_WIDTH, _BOX, _LEAST_GAP, _GAP, _FLOOR, _HEAD = 720.0, 28, 14.0, 60.0, 46, 56
_FOOT, _BETWEEN, _MARGIN = 16, 12, 14.0
_STYLE = """
text { font-family: ui-sans-serif, system-ui, "DejaVu Sans", sans-serif; fill: #1b1f24; }
.name { font-size: 16px; font-weight: 600; }
.holds { font-size: 12.5px; fill: #5d656e; }
.node { font-size: 13.5px; text-anchor: middle; }
.band { fill: #f3f5f4; stroke: #e4e6e9; }
.box { fill: #ffffff; stroke: #0b6b66; stroke-width: 1.2; }
.arrow { fill: none; stroke: #77818b; stroke-width: 1.2; marker-end: url(#head); }
.circle { fill: none; stroke: #b2541f; stroke-width: 1.8; marker-end: url(#red); }
.paper { fill: #fdfdfc; }
@media (prefers-color-scheme: dark) {
  text { fill: #e7e9eb; } .holds { fill: #9aa3ac; } .paper { fill: #14171a; }
  .band { fill: #1c2024; stroke: #2b3036; } .box { fill: #14171a; stroke: #5cc5bb; }
}
"""
_MARKER = (
    '<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
)


def draw_svg(edges: Edges) -> str:
    """Return the diagram, packages from top to bottom."""
    edges = keep_folders(edges)
    drawn = {p: Picture([], [], set()) if p in WHOLE else lay_out(p, edges) for p in PACKAGES}
    width = max(
        [_LEAST_WIDTH]
        + [
            sum(map(_compute_width, floor)) + _LEAST_GAP * (len(floor) - 1) + 2 * _MARGIN
            for each in drawn.values()
            for floor in each.floors
        ]
    )
    body: list[str] = []
    y = 0.0
    for package, each in drawn.items():
        height, band = _draw_band(package, each, y, width)
        body += band
        y += height + _BETWEEN
    size = f'width="{width:g}" height="{y - _BETWEEN + 1:g}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} '
            f'{y - _BETWEEN + 1:g}" {size} role="img" '
            'aria-label="The folders of the packages and which imports which">',
            f"<style>{_STYLE}</style>",
            f"<defs>{_MARKER.format(name='head', colour='#77818b')}"
            f"{_MARKER.format(name='red', colour='#b2541f')}</defs>",
            f'<rect class="paper" {size}/>',
            *body,
            "</svg>\n",
        ]
    )


def _compute_width(name: str) -> float:
    """Return the width of a node's box, or 0 for a place that an arrow passes through."""
    return 0.0 if "@" in name else 8.0 * len(_format_label(name)) + 22


def _draw_band(package: str, drawn: Picture, y: float, width: float) -> tuple[float, list[str]]:
    """Return a package's height and its shapes, with its upper edge at y."""
    floors = len(drawn.floors)
    height = _HEAD + (floors - 1) * _FLOOR + _BOX + _FOOT if floors else 50.0
    shapes = [
        f'<rect class="band" x=".5" y="{y + 0.5:g}" width="{width - 1:g}" height="{height:g}" '
        'rx="6"/>',
        f'<text class="name" x="{_MARGIN:g}" y="{y + 22:g}">{package}</text>',
        f'<text class="holds" x="{_MARGIN:g}" y="{y + 40:g}">{escape(_describe(package))}</text>',
    ]
    centre: dict[str, tuple[float, float]] = {}
    boxes: list[str] = []
    for at, floor in enumerate(drawn.floors):
        top = y + _HEAD + at * _FLOOR
        taken = sum(map(_compute_width, floor))
        gap = min(_GAP, (width - 2 * _MARGIN - taken) / max(1, len(floor) - 1))
        x = (width - taken - gap * (len(floor) - 1)) / 2
        for name in floor:
            own = _compute_width(name)
            centre[name] = (x + own / 2, top)
            if own:
                boxes.append(
                    f'<rect class="box" x="{x:.1f}" y="{top:g}" width="{own:g}" '
                    f'height="{_BOX}" rx="4"/><text class="node" x="{x + own / 2:.1f}" '
                    f'y="{top + 19:g}">{_format_label(name)}</text>'
                )
            x += own + gap
    arrows = [f'<path class="arrow" d="{_draw_arrow(arrow, centre)}"/>' for arrow in drawn.arrows]
    for a, b in sorted(drawn.circles):
        (ax, top), (bx, _) = centre[a], centre[b]
        side = top + (_BOX if a < b else 0)
        bend = side + (18 if a < b else -18)
        arrows.append(
            f'<path class="circle" d="M{ax:.1f} {side:g}C{ax:.1f} {bend:g} {bx:.1f} {bend:g} '
            f'{bx:.1f} {side:g}"/>'
        )
    return height, [*shapes, *arrows, *boxes]


def _draw_arrow(arrow: list[str], centre: Mapping[str, tuple[float, float]]) -> str:
    (x, top) = centre[arrow[0]]
    y = top + _BOX
    path = f"M{x:.1f} {y:g}"
    for name in arrow[1:]:
        to, top = centre[name]
        middle = (y + top) / 2
        path += f"C{x:.1f} {middle:g} {to:.1f} {middle:g} {to:.1f} {top:g}"
        x, y = to, top
        if "@" in name:
            y = top + _BOX
            path += f"V{y:g}"
    return path


def _format_label(node: str) -> str:
    return node.split(".", 1)[1]


def _describe(package: str) -> str:
    text = read_purpose(package).removeprefix("Parley: ")
    return text[0].upper() + text[1:]


def main() -> None:
    """Write both."""
    edges = build_edges()
    (_ROOT / "docs/import-graph.svg").write_text(draw_svg(edges), encoding="utf-8")
    (_ROOT / "docs/import-table.csv").write_text(build_table(edges), encoding="utf-8")


if __name__ == "__main__":
    main()
