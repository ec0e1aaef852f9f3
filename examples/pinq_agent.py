"""Run an agent with a budget and three queries. The last query is refused.

    python examples/pinq_agent.py

After PINQ (McSherry 2009): a budget of 1 accepts 0.01 and 0.10, and refuses 1.00 with 0.89 left. No
party is asked the refused query, and it costs no budget.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import parley
from parley import col
from parley.client.data.schema import Schema
from parley.privacy.ledger.ledger_errors import BudgetExceeded

SCHEMA = Schema.from_toml(
    """
[columns]
age = { kind = "numeric", range = [0, 100] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)


def party(place: int) -> dict[str, np.ndarray]:
    """Generate the records of one of five hospitals."""
    rng = np.random.default_rng(place)
    return {"age": rng.integers(0, 101, 1000), "sick": rng.choice(["yes", "no"], 1000)}


def main() -> None:
    """Ask the queries, and print every answer."""
    with (
        tempfile.TemporaryDirectory() as folder,
        parley.Session(
            [party(place) for place in range(5)],
            schema=SCHEMA,
            epsilon=1.0,
            out=Path(folder) / "session",
        ) as session,
    ):
        for epsilon in (0.01, 0.10, 1.00):
            try:
                print(session.where(col.age > 60).count(epsilon=epsilon))
            except BudgetExceeded as refused:
                print(f"refused: {refused}")
            print(f"left: {session.remaining:.2f}\n")


if __name__ == "__main__":
    main()
