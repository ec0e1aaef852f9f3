"""The figure that compares noise points: MNIST accuracy by ε, from lines of distributed_dp_sgd.py.

    python benchmarks/noise_points.py distributed.jsonl docs/noise-points.svg

Lines of JSON say parties, epsilon, noise_point and accuracy of a run; a point is the mean of its
runs, a bar reaches from the least to the greatest. One owner is one party, whose noise is its
server's; DP-SGD inside each party (noise point `party`) are the documented runs of
examples/mnist-dpsgd.toml. Colours and greys
have contrast on light and on dark pages.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import altair as alt

PARTY = {0.5: 86.15, 2.0: 92.27, 8.0: 93.98}
"""ε → accuracy in %, docs/benchmarks-dp-sgd.md: ten parties, one seed."""
_OWNER = "one owner of all records"

_GREY = "#808890"
_COLOURS = {
    _OWNER: "#8a8f98",
    "server (trusted), 10 parties": "#b8860b",
    "share, 10 parties": "#2f9e6e",
    "share, 100 parties": "#3b82c4",
    "party: DP-SGD in each of 10": "#c8553d",
}


def rows(lines: list[dict[str, float]]) -> list[dict[str, float | str]]:
    """A row a point: mean, least and greatest."""
    runs: dict[tuple[str, float], list[float]] = defaultdict(list)
    for line in lines:
        point = "server (trusted)" if line["noise_point"] == "server" else line["noise_point"]
        name = _OWNER if line["parties"] == 1 else f"{point}, {line['parties']} parties"
        runs[name, line["epsilon"]].append(100 * line["accuracy"])
    runs |= {("party: DP-SGD in each of 10", epsilon): [own] for epsilon, own in PARTY.items()}
    return [
        {
            "noise point": name,
            "epsilon": f"{epsilon:g}",
            "accuracy": sum(found) / len(found),
            "least": min(found),
            "greatest": max(found),
        }
        for (name, epsilon), found in sorted(runs.items())
        if name in _COLOURS
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lines", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    lines = [json.loads(text) for text in options.lines.read_text(encoding="utf-8").splitlines()]
    names = list(_COLOURS)
    base = alt.Chart(alt.Data(values=rows(lines))).encode(
        x=alt.X("epsilon:O", title="ε, one record, add or remove, δ = 1e-5", sort=["0.5", "2", "8"],
                axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("noise point:N", sort=names),
        color=alt.Color("noise point:N", sort=names, title=None,
                        scale=alt.Scale(domain=names, range=list(_COLOURS.values()))),
    )  # fmt: skip
    span = base.mark_rule(strokeWidth=2).encode(
        y=alt.Y("least:Q", title="accuracy on test images, %", scale=alt.Scale(zero=False)),
        y2="greatest:Q",
    )
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(y="accuracy:Q")
    chart = (
        (span + dots)
        .properties(width=460, height=280, background="transparent")
        .configure_view(stroke=None)
        .configure_axis(labelColor=_GREY, titleColor=_GREY, gridColor=_GREY, gridOpacity=0.25,
                        domainColor=_GREY, tickColor=_GREY)
        .configure_legend(labelColor=_GREY, orient="bottom", columns=2, labelLimit=260)
    )  # fmt: skip
    chart.save(options.out)


if __name__ == "__main__":
    main()
