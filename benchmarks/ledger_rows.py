"""Measure the time and memory a ledger needs to recognise the rows of a table.

    python benchmarks/ledger_rows.py [--rows 10000000] [--columns 10] [--blocks 12]

It registers a table, then one with an additional row under another name, then the same again. Then
it verifies the ledger. Rows are digested as when a table is read; reading itself is excluded. Ten
million rows take about a minute.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from parley.client.data.multiset_digest import ContentDigest, digest_rows, sum_contents
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.ledger.ledger import Ledger

T = TypeVar("T")

_PIECE = 1 << 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--blocks", type=int, default=0)
    asked = parser.parse_args()
    contents = _timed("rows digested", partial(_digested, asked.rows, asked.columns))
    if asked.blocks:  # a random block per row
        contents.digests[:, 2] = np.random.default_rng(1).integers(1, asked.blocks + 1, asked.rows)
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "ledger.sqlite"
        with Ledger.open(path) as ledger:
            _timed("registered", partial(ledger.register, _budget("table", contents)))
            more = [contents, digest_rows(np.ones((1, asked.columns)), np.zeros(1))]
            grown = _budget("other", sum_contents(more) or contents)
            del contents, more
            (known,) = _timed("known again, a row more", partial(ledger.register, grown))
            if known.name != "table":
                raise SystemExit(f"Expected the account of the table, got {known.name}.")
            _timed("registered again, unchanged", partial(ledger.register, grown))
            _timed("verified", ledger.check)
        print(f"ledger: {path.stat().st_size / 2**20:.0f} MiB")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the process: {peak:.0f} MiB")


def _digested(rows: int, columns: int) -> ContentDigest:
    """Return the digest of random rows, generated in pieces."""
    rng, parts = np.random.default_rng(0), []
    for begin in range(0, rows, _PIECE):
        piece = rng.normal(size=(min(_PIECE, rows - begin), columns))
        parts.append(digest_rows(piece, np.zeros(len(piece))))
    return sum_contents(parts) or parts[0]


def _budget(name: str, contents: ContentDigest) -> DatasetBudget:
    budget = DatasetBudget(
        name=name,
        fingerprint=f"file of {contents.rows} rows",
        unit=Unit.RECORD,
        neighbouring=Neighbouring.REPLACE_ONE,
        epsilon=1.0,
        delta=1e-6,
        contents=str(contents),
    )
    return replace(budget, rows=contents.digests)


def _timed(what: str, step: Callable[[], T]) -> T:
    begun, cpu = time.perf_counter(), time.process_time()
    result = step()
    print(f"{what}: {time.perf_counter() - begun:.1f} s ({time.process_time() - cpu:.1f} s of CPU)")
    return result


if __name__ == "__main__":
    main()
