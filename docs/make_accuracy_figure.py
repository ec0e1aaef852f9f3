"""Draw the README's figure, accuracy against ε, from docs/accuracy-tables.csv.

    python docs/make_accuracy_figure.py

Ten parties of Parley are shown next to systems for one owner of all records, on three tables. A
point is a mean over ten splits, a bar its 95 % interval. docs/benchmarks-accuracy.md
describes systems and settings. Colours and greys have contrast on light and on dark pages.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import altair as alt

DOCS = Path(__file__).resolve().parent
SYSTEMS = {
    "Parley, m = 10": ("Parley, ten parties", "#2f9e6e"),
    "DP-EBM": ("DP-EBM, one owner", "#3b82c4"),
    "DP-SGD": ("DP-SGD (Opacus), one owner", "#c8553d"),
    "logistic": ("logistic regression, one owner, not private", "#8a8f98"),
}
"""Column of the file → name in the legend, and colour. The last is not private."""

TABLES = {
    "Adult": "Adult (30,162 records)",
    "breast cancer": "Breast cancer (569 records)",
    "digits": "Digits (1,797 records)",
}
_GREY = "#808890"


def load_points(rows: Iterable[Mapping[str, str]]) -> list[dict[str, str | float]]:
    """Return one point per table, ε and system: mean and the ends of its interval.

    Raises:
        ValueError: a table of `TABLES` has no row.
    """
    points: list[dict[str, str | float]] = []
    for row in rows:
        if row["table"] not in TABLES:
            continue
        for column, (name, _) in SYSTEMS.items():
            if found := re.fullmatch(r"(\d?\.\d+) ± (\d?\.\d+)", row[column]):
                mean, half = map(float, found.groups())
                points.append(
                    {
                        "table": row["table"],
                        "epsilon": float(row["ε"]),
                        "system": name,
                        "mean": mean,
                        "low": mean - half,
                        "high": mean + half,
                    }
                )
    if missing := set(TABLES) - {str(point["table"]) for point in points}:
        raise ValueError(f"Expected rows of {', '.join(sorted(missing))}; found none.")
    return points


def draw_panel(points: list[dict[str, str | float]], table: str) -> alt.LayerChart:
    """Return one table's chart: points joined by lines, with bars for the intervals."""
    *private, (reference, grey) = SYSTEMS.values()
    names = [name for name, _ in private]
    data = alt.Data(values=[point for point in points if point["table"] == table])
    base = alt.Chart(data).encode(
        x=alt.X("epsilon:Q", title="ε", scale=alt.Scale(type="log", domain=[0.08, 10]),
                axis=alt.Axis(values=[0.1, 0.5, 1, 2, 8])),
    )  # fmt: skip
    title = "area under the ROC curve" if table == next(iter(TABLES)) else None
    y = alt.Y("low:Q", title=title, scale=alt.Scale(zero=False))
    marks = base.transform_filter(alt.datum.system != reference).encode(
        color=alt.Color("system:N", sort=names, title=None,
                        scale=alt.Scale(domain=names, range=[colour for _, colour in private])),
    )  # fmt: skip
    chart = marks.mark_rule(strokeWidth=2).encode(y=y, y2="high:Q")
    chart += marks.mark_point(filled=True, size=50, opacity=1).encode(y="mean:Q")
    chart += marks.mark_line(strokeWidth=2).encode(y="mean:Q")
    # Its own legend shows it as it is drawn: dashed, without points.
    legend = alt.Legend(symbolSize=300)
    chart += base.transform_filter(alt.datum.system == reference).mark_line(
        strokeWidth=2, color=grey
    ).encode(
        y="mean:Q",
        strokeDash=alt.StrokeDash("system:N", title=None, legend=legend,
                                  scale=alt.Scale(domain=[reference], range=[[4, 3]])),
    )  # fmt: skip
    return chart.properties(width=220, height=220, title=TABLES[table])


def main() -> None:
    """Write `docs/accuracy-epsilon-tables.svg`."""
    with (DOCS / "accuracy-tables.csv").open(encoding="utf-8", newline="") as file:
        points = load_points(csv.DictReader(file))
    chart = (
        alt.hconcat(*(draw_panel(points, table) for table in TABLES), spacing=16)
        .properties(background="transparent")
        .configure_view(stroke=None)
        .configure_title(color=_GREY, fontSize=12, fontWeight="normal")
        .configure_axis(labelColor=_GREY, titleColor=_GREY, gridColor=_GREY, gridOpacity=0.25,
                        domainColor=_GREY, tickColor=_GREY)
        .configure_legend(labelColor=_GREY, orient="bottom", columns=2, labelLimit=360)
    )  # fmt: skip
    chart.save(DOCS / "accuracy-epsilon-tables.svg")


if __name__ == "__main__":
    main()
