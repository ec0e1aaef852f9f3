"""Sessions of queries under a seed: what they print, their page, and their answers as numbers.

`answers` is the vector: of every release the noisy integers, as the session's folder keeps them,
and every cell of its tables.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import tomli_w
from golden_text import Sections, call, text_of

import parley
from parley.analytics.short_answers import list_answer_lines

_SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 100] }
change = { kind = "numeric", range = [-30, 10] }
code = { kind = "numeric", range = [0, 127], outside = "refuse" }
first = { kind = "numeric", range = [0, 1] }
second = { kind = "numeric", range = [0, 1] }
sex = { kind = "categorical", categories = ["Female", "Male"], missing = "Male" }
ward = { kind = "categorical", categories = ["a", "b", "c"], missing = "a" }
patient = { kind = "ignore" }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
_PARTIES = 4

EVERY: tuple[dict[str, Any], ...] = (
    {"query": "count", "where": "age > 60 and not sex == 'Male'", "by": ["ward"]},
    {"query": "histogram", "column": "age", "edges": [0.0, 18.0, 65.0, 100.0]},
    {"query": "sum", "column": "change", "where": "age > 60"},
    {"query": "mean", "column": "age", "by": ["ward"]},
    {"query": "variance", "column": "change"},
    {"query": "quantiles", "column": "age", "quantiles": [0.25, 0.5], "step": 5.0},
    {"query": "marginals", "of": ["sex", "ward", "sick"]},
    {"query": "choose", "column": "ward"},
    {"query": "choose-best", "of": ["first", "second"]},
    {"query": "response", "column": "ward"},
    {"query": "kmeans-grid", "of": ["age", "change"], "clusters": 2, "grid": 8},
    {"query": "kmeans-step", "of": ["age", "change"], "centres": [0.5, 0.5, -0.5, 0.1]},
    {"query": "balance", "column": "age", "border": 60.5},
    {"query": "survival", "column": "code", "event": "sick", "occurred": "yes", "bins": 4},
    {
        "query": "correlations",
        "of": ["age", "change", "ward"],
        "regressions": ["change ~ age", "age ~ ."],
    },
)
"""One of every row of `QUERIES` but regression, which is asked by itself."""
_REGRESSION = {
    "query": "regression", "column": "sick", "occurred": "yes", "of": ["age", "ward"],
    "family": "logistic", "epsilon": 25.0,
}  # fmt: skip
_BATCH = tuple({**each, "batch": "together"} for each in EVERY[:5])
_CHOICES = (
    {**EVERY[5], "quantiles": [0.5], "law": "exponential"},
    {**EVERY[8], "law": "permute-and-flip"},
)

SESSIONS: dict[str, tuple[dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "statistics": ({}, EVERY[:7]),
    "choices-and-clusters": ({}, EVERY[7:]),
    "in-shares": (
        {"noise-point": "share", "neighbouring": "add-or-remove-one", "delta": 1e-6},
        tuple({**each, "law": "gaussian"} for each in EVERY if each["query"] != "response"),
    ),
    "regression": ({"delta": 1e-6}, (_REGRESSION,)),
    "batch": ({"sampling": True, "simultaneous": True, "delta": 1e-6}, _BATCH),
    "masked": (
        {"masked": True, "noise-point": "share", "corrupt": 0, "faults": "drop:0.25"},
        _BATCH,
    ),
    "persons": ({"unit": "person", "id": "patient", "records-per-id": 2}, EVERY[:4]),
    "of-parties": ({"unit": "party", "records-per-party": 100}, EVERY[:4]),
    "by-party": ({}, tuple({**each, "by": "party"} for each in (EVERY[1], EVERY[4]))),
    "trusted": ({}, _CHOICES),
}
"""Settings of a session and what it is asked, by name."""
_SETTINGS = {"data": "party-*.csv", "schema": "schema.toml", "epsilon": 30.0, "seed": 5}


def _rows(place: int) -> dict[str, Any]:
    rng, count = np.random.default_rng(place), 100 + place
    return {
        "age": rng.integers(0, 101, count),
        "change": rng.integers(-30, 11, count),
        "code": rng.choice([3, 100, 127], count),
        "first": rng.random(count).round(3),
        "second": rng.random(count).round(3) ** 2,
        "sex": rng.choice(["Female", "Male"], count),
        "ward": rng.choice(["a", "b", "c"], count, p=[0.6, 0.3, 0.1]),
        "patient": [f"p{k}" for k in rng.integers(0, 40, count)],
        "sick": rng.choice(["yes", "no"], count),
    }


def asked_in(folder: Path, name: str) -> Path:
    """A file of queries with its parties' records beside it."""
    settings, queries = SESSIONS[name]
    (folder / "schema.toml").write_text(_SCHEMA)
    for place in range(_PARTIES):
        pl.DataFrame(_rows(place)).write_csv(folder / f"party-{place}.csv")
    paid = [
        each if each.get("batch") and at else {"epsilon": 1.0, **each}
        for at, each in enumerate(queries)
    ]
    file = folder / "queries.toml"
    file.write_text(tomli_w.dumps({"session": _SETTINGS | settings, "query": paid}))
    return file


def session(name: str, folder: Path) -> Sections:
    """A file of queries as it is planned and answered."""
    file, out = asked_in(folder, name), folder / "session"
    return {
        "plan": call("query", file, "--plan"),
        "terminal": call("query", "-v", file, "--out", out),
        "terminal in short": in_short(out, folder),
        "page": text_of(out / "report.html"),
        "answers": answers(out, folder),
    }


def in_short(out: Path, folder: Path) -> str:
    """What `parley query` prints without -v."""
    with parley.Session(str(folder / "party-*.csv"), resume=out) as again:
        return "\n".join(list_answer_lines([each.to_json() for each in again.answers], out))


def answers(out: Path, folder: Path) -> str:
    """Every release's noisy integers, then every answer's table."""
    lines = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    with parley.Session(str(folder / "party-*.csv"), resume=out) as again:
        told = [each.to_json() for each in again.answers]
    return "\n".join(
        [f"{line['number']} noisy {json.dumps(line['noisy'])}" for line in lines]
        + [f"{each['index']} {each['title']} {json.dumps(each['table'])}" for each in told]
    )


def composed(folder: Path) -> Sections:
    """What takes several releases: SQL, a partition, Lloyd's steps, a search, a log."""
    asked_in(folder, "statistics")
    out, files, schema = folder / "session", str(folder / "party-*.csv"), folder / "schema.toml"
    with parley.Session(files, schema=schema, epsilon=30, seed=5, out=out) as s:
        cells = s.partition("ward", epsilon=2)
        said = [
            s.sql("SELECT sex, COUNT(*) AS n, AVG(age) FROM ward GROUP BY sex", epsilon=1),
            *(cell.where(parley.col.age > 50).count(epsilon=0.5) for cell in cells),
            *s.lloyd(["age", "change"], clusters=2, rounds=2, epsilon=2),
            s.find_quantile("age", 0.5, step=1, epsilon=2),
            s.search_log(["sex", "ward"], epsilon=2, seed=1),
        ]
        page = text_of(s.report())
    return {
        "terminal": "\n\n".join(map(str, said)),
        "page": page,
        "answers": answers(out, folder),
    }
