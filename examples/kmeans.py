"""Run k-means with differential privacy in two ways: as published, and from one histogram.

    python examples/kmeans.py [PICTURE.png]

The data are 20,000 points in [−1, 1]²: three clusters of 30 % far apart, and two of 5 % near each
other. As published, Lloyd's ten rounds take ε/10 each, half of it for counts and half for sums.
Their noise is as large as the small clusters. One histogram of all points costs ε once, and k-means
on its noisy counts is free. ε = 0.5, with unit record and add-or-remove-one, against everyone who
sees the answers.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import vl_convert

import parley
from parley.client.data.schema import Schema
from parley.presentation.vega_lite import build_layer, build_quantitative

FAR = np.array([[-0.6, -0.6], [0.65, -0.55], [0.0, 0.7]])
NEAR = np.array([[-0.75, 0.35], [-0.75, 0.77]])
CENTRES = np.concatenate([FAR, NEAR])
EPSILON, ROUNDS = 0.5, 10
CROSS = {"shape": "cross", "size": 140, "color": "#14948c", "strokeWidth": 2}
TITLES = {"as printed": 'lloyd(noise="as-printed")', "grid": "kmeans"}
GREY = "#7d868d"
LOOK = {
    "background": None,
    "title": {"color": GREY},
    "view": {"stroke": GREY, "strokeOpacity": 0.4},
    "axis": {
        "gridColor": GREY,
        "gridOpacity": 0.2,
        "labelColor": GREY,
        "tickColor": GREY,
        "titleColor": GREY,
    },
}
"""Colours that are legible on white and on black."""
SCHEMA = Schema.from_toml(
    """
[columns]
x = { kind = "numeric", range = [-1, 1] }
y = { kind = "numeric", range = [-1, 1] }
label = { kind = "label", classes = [0, 1] }
"""
)


def points(records: int = 20_000) -> pl.DataFrame:
    """Return three clusters of 30 % and two of 5 % at distance 0.42, always the same points."""
    rng = np.random.default_rng(1)
    sizes = (np.array([0.3, 0.3, 0.3, 0.05, 0.05]) * records).astype(int)
    places = np.repeat(CENTRES, sizes, axis=0)
    drawn = np.clip(places + rng.normal(0, 0.08, places.shape), -1, 1)
    rng.shuffle(drawn)
    return pl.DataFrame({"x": drawn[:, 0], "y": drawn[:, 1], "label": np.zeros(len(drawn), int)})


def private_centres(data: pl.DataFrame, method: str, seed: int) -> np.ndarray:
    """Return `[5, 2]` centres by either method. The noise is seeded for repeatability, so it gives
    no protection.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        parley.Session(
            data,
            schema=SCHEMA,
            parties=10,
            epsilon=EPSILON,
            neighbouring="add-or-remove-one",
            seed=seed,
            out=f"{folder}/session",
        ) as session,
    ):
        if method == "grid":
            answer = session.kmeans(["x", "y"], clusters=5, epsilon=EPSILON)
        else:
            start = np.clip(CENTRES + np.random.default_rng(seed).normal(0, 0.1, (5, 2)), -1, 1)
            answer = session.lloyd(
                ["x", "y"],
                centres=start.tolist(),
                rounds=ROUNDS,
                noise="as-printed",
                epsilon=EPSILON,
            )[-1]
        return np.stack([np.asarray(answer.table[name]) for name in ("x", "y")], axis=1)


def inertia(data: pl.DataFrame, centres: np.ndarray) -> float:
    """Return the records' mean squared distance to the nearest centre (simulation only)."""
    gaps = data.select("x", "y").to_numpy()[:, None] - centres
    return float(np.square(gaps).sum(axis=2).min(axis=1).mean())


def found(centres: np.ndarray, truth: np.ndarray) -> bool:
    """Return whether each of these clusters has its own centre, within 0.15."""
    gaps = np.linalg.norm(truth[:, None] - centres, axis=2)
    nearest = gaps.argmin(axis=1)
    return bool((gaps.min(axis=1) < 0.15).all() and len(set(nearest.tolist())) == len(truth))


def picture(data: pl.DataFrame, results: dict[str, list[np.ndarray]], out: Path) -> None:
    """Draw a panel per method: points in grey, every run's centres in colour, the truth as
    crosses.
    """
    look = {"scale": {"domain": [-1, 1]}, "axis": {"values": [-1, -0.5, 0, 0.5, 1]}}
    axes = {each: build_quantitative(each, **look) for each in ("x", "y")}
    cloud = data.sample(4000, seed=1).to_dicts()
    truth = [dict(zip("xy", centre, strict=True)) for centre in CENTRES.tolist()]
    panels = []
    for method, runs in results.items():
        centres = [dict(zip("xy", each, strict=True)) for each in np.concatenate(runs).tolist()]
        panels.append(
            {
                "layer": [
                    build_layer(cloud, "circle", axes, size=6, opacity=0.3, color="#8a949c"),
                    build_layer(centres, "circle", axes, size=60, opacity=0.7, color="#cc6a30"),
                    build_layer(truth, "point", axes, **CROSS),
                ],
                "width": 340,
                "height": 340,
                "title": f"{TITLES[method]}: centres of {len(runs)} runs, ε = {EPSILON}",
            }
        )
    out.write_bytes(vl_convert.vegalite_to_png({"hconcat": panels, "config": LOOK}, scale=2))


def main(out: Path | None = None, *, runs: int = 20) -> dict[str, tuple[int, int, float]]:
    """Return, per method, the number of runs that find the far and the near clusters, and mean
    inertia.
    """
    data = points()
    results = {
        method: [private_centres(data, method, seed) for seed in range(1, runs + 1)]
        for method in ("as printed", "grid")
    }
    if out is not None:
        picture(data, results, out)
    return {
        method: (
            sum(found(centres, FAR) for centres in each),
            sum(found(centres, NEAR) for centres in each),
            float(np.mean([inertia(data, centres) for centres in each])),
        )
        for method, each in results.items()
    }


if __name__ == "__main__":
    figures = main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    for name, (far, near, mean) in figures.items():
        print(f"{name}: far clusters in {far} of 20 runs, near ones in {near}; inertia {mean:.4f}")
    print(f"non-private centres: inertia {inertia(points(), CENTRES):.4f}")
