"""Write `audit.json` and `audit.html`, a self-contained page with one figure per guarantee.

The figure shows bounds compared with the claim, and error rates compared with the claimed curve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import vl_convert
from markupsafe import Markup

from parley.audit.verdict_text import format_bound, format_claim, format_verdict
from parley.report.components import write_page
from parley.report.vega_lite import Spec, build_layer, build_nominal, build_quantitative
from parley.safe_io.file_writing import write_file
from parley.safe_io.json_writing import format_json
from parley.simulations.audit.audit_results import AuditReport, combine_verdicts

_CLAIM, _FREE, _ASSUMED, _CEILING = "#b2541f", "#0b6b66", "#8fc4bf", "#1b1f24"
_MIN_RATE = 1e-4
"""Minimum rate in the right chart. Smaller rates need more trials and are left out."""


def write_audit(reports: Sequence[AuditReport], folder: Path) -> Path:
    """Write both files into a folder, which is created, and return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    verdict = combine_verdicts([each.verdict for each in reports])
    whole = {"verdict": verdict, "audits": [each.to_json() for each in reports]}
    write_file(folder / "audit.json", f"{format_json(whole, indent=2)}\n")
    return write_page(
        folder / "audit.html",
        "audit.html.j2",
        package="parley.audit",
        verdict=verdict,
        audits=[
            {
                "claim": format_claim(each),
                "verdict": each.verdict,
                "confidence": f"{100 * each.confidence:g} %",
                # It contains only numbers and names from our own tables, and vl-convert escapes
                # them.
                "figure": Markup(build_figure_svg(each)),  # noqa: S704
                "changed": each.environment["changed"],
                "rows": [
                    {
                        "result": result,
                        "bound": format_bound(result),
                        "verdict": format_verdict(result),
                    }
                    for result in each.results
                ],
            }
            for each in reports
        ],
    )


def build_figure_svg(report: AuditReport) -> str:
    """Return an `<svg>` of one audited guarantee."""
    chart = {
        "hconcat": [_build_bounds_chart(report), _build_rates_chart(report)],
        "resolve": {"scale": {"color": "independent", "strokeDash": "independent"}},
        "config": {"background": "transparent", "font": "sans-serif"},
    }
    return str(vl_convert.vegalite_to_svg(chart))


def _build_bounds_chart(report: AuditReport) -> Spec:
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
    y = build_nominal("name", title=None, sort=[row["name"] for row in rows])
    x = build_quantitative("epsilon", title="ε, lower bound (tick: ceiling of so many trials)")
    shades = {"domain": ["nothing", "a curve or a law"], "range": [_FREE, _ASSUMED]}
    top = {"orient": "top"}
    assumes = build_nominal("assumes", title="assumes", scale=shades, legend=top)
    bounded = [row for row in rows if row["ceiling"] is not None]
    ceiling = {"x": build_quantitative("ceiling"), "y": y}
    claimed, line = {"epsilon": report.claim.epsilon}, {"x": build_quantitative("epsilon")}
    return {
        "layer": [
            build_layer(rows, "bar", {"x": x, "y": y, "color": assumes}),
            build_layer(bounded, "tick", ceiling, color=_CEILING, thickness=2),
            build_layer([claimed], "rule", line, color=_CLAIM, strokeDash=(6, 4), size=2),
        ],
        "width": 320,
        "height": max(120, 26 * len(rows)),
        "title": "Lower bounds, and the claim (dashed)",
    }


def _build_rates_chart(report: AuditReport) -> Spec:
    """Return the empirical error rates per attack. A rate below the claimed curve refutes the
    claim.
    """
    rows = [
        {"curve": name, "fpr": positives, "fnr": negatives, "order": at}
        for name, points in (("claimed", report.claimed_curve), *report.roc.items())
        for at, (positives, negatives) in enumerate(points)
        if min(positives, negatives) >= _MIN_RATE
    ]
    names = ["claimed", *report.roc]
    colours = [_CLAIM, _FREE, "#4a6fa5", "#8a5aa0", "#6a727b"][: len(names)]
    dashes = [(6, 4), *[(1, 0)] * len(report.roc)]
    scale = {"type": "log", "domain": [_MIN_RATE, 1], "clamp": True}
    ticks = {"grid": False, "values": [1e-4, 1e-3, 1e-2, 0.1, 1], "format": "~g"}
    colour = {"title": None, "scale": {"domain": names, "range": colours}}
    encoding = {
        "x": build_quantitative("fpr", scale=scale, title="false positives", axis=ticks),
        "y": build_quantitative("fnr", scale=scale, title="false negatives", axis=ticks),
        "order": build_quantitative("order"),
        "color": build_nominal("curve", **colour, legend={"orient": "top"}),
        "strokeDash": build_nominal("curve", legend=None, scale={"domain": names, "range": dashes}),
    }
    return build_layer(rows, "line", encoding, clip=True) | {
        "width": 280,
        "height": 220,
        "title": "Error rates, and the least that is claimed",
    }
