"""Random valid jobs and batches of queries, audited for so long: what the hunt's tests draw from.

    OMP_NUM_THREADS=1 python benchmarks/audit_hunt.py SECONDS FILE [KIND...]

Kinds: network, linear, tables, queries. A line of FILE for each that was drawn, with what came of
it: `audited`, or why not (no valid job).
Ends with status 1 at the first that is refuted.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/simulations/audit"))
sys.path.insert(0, str(Path(__file__).parent / "audit_matrix"))

import test_hunt as hunt

TRIALS = {"network": 150, "linear": 5_000, "tables": 2_000, "queries": 5_000}


def drawn(kind: str) -> st.SearchStrategy[dict[str, object]]:
    if kind == "queries":
        return st.fixed_dictionaries(hunt.ASKED)
    jobs = {
        "linear": hunt.LINEAR,
        "network": hunt.NETWORK,
        "tables": st.one_of(hunt.TABLES, hunt.COUNTED),
    }
    return st.fixed_dictionaries({"overrides": jobs[kind]})


def hunted(kind: str, ends: float, told: Callable[[str, str, float, object], None]) -> None:
    """Ten of a kind, or as many as the time allows."""
    how = hunt.check_queries if kind == "queries" else hunt.check

    @settings(
        max_examples=10,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(terms=drawn(kind))
    def ten(terms: dict[str, object]) -> None:
        began, came = time.time(), "refuted"
        if began > ends:
            return
        try:
            came = how(trials=TRIALS[kind], **terms)
        finally:
            told(kind, came, time.time() - began, terms)

    ten()


def main() -> None:
    ends, file, kinds = time.time() + float(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    counts: Counter[str] = Counter()

    def told(kind: str, came: str, seconds: float, terms: object) -> None:
        counts[f"{kind}: {came}"] += 1
        line = {"kind": kind, "came": came, "seconds": seconds, "terms": repr(terms)}
        with file.open("a") as out:
            out.write(json.dumps(line, allow_nan=False) + "\n")

    for kind in cycle(kinds or TRIALS):
        if time.time() > ends:
            break
        hunted(kind, ends, told)
    print(json.dumps(dict(counts), allow_nan=False))


if __name__ == "__main__":
    main()
