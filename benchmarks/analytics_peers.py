"""Compute the same statistics with diffprivlib, OpenDP and Tumult Analytics, each in its
environment.

`errors_of` runs one of them on the records of `benchmarks/analytics.py`. diffprivlib's ε is
replace-one for means and quantiles, and add-or-remove-one for histograms. OpenDP's is replace-one
for the mean, otherwise add-or-remove-one. All of Tumult's are add-or-remove-one. Tumult takes
seconds per query and minutes for many records. So it runs once on a few copies of the records,
grouped by copy, with independent noise for each.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Any

DIFFPRIVLIB = """
import json, sys, warnings
import diffprivlib
import numpy as np
warnings.filterwarnings("ignore")
from diffprivlib import tools
given = json.load(sys.stdin)
ages, weights = np.array(given["age"], float), np.array(given["fnlwgt"], float)
hours, codes = np.array(given["hours"], float), np.array(given["education"])
hours = hours[ages > 60]
ordered, n = np.sort(weights), len(weights)
rank = lambda v, q: abs(np.searchsorted(ordered, v) - q * n)
tenths = [k / 10 for k in range(1, 10)]
out = {}
for eps in given["epsilons"]:
    found = {name: [] for name in ("median fnlwgt, rank error, replace-one",
        "median age, value error", "education histogram, RMS a cell, add-or-remove-one",
        "mean age, RMSE", "mean hours, the 1,806 records chosen beforehand, RMSE",
        "nine deciles of fnlwgt, rank error, δ = 0")}
    for r in range(given["seeds"]):
        known = dict(epsilon=eps, random_state=r)
        v = tools.median(weights, bounds=(0, 1500000), **known)
        h, _ = tools.histogram(codes, bins=16, range=(-.5, 15.5), **known)
        vs = tools.quantile(weights, tenths, bounds=(0, 1500000), **known)
        errors = (
            rank(v, .5),
            abs(tools.median(ages, bounds=(17, 90), **known) - np.median(ages)),
            np.mean((h - np.bincount(codes, minlength=16)) ** 2),
            (tools.mean(ages, bounds=(17, 90), **known) - ages.mean()) ** 2,
            (tools.mean(hours, bounds=(1, 99), **known) - hours.mean()) ** 2,
            np.mean([rank(v, q) for v, q in zip(vs, tenths)]),
        )
        for name, error in zip(found, errors):
            found[name].append(float(error))
    out[str(eps)] = found
json.dump({"version": diffprivlib.__version__, "errors": out}, sys.stdout)
"""

OPENDP = """
import importlib.metadata, json, sys
import numpy as np
import opendp.prelude as dp
dp.enable_features("contrib", "honest-but-curious")
given = json.load(sys.stdin)
weights, ages, codes = [float(x) for x in given["fnlwgt"]], given["age"], given["education"]
n, step, near = len(weights), given["step"], dp.symmetric_distance()
# A record counts at the nearest value of the grid, as with us.
snapped = [np.floor(x / step + .5) * step for x in weights]
ordered, truth = np.sort(snapped), np.bincount(codes, minlength=16)
grid = [k * step for k in range(16384)]
def rank(v):
    first, last = (np.searchsorted(ordered, v + off * step) for off in (-.5, .5))
    return max(0.0, first - n / 2, n / 2 - last)
floats = dp.vector_domain(dp.atom_domain(T=float, nan=False)), near
sized = dp.vector_domain(dp.atom_domain(T=float, nan=False, bounds=(17.0, 90.0)), size=n), near
whole = dp.vector_domain(dp.atom_domain(T=int)), near
counts = dp.t.then_count_by_categories(categories=list(range(16)), null_category=False)
years, middle = [float(k) for k in range(17, 91)], float(np.median(ages))
out = {}
for eps in given["epsilons"]:
    found = lambda make, moved: dp.binary_search_chain(make, moved, eps)
    quantile = lambda values: found(lambda s: floats >> dp.m.then_private_quantile(
        dp.max_divergence(), candidates=values, alpha=.5, scale=s), 1)
    median, old = quantile(grid), quantile(years)
    mean = found(lambda s: sized >> dp.t.then_mean() >> dp.m.then_laplace(s), 2)
    table = found(lambda s: whole >> counts >> dp.m.then_laplace(s), 1)
    turns = range(given["seeds"])
    out[str(eps)] = {
        "median fnlwgt, rank error, add-or-remove-one": [rank(median(snapped)) for _ in turns],
        "median age, value error": [abs(old(ages) - middle) for _ in turns],
        "education histogram, RMS a cell, add-or-remove-one": [
            float(np.mean((np.array(table(codes)) - truth) ** 2)) for _ in turns],
        "mean age, RMSE": [(mean(ages) - float(np.mean(ages))) ** 2 for _ in turns],
    }
