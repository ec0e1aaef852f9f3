"""The figure of public features: MNIST accuracy by ε, from lines of two benchmarks.

    python benchmarks/accuracy_by_epsilon.py docs/accuracy-by-epsilon.svg

Softmax on scattering coefficients among ten parties is benchmarks/features.jsonl (last iterates,
noise in shares, add-or-remove-one); the network learned together benchmarks/distributed.jsonl;
one owner and DP-SGD inside each of ten parties are the documented runs of
examples/mnist-dpsgd.toml. A point is the mean of its runs, a bar from the least to the greatest.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import altair as alt
from features import BUDGETS
from noise_points import OWNER, PARTY

HERE = Path(__file__).resolve().parent

_GREY = "#808890"
_COLOURS = {
    "scattering and softmax, ten parties": "#2f9e6e",
    "network, one owner": "#8a8f98",
    "network, learned together by ten or a hundred": "#3b82c4",
    "network, DP-SGD in each of ten": "#c8553d",
}


def lines(name: str) -> list[dict[str, Any]]:
    """Of one of the files beside this script."""
    return [json.loads(text) for text in (HERE / name).read_text(encoding="utf-8").splitlines()]


def rows() -> list[dict[str, Any]]:
    """A row a point."""
    scattering, own, together, inside = _COLOURS
    runs: dict[tuple[str, float], list[float]] = defaultdict(list)
    for line in lines("features.jsonl"):
        asked = (line["parties"], line["noise_point"], line["average"], line["neighbouring"])
        steps = BUDGETS.get((line["neighbouring"], line["epsilon"]))
        if asked == (10, "share", False, "add-or-remove-one") and steps == (
            line["rounds"],
            line["rate"],
        ):
            runs[scattering, line["epsilon"]].append(100 * line["accuracy"])
    for line in lines("distributed.jsonl"):
        if line["noise_point"] == "share":
            runs[together, line["epsilon"]].append(100 * line["accuracy"])
    runs |= {(own, epsilon): [value] for epsilon, value in OWNER.items()}
    runs |= {(inside, epsilon): [value] for epsilon, value in PARTY.items()}
    return [
        {
            "who": who,
            "epsilon": epsilon,
            "accuracy": sum(found) / len(found),
            "least": min(found),
            "greatest": max(found),
        }
        for (who, epsilon), found in sorted(runs.items())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    names = list(_COLOURS)
    base = alt.Chart(alt.Data(values=rows())).encode(
        x=alt.X("epsilon:Q", title="ε, one record, add or remove, δ = 1e-5",
                scale=alt.Scale(type="log", domain=[0.4, 10]),
                axis=alt.Axis(values=[0.5, 1, 2, 3, 4, 8])),
        color=alt.Color("who:N", sort=names, title=None,
                        scale=alt.Scale(domain=names, range=list(_COLOURS.values()))),
    )  # fmt: skip
    path = base.mark_line(strokeWidth=2).encode(
        y=alt.Y("accuracy:Q", title="accuracy on test images, %", scale=alt.Scale(zero=False))
    )
    span = base.mark_rule(strokeWidth=2).encode(y="least:Q", y2="greatest:Q")
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(y="accuracy:Q")
    chart = (
        (path + span + dots)
        .properties(width=460, height=280, background="transparent")
        .configure_view(stroke=None)
        .configure_axis(labelColor=_GREY, titleColor=_GREY, gridColor=_GREY, gridOpacity=0.25,
                        domainColor=_GREY, tickColor=_GREY)
        .configure_legend(labelColor=_GREY, orient="bottom", columns=1, labelLimit=360)
    )  # fmt: skip
    chart.save(parser.parse_args().out)


if __name__ == "__main__":
    main()
