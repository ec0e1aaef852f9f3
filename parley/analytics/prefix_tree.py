"""The values that many records share, of a column that nobody can list: level by level of a tree.

Round r of R counts the next digits below the prefixes that round r − 1 kept
(`parley.client.queries.prefixes`), with Laplace noise of scale b at ε/R. A node is kept where its
noisy count is above b·ln(n/p), n nodes in the round: noise alone reaches that in a cell with
probability p/n at most, and about half of it where b is large, so that any of R rounds keeps a node
of which there is no record with probability R·p at most. Each prefix is chosen by answers before,
which pure ε allows (Rogers, Roth, Ullman & Vadhan 2016), and Σ εᵣ ≤ ε. A round whose nodes are all
dropped ends the tree: the rest of ε is not spent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from parley.analytics.answer import Answer, Asked
from parley.client.queries.base import QueryError
from parley.client.queries.prefixes import MOST_PREFIXES, Prefixes, text_of
from parley.client.where import Expression
from parley.privacy.accounting.rounding import as_written, exact

_CELLS = 1024
"""Below a prefix, where nobody says how many rounds there are."""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """What was found.

    Attributes:
        frame: `code` of every value that was kept, its `text` where letters were given, `value`,
            `low` and `high`: its noisy count in the last round, the largest first.
        answers: of all rounds, with what they cost.
        chance: that a value of no record is in the frame, at most.
    """

    frame: pl.DataFrame
    answers: tuple[Answer, ...]
    chance: float

    def __str__(self) -> str:
        spent = as_written(math.fsum(each.ledger.epsilon for each in self.answers))
        unit = self.answers[0].ledger.budget.unit
        return (
            f"{len(self.frame)} values in {len(self.answers)} rounds, ε = {spent} for a {unit}; "
            f"one that no record has is among them with probability {self.chance:g} at most\n"
            f"{self.frame}"
        )


def prefix_tree(
    session: Asked,
    column: str,
    *,
    digits: int,
    base: int,
    letters: str,
    rounds: int | None,
    chance: float,
    epsilon: float,
    where: Expression | None,
) -> Tree:
    """See `parley.analytics.composed.Composed.prefix_tree`."""
    base = len(letters) + 1 if letters else base
    if isinstance(epsilon, bool) or not 0 < epsilon < math.inf:
        raise QueryError(f"Expected epsilon, a number > 0, got {epsilon!r}.")
    if isinstance(chance, bool) or not 0 < chance < 1:
        raise QueryError(f"Expected a chance between 0 and 1, got {chance!r}.")
    if exact(epsilon) > exact(session.remaining):
        raise QueryError(
            f"Expected at most {as_written(session.remaining)}, what is left of the budget, got "
            f"ε = {as_written(epsilon)}."
        )
    steps = _steps(digits, base, rounds)
    each = float(exact(epsilon) / len(steps))
    while exact(each) * len(steps) > exact(epsilon):
        each = math.nextafter(each, 0)
    missed = chance / len(steps)  # p
    answers, kept, taken = list[Answer](), tuple[int, ...](), 0
    for more in steps:
        query = Prefixes(
            column=column, base=base, digits=digits, taken=taken, more=more, prefixes=kept,
            where=where,
        )  # fmt: skip
        answers.append(session.ask(query, epsilon=each, law="laplace"))
        counts = np.asarray(answers[-1].table["value"], dtype=np.float64)
        bar = answers[-1].scale * math.log(len(counts) / missed)
        above = np.flatnonzero(counts > bar)
        largest = above[np.argsort(-counts[above], kind="stable")]
        nodes, taken = query.nodes(), taken + more
        kept = tuple(sorted(nodes[largest[:MOST_PREFIXES]].tolist()))
        if not kept:
            break
    whole = largest if taken == digits else largest[:0]
    table = answers[-1].table
    frame = pl.DataFrame(
        {"code": nodes[whole]}
        | ({"text": [text_of(code, letters, digits) for code in nodes[whole]]} if letters else {})
        | {name: np.asarray(table[name])[whole] for name in ("value", "low", "high")}
    )
    return Tree(frame=frame, answers=tuple(answers), chance=chance)


def _steps(digits: int, base: int, rounds: int | None) -> tuple[int, ...]:
    """How many digits each round adds, as evenly as can be."""
    if isinstance(digits, bool) or not isinstance(digits, int) or digits < 1:
        raise QueryError(f"Expected at least one digit, got {digits!r}.")
    if isinstance(base, bool) or not isinstance(base, int) or base < 2:
        raise QueryError(f"Expected a base of at least 2, got {base!r}.")
    usual = -(-digits // max(1, int(math.log(_CELLS + 0.5, base))))
    count = usual if rounds is None else rounds
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= digits:
        raise QueryError(f"Expected 1 to {digits} rounds, got {rounds!r}.")
    return tuple(digits * (k + 1) // count - digits * k // count for k in range(count))
