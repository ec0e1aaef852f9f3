"""Write `audit.json` and `audit.html`, with bounds and error rates next to what is claimed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from parley.audit.audit_result_text import format_bound, format_claim, format_verdict
from parley.presentation.document import (
    Document,
    Figure,
    Figures,
    LegendEntry,
    Section,
    StatusLine,
    Table,
    Text,
    build_section,
)
from parley.presentation.page_registry import write_page
from parley.presentation.plots import Palette, draw_figure
from parley.presentation.vega_lite import build_layer, build_nominal, build_quantitative
from parley.safe_io.file_writing import write_file
from parley.safe_io.json_writing import format_json
from parley.simulations.audit.audit_results import AuditReport, combine_verdicts

_MIN_RATE = 1e-4
"""Minimum rate in the right chart. Smaller rates need more trials and are left out."""


def write_audit(reports: Sequence[AuditReport], folder: Path) -> Path:
    """Write both files into a folder, which is created, and return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    verdict = combine_verdicts([each.verdict for each in reports])
    whole = {"verdict": verdict, "audits": [each.to_json() for each in reports]}
    write_file(folder / "audit.json", f"{format_json(whole, indent=2)}\n")
    return write_page("audit", folder / "audit.html", reports)


def build_audit_document(reports: Sequence[AuditReport]) -> Document:
    """Build the page of audited guarantees: two figures and a table for each."""
    verdict = combine_verdicts([each.verdict for each in reports])
    return Document(
        overline="Parley audit",
        headline=f"Audit: {verdict.replace('-', ' ')}",
        statuses=[StatusLine(_VERDICTS[verdict], good=verdict == "not-refuted")],
        lede=(
            "Simulation only. A lower bound is no estimate: one above the claim is a fault, one "
            "far below it shows a weak attack and never a safe claim. A bound holds with the "
            "stated confidence, not certainly."
        ),
        sections=[_build_audit_section(each) for each in reports],
    )


_VERDICTS: dict[str, str] = {
    "not-refuted": "No attack contradicts the claim.",
    "refuted": "An attack contradicts the claim.",
    "loose": "The noise is larger than claimed.",
}


def _build_audit_section(report: AuditReport) -> Section:
    changed = ", ".join(report.environment["changed"])
    note = f"The audited job differs in what ε does not depend on: {changed}."
    return build_section(
        report.verdict.replace("-", " ").capitalize(),
        Text(f"{format_claim(report)}."),
        Figures([_build_bounds_figure(report), _build_rates_figure(report)], "pair"),
        _build_result_table(report),
        Text(note, "fine") if changed else None,
    )


def _build_result_table(report: AuditReport) -> Table:
    head = [
        *("attack", "method", "assumes", "trials"),
        *(f"ε at least ({100 * report.confidence:g} %)", "of claim", "noise, of the claimed"),
        "found",
    ]
    rows = [
        [
            f"{each.attack} ({each.way})" if each.way else each.attack,
            each.method,
            each.assumption,
            f"{each.trials_in + each.trials_threshold:,}",
            format_bound(each),
            "" if each.fraction_of_claim is None else f"{each.fraction_of_claim:.3f}",
            "{:.4f}–{:.4f}".format(*each.noise_scale) if each.noise_scale else "",
            " ".join(filter(None, (format_verdict(each), each.note))),
        ]
        for each in report.results
    ]
    used = [at for at in range(len(head)) if any(row[at] for row in rows)]
    return Table(
        caption="Attacks, and the largest ε that each proves",
        head=[head[at] for at in used],
        rows=[[row[at] for at in used] for row in rows],
        prose=True,
    )


