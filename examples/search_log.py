"""Release a search log: as published, what that would need, and with an ε that holds.

    python examples/search_log.py

A log has c_ik clicks of user k on pair i (a query with a link), and c_i clicks of all users. The
published method (Hong, Vaidya, Lu & Wu 2012) chooses large output counts x, with x_i = 0 if one
user has all clicks of pair i, and

    Σ_i x_i·ln(c_i/(c_i − c_ik)) ≤ min(ε, ln 1/(1−δ))  for every user k.

Then x_i draws with probabilities c_ik/c_i choose which user clicked. The sum is the user's cost in
*that* output. But the bound, the optimum and the pairs that may be shown at all are computed from
the records: one more user makes outputs possible that were not. The whole method has **no**
differential privacy, at any ε. Parley does not offer it; it is only in this file.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, milp

import parley
from parley.client.data.schema import Schema
from parley.privacy.accounting.rounding import format_rounded_up

Clicks = NDArray[np.int64]
Reals = NDArray[np.float64]

USERS = ("081", "082", "083")
PAIRS = ("pregnancy test", "book", "google", "diabetes", "car price")
CLICKS = np.array([[2, 3, 15, 0, 0], [0, 0, 7, 1, 2], [0, 1, 17, 0, 5]])
"""`[U, P]` c_ik of a course's example. `PRINTED` is the output that the course shows."""
PRINTED = (0, 3, 20, 0, 4)
SCHEMA = """
[columns]
user = { kind = "ignore" }
day = { kind = "label", positive = "weekday", negative = "weekend" }

[columns.pair]
kind = "categorical"
categories = ["book", "google", "car price", "weather"]
other = true
"""
MOST = 10
"""K, the maximum clicks of a user that count."""


def unit_costs(clicks: Clicks) -> Reals:
    """Return `[U, P]` ln(c_i/(c_i − c_ik)); ∞ if one user has all clicks."""
    totals = clicks.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(totals > 0, np.log(totals / (totals - clicks)), 0.0)


def costs(clicks: Clicks, output: Sequence[float]) -> list[float]:
    """Return `[U]` each user's sum for these output counts."""
    rows = unit_costs(clicks)
    return [math.fsum(x * c for x, c in zip(output, row, strict=True) if x) for row in rows]


def most(clicks: Clicks, limit: float, *, whole: bool = True) -> Reals:
    """Return `[P]` output counts with the largest sum that cost every user at most `limit`."""
    unit = unit_costs(clicks)
    shared = np.isfinite(unit).all(axis=0) & (clicks.sum(axis=0) > 0)
    return milp(
        -np.ones(len(shared)),
        constraints=LinearConstraint(np.where(shared, unit, 0.0), -np.inf, limit),
        integrality=whole * np.ones(len(shared)),
        bounds=(0, np.where(shared, np.inf, 0)),
    ).x


def as_printed(clicks: Clicks, output: Sequence[int], rng: np.random.Generator) -> Clicks:
    """Draw `[U, P]` output counts with a user for each click, with probabilities c_ik/c_i."""
    totals = clicks.sum(axis=0)
    drawn = [rng.multinomial(x, c / n) for x, c, n in zip(output, clicks.T, totals, strict=True)]
    return np.array(drawn).T


def table(clicks: Clicks) -> str:
    """Format a table of users × pairs."""
    widths = [max(len(name), 4) for name in PAIRS]
    lines = [" " * 14 + "  ".join(name.rjust(w) for name, w in zip(PAIRS, widths, strict=True))]
    for user, row in zip(USERS, clicks, strict=True):
        cells = "  ".join(str(n).rjust(w) for n, w in zip(row, widths, strict=True))
        lines.append(f"{user:<14}{cells}")
    return "\n".join(lines)


def with_epsilon(seed: int | None) -> str:
    """Return a log of synthetic users, from noisy counts of a public list, with an ε per user."""
    users, pairs = np.divmod(np.repeat(np.arange(CLICKS.size), CLICKS.ravel()), len(PAIRS))
    rows = {
        "pair": [PAIRS[k] for k in pairs],
        "user": [USERS[k] for k in users],
        "day": ["weekday"] * len(users),
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        parley.Session(
            [rows],
            schema=Schema.from_toml(SCHEMA),
            neighbouring="add-or-remove-one",
            unit="person",
            id="user",
            records_per_id=MOST,
            epsilon=1.0,
            seed=seed,
            out=Path(folder) / "session",
        ) as session,
    ):
        log = session.search_log(["pair"], clicks=MOST, epsilon=1.0, seed=seed)
    return f"{log}\n{log.frame}"


def main(seed: int | None = None) -> str:
    """Return the whole text. `seed` makes it repeatable, without protection."""
    printed = costs(CLICKS, PRINTED)
    each = ", ".join(
        f"{user} {format_rounded_up(c)}" for user, c in zip(USERS, printed, strict=True)
    )
    parts = [
        "The log:",
        table(CLICKS),
        f"\nAs printed, output counts {PRINTED} with users drawn by their share:",
        table(as_printed(CLICKS, PRINTED, np.random.default_rng(seed))),
        f"\nWhat the users cost in it: {each}.",
        f"The printed rule would need a limit of {format_rounded_up(max(printed))} for it, that is "
        f"δ ≥ 1 − {math.exp(-max(printed)):.0e}: nothing.",
        "\nThe most clicks that the rule itself allows:",
    ]
    for limit in (math.log(2), 2.0, 5.0):
        output, bound = most(CLICKS, limit), most(CLICKS, limit, whole=False).sum()
        parts.append(
            f"  limit {format_rounded_up(limit, 4)}: {round(output.sum())} clicks "
            f"{tuple(round(x) for x in output)}; {bound:.5f} if they need not be whole"
        )
    book = (0, 1, 0, 0, 0)
    parts.append(
        "Even these have no ε: they are computed from the log. With user 081 a click on 'book' "
        f"costs at most {format_rounded_up(max(costs(CLICKS, book)), 4)};\nwithout, one user has "
        "all of "
        f"'book', its cost is {format_rounded_up(max(costs(CLICKS[1:], book)))}, and the click "
        "can never be "
        "shown. Whoever sees one\nknows that 081, or somebody like them, was there."
    )
    parts += [
        "\nWith ε = 1 (unit: a user with all its clicks, who may come or go), a public list of",
        f"pairs and at most {MOST} clicks a user:",
        with_epsilon(seed),
        f"Three users cannot hide and be counted: the noise has scale {MOST}. Beside the clicks of",
        "3,000 users the same noise is little.",
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    print(main())
