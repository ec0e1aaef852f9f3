"""Draw the two figures of MNIST's accuracy by ε, from the stored lines of other benchmarks.

    python benchmarks/mnist_figures.py noise-points docs/noise-points.svg
    python benchmarks/mnist_figures.py features docs/accuracy-by-epsilon.svg

`noise-points` compares noise points, from distributed.jsonl (distributed_dp_sgd.py). `features`
adds softmax on scattering coefficients among ten parties, from features.jsonl (features.py: last
iterates, noise in shares, add-or-remove-one). One owner is one party with its server's noise.
DP-SGD inside each of ten parties is from the documented runs of examples/mnist-dpsgd.toml. A point
is the mean of its runs; a bar spans the minimum and the maximum. Colours and greys have enough
contrast on light and on dark pages.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import altair as alt
from features import BUDGETS
from kept_lines import lines_of

HERE = Path(__file__).resolve().parent
Runs = dict[tuple[str, float], list[float]]

PARTY = {0.5: 86.15, 2.0: 92.27, 8.0: 93.98}
"""ε → accuracy in %, docs/benchmarks-dp-sgd.md: ten parties, one seed."""

_GREY = "#808890"
_POINTS = {
    "one owner of all records": "#8a8f98",
    "server (trusted), 10 parties": "#b8860b",
    "share, 10 parties": "#2f9e6e",
    "share, 100 parties": "#3b82c4",
    "party: DP-SGD in each of 10": "#c8553d",
}
_FEATURES = {
    "scattering and softmax, ten parties": "#2f9e6e",
    "network, one owner": "#8a8f98",
    "network, learned together by ten or a hundred": "#3b82c4",
    "network, DP-SGD in each of ten": "#c8553d",
}


def by_noise_point() -> Runs:
    """Return accuracies in %, by the name of a run and its ε."""
    runs: Runs = defaultdict(list)
    owner, trusted, *_, inside = _POINTS
    for line in lines_of("distributed.jsonl"):
        name = owner if line["parties"] == 1 else f"share, {line['parties']} parties"
        name = trusted if line["noise_point"] == "server" and line["parties"] == 10 else name
        runs[name, line["epsilon"]].append(100 * line["accuracy"])
    return runs | {(inside, epsilon): [own] for epsilon, own in PARTY.items()}


def by_features() -> Runs:
    """Return the accuracies of the other figure."""
    runs: Runs = defaultdict(list)
    scattering, owner, together, inside = _FEATURES
    for line in lines_of("features.jsonl"):
        asked = (line["parties"], line["noise_point"], line["average"], line["neighbouring"])
        steps = BUDGETS.get((line["neighbouring"], line["epsilon"]))
        if asked == (10, "share", False, "add-or-remove-one") and steps == (
            line["rounds"],
            line["rate"],
        ):
            runs[scattering, line["epsilon"]].append(100 * line["accuracy"])
    for line in lines_of("distributed.jsonl"):
        if line["parties"] == 1 or line["noise_point"] == "share":
            name = owner if line["parties"] == 1 else together
            runs[name, line["epsilon"]].append(100 * line["accuracy"])
    return runs | {(inside, epsilon): [own] for epsilon, own in PARTY.items()}


def drawn(runs: Runs, colours: dict[str, str], x: dict[str, Any], *, path: bool) -> alt.Chart:
    """Draw points with bars; `path` joins the points of a colour."""
    rows = [
        {
            "who": who,
            "epsilon": epsilon,
            "accuracy": sum(found) / len(found),
            "least": min(found),
            "greatest": max(found),
        }
        for (who, epsilon), found in sorted(runs.items())
        if who in colours
    ]
    names, y = list(colours), alt.Scale(zero=False)
    base = alt.Chart(alt.Data(values=rows)).encode(
        **x,
        color=alt.Color("who:N", sort=names, title=None,
                        scale=alt.Scale(domain=names, range=list(colours.values()))),
    )  # fmt: skip
    axis = alt.Y("least:Q", title="accuracy on test images, %", scale=y)
    chart = base.mark_rule(strokeWidth=2).encode(y=axis, y2="greatest:Q")
    chart += base.mark_point(filled=True, size=80, opacity=1).encode(y="accuracy:Q")
    if path:
        chart += base.mark_line(strokeWidth=2).encode(y="accuracy:Q")
    return (
        chart.properties(width=460, height=280, background="transparent")
        .configure_view(stroke=None)
        .configure_axis(labelColor=_GREY, titleColor=_GREY, gridColor=_GREY, gridOpacity=0.25,
                        domainColor=_GREY, tickColor=_GREY)
        .configure_legend(labelColor=_GREY, orient="bottom", columns=1, labelLimit=360)
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["noise-points", "features"])
    parser.add_argument("out", type=Path)
    asked = parser.parse_args()
    title = "ε, one record, add or remove, δ = 1e-5"
    if asked.what == "features":
        scale = alt.Scale(type="log", domain=[0.4, 10])
        axis = alt.Axis(values=[0.5, 1, 2, 3, 4, 8])
        x = {"x": alt.X("epsilon:Q", title=title, scale=scale, axis=axis)}
        chart = drawn(by_features(), _FEATURES, x, path=True)
    else:
        x = {
            "x": alt.X("epsilon:O", title=title, axis=alt.Axis(labelAngle=0)),
            "xOffset": alt.XOffset("who:N", sort=list(_POINTS)),
        }
        chart = drawn(by_noise_point(), _POINTS, x, path=False)
    chart.save(asked.out)


if __name__ == "__main__":
    main()
