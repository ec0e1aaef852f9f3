"""Find the largest number of releases, rounds or jobs that a budget admits.

The ledger, a plan and a simulation's parties all use this search.

    >>> find_largest_count(lambda count: count * 0.3 <= 1, maximum=10)
    3
"""

from __future__ import annotations

from collections.abc import Callable


def find_largest_count(fits: Callable[[int], bool], *, maximum: int) -> int:
    """Return the largest count from 0 to `maximum` that fits, by doubling and then by bisection.

    Args:
        fits: true up to some count and false above it; it is never called with 0.
    """
    low, high = 0, 1
    while high <= maximum and fits(high):
        low, high = high, 2 * high
    high = min(high, maximum + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