json.dump({"version": importlib.metadata.version("opendp"), "errors": out}, sys.stdout)
"""

TUMULT = """
import importlib.metadata, json, sys, warnings
warnings.filterwarnings("ignore")
import numpy as np
import pandas as pd
from pyspark.sql import SparkSession
from tmlt.analytics import AddOneRow, KeySet, PureDPBudget, QueryBuilder, Session
given = json.load(sys.stdin)
spark = (SparkSession.builder.config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "4g")
    .config("spark.sql.shuffle.partitions", "2").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
table = pd.DataFrame({name: np.array(given[name], float) for name in ("age", "hours", "fnlwgt")})
table["education"] = given["education"]
ordered, n = np.sort(table.fnlwgt.to_numpy()), len(table)
truth = np.bincount(table.education, minlength=16)
copies = spark.range(given["seeds"]).withColumnRenamed("id", "copy")
session = Session.from_dataframe(privacy_budget=PureDPBudget(float("inf")), source_id="adult",
    dataframe=spark.createDataFrame(table).crossJoin(copies), protected_change=AddOneRow())
each = {"copy": list(range(given["seeds"]))}
alone = QueryBuilder("adult").groupby(KeySet.from_dict(each))
cells = KeySet.from_dict({**each, "education": list(range(16))})
out = {}
for eps in given["epsilons"]:
    asked = lambda query: session.evaluate(query, privacy_budget=PureDPBudget(eps)).toPandas()
    middle = asked(alone.median("fnlwgt", 0, 1500000, name="x")).x
    years = asked(alone.median("age", 17, 90, name="x")).x
    found = asked(QueryBuilder("adult").groupby(cells).count(name="x"))
    squares = (found.x - truth[found.education]) ** 2
    mean = asked(alone.average("age", 17, 90, name="x")).x
    old = asked(QueryBuilder("adult").filter("age > 60").groupby(KeySet.from_dict(each))
        .average("hours", 1, 99, name="x")).x
    out[str(eps)] = {
        "median fnlwgt, rank error, add-or-remove-one":
            [float(abs(np.searchsorted(ordered, v) - n / 2)) for v in middle],
        "median age, value error": [float(abs(v - np.median(table.age))) for v in years],
        "education histogram, RMS a cell, add-or-remove-one":
            squares.groupby(found["copy"]).mean().tolist(),
        "mean age, RMSE, add-or-remove-one": ((mean - table.age.mean()) ** 2).tolist(),
        "mean hours where age > 60, RMSE, add-or-remove-one":
            ((old - table.hours[table.age > 60].mean()) ** 2).tolist(),
    }
version = importlib.metadata.version("tmlt.analytics")
json.dump({"version": version, "errors": out}, sys.stdout)
"""
PEERS = {
    "diffprivlib": (DIFFPRIVLIB, "peer", 5),
    "OpenDP": (OPENDP, "opendp", 5),
    "Tumult Analytics": (TUMULT, "tumult", 0.1),
}
"""Name → script, the option for its Python, and the number of seeds per given seed."""


def errors_of(
    name: str, python: str, given: Mapping[str, Any], seeds: int
) -> tuple[str, dict[str, dict[float, list[float]]]]:
    """Return a peer's version, and figure → ε → the error of every seed."""
    script, _, times = PEERS[name]
    with tempfile.TemporaryDirectory() as folder:  # Spark leaves tables in its working folder
        told = subprocess.run(
            [python, "-c", script],
            input=json.dumps({**given, "seeds": max(2, round(seeds * times))}, allow_nan=False),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd=folder,
            env={**os.environ, "PYSPARK_PYTHON": python},
        ).stdout
    found = json.loads(told)
    by_epsilon = {float(epsilon): errors for epsilon, errors in found["errors"].items()}
    figures = next(iter(by_epsilon.values()))
    return found["version"], {
        figure: {epsilon: errors[figure] for epsilon, errors in by_epsilon.items()}
        for figure in figures
    }
