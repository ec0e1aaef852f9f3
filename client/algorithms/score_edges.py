"""Choose the edges of the cells in which held-out records are counted by their score."""

from __future__ import annotations

from itertools import pairwise

_MAX_EDGES = 999


_FINE_INTERVALS, _COARSE_INTERVALS, _FINE_FROM = 20, 10, 5_000
"""Numbers of intervals, and the records times ε from which the finer ones are used.

In simulations (`benchmarks/judging.py`) 20 intervals give a smaller error of the area under the
curve from there on.
"""


def choose_edges(*, records: int, epsilon: float) -> tuple[float, ...]:
    """Return the probabilities between even intervals: 20, or 10 if the noise is large.

    The choice uses only public facts.

    >>> choose_edges(records=24_000, epsilon=1.0)[:3], len(choose_edges(records=400, epsilon=1.0))
    ((0.05, 0.1, 0.15), 9)

    Args:
        records: minimum number of records that the parties learn from.
    """
    count = _FINE_INTERVALS if records * epsilon >= _FINE_FROM else _COARSE_INTERVALS
    return tuple(k / count for k in range(1, count))


def check_edges(edges: tuple[float, ...]) -> None:
    """Check that edges are ascending probabilities and include ½, the threshold of the second
    label.
    """
    rising = all(low < high for low, high in pairwise((0.0, *edges, 1.0)))  # False for NaN
    if not rising or 0.5 not in edges or len(edges) > _MAX_EDGES:
        expected = f"at most {_MAX_EDGES} rising probabilities in (0, 1) as edges, 0.5 among them"
        raise ValueError(f"Expected {expected}, got {list(edges)[:12]}.")