def _build_bounds_figure(report: AuditReport) -> Figure:
    """Return a bar per bound, the claim as a line, and the ceiling for the number of trials as a
    tick.
    """
    most = max(report.claim.epsilon, *(each.epsilon_lower or 0.0 for each in report.results))
    rows = [
        {
            "name": f"{each.attack}, {each.method}",
            "epsilon": each.epsilon_lower,
            # A ceiling far above the claim does not matter, and would shrink the bars.
            "ceiling": each.ceiling if (each.ceiling or math.inf) < 4 * most else None,
            "assumes": "nothing" if each.assumption == "none" else "a curve or a law",
        }
        for each in report.results
        if each.epsilon_lower is not None
    ]
    names = build_nominal("name", title=None, sort=[row["name"] for row in rows], axis=_NAMES)
    x = build_quantitative("epsilon", title="ε, lower bound")
    shades = {"domain": list(_SHADES), "range": list(_SHADES.values())}
    assumes = build_nominal("assumes", scale=shades, legend=None)
    bounded = [row for row in rows if row["ceiling"] is not None]
    ceiling = {"x": build_quantitative("ceiling"), "y": names}
    claimed, line = {"epsilon": report.claim.epsilon}, {"x": build_quantitative("epsilon")}
    chart = {
        "layer": [
            build_layer(rows, "bar", {"x": x, "y": names, "color": assumes}),
            build_layer(bounded, "tick", ceiling, color=Palette.INK, thickness=2),
            build_layer([claimed], "rule", line, color=Palette.LIMIT, strokeDash=(6, 4), size=2),
        ]
    }
    keys = [LegendEntry(name=f"assumes {name}", colour=hue) for name, hue in _SHADES.items()]
    keys.append(LegendEntry(name="claim", colour=Palette.LIMIT, width=2, dash=(6, 4)))
    ticks = " A tick is the most that so many trials can certify." if bounded else ""
    return draw_figure(
        "Bounds, and the claim",
        f"A bar beyond the dashed line refutes the claim.{ticks}",
        {**chart, "height": max(90, 40 + 26 * len(rows))},
        keys=keys,
        simulated=True,
    )


_SHADES = {"nothing": Palette.ACCENT, "a curve or a law": Palette.QUIET}
"""What a bound assumes → its colour."""
_NAMES = {"grid": False, "labelLimit": 190}
_STYLES = (
    *((Palette.LIMIT, (6, 4)), (Palette.ACCENT, ()), (Palette.INK, ())),
    *((Palette.QUIET, ()), (Palette.MUTED, (2, 3))),
)
"""Colour and dashes of the claimed curve and of each attack's."""


def _build_rates_figure(report: AuditReport) -> Figure:
    """Return the error rates of each attack, next to the claimed curve."""
    curves = {"claimed": report.claimed_curve, **report.roc}
    styles = [_STYLES[at % len(_STYLES)] for at in range(len(curves))]
    scale = {"type": "log", "domain": [_MIN_RATE, 1], "clamp": True}
    ticks = {"grid": False, "values": [1e-4, 1e-3, 1e-2, 0.1, 1], "format": "~g"}
    at = {
        "x": build_quantitative("fpr", scale=scale, title="false positives", axis=ticks),
        "y": build_quantitative("fnr", scale=scale, title="false negatives", axis=ticks),
        "order": build_quantitative("order"),
    }
    drawn = []
    for points, (colour, dash) in zip(curves.values(), styles, strict=True):
        values = [
            {"fpr": positives, "fnr": negatives, "order": order}
            for order, (positives, negatives) in enumerate(points)
            if min(positives, negatives) >= _MIN_RATE
        ]
        look = {"color": colour, "strokeDash": dash or (1, 0), "clip": True}
        drawn.append(build_layer(values, "line", at, **look))
    chart = {"layer": drawn}
    return draw_figure(
        "Error rates, and the least that is claimed",
        "An attack's curve below the dashed one contradicts the claim.",
        chart,
        keys=[
            LegendEntry(name=name, colour=colour, width=2.25, dash=dash)
            for name, (colour, dash) in zip(curves, styles, strict=True)
        ],
        simulated=True,
    )
