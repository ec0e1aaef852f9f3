"""Search logs: publishing one as it was printed, what that really costs, and a way that has an ε.

A log has c_ik clicks of user k on pair i (a query with a link), c_i of all users. As printed (Hong,
Vaidya, Lu & Wu 2012), output counts x with x_i = 0 where one user has all of pair i, and

    Σ_i x_i·ln(c_i/(c_i − c_ik)) ≤ min(ε, ln 1/(1−δ))  for every user k,

are chosen to be many, and x_i draws with probabilities c_ik/c_i say which user clicked. The sum is
the user's cost in *that* output; but bound, optimum and the pairs that may be shown at all are read
off the records: one user more makes outputs possible that were not. The whole has **no**
differential privacy, at any ε. So it is simulation-only: nothing here charges it.

What has a guarantee is at the end: a public list of pairs, at most K clicks a user, discrete
Laplace noise of scale K/ε on the counts (one user more or less: Δ₁ = K), and rows of users that
never were, drawn from the noisy counts. The log's form, nobody's history.

    >>> log = COURSE
    >>> [round(cost, 4) for cost in log.costs((0, 3, 20, 0, 4))]
    [13.869, 5.3024, 17.3245]
    >>> [sum(log.most(limit)) for limit in (math.log(2), 2.0, 5.0)]
    [1, 3, 8]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, milp

from parley.privacy.accounting.rounding import check_positive, quotient_up
from parley.privacy.sampling.discrete import discrete_laplace
from parley.privacy.sampling.integers import integers_below
from parley.privacy.sampling.stream import NoiseStream


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchLog:
    """Clicks of users on pairs.

    Attributes:
        users, pairs: names.
        clicks: `[U, P]` c_ik.

    Raises:
        ValueError: shapes disagree, or a negative count.
    """

    users: tuple[str, ...]
    pairs: tuple[str, ...]
    clicks: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.clicks.shape != (len(self.users), len(self.pairs)) or (self.clicks < 0).any():
            raise ValueError(
                f"Expected counts ≥ 0 of {len(self.users)} users × {len(self.pairs)} pairs, got "
                f"shape {self.clicks.shape}."
            )

    @property
    def totals(self) -> NDArray[np.int64]:
        """`[P]` c_i."""
        totals: NDArray[np.int64] = self.clicks.sum(axis=0)
        return totals

    def _unit_costs(self) -> NDArray[np.float64]:
        """`[U, P]` ln(c_i/(c_i − c_ik)); ∞ where one user has all."""
        with np.errstate(divide="ignore", invalid="ignore"):
            costs: NDArray[np.float64] = np.log(self.totals / (self.totals - self.clicks))
        return np.where(self.totals > 0, costs, 0.0)

    def costs(self, output: Sequence[int]) -> list[float]:
        """`[U]` each user's sum, of these output counts."""
        shown = np.asarray(output, dtype=np.float64)
        unit = self._unit_costs()
        return [math.fsum(x * c for x, c in zip(shown, row, strict=True) if x) for row in unit]

    def needed(self, output: Sequence[int]) -> tuple[float, float]:
        """ε and δ with which this output would satisfy what is printed: no guarantee, see above."""
        worst = max(self.costs(output))
        return worst, -math.expm1(-worst)

    def most(self, limit: float) -> tuple[int, ...]:
        """Output counts with the largest sum that cost no user more than `limit`, as printed."""
        return tuple(round(x) for x in self._optimum(limit, whole=True))

    def most_relaxed(self, limit: float) -> float:
        """The largest sum where counts need not be whole: an upper bound."""
        return float(sum(self._optimum(limit, whole=False)))

    def _optimum(self, limit: float, *, whole: bool) -> NDArray[np.float64]:
        check_positive("limit", limit)
        unit = self._unit_costs()
        shared = np.isfinite(unit).all(axis=0) & (self.totals > 0)
        ones = np.ones(len(self.pairs))
        found = milp(
            -ones,
            constraints=LinearConstraint(np.where(shared, unit, 0.0), -np.inf, limit),
            integrality=ones * whole,
            bounds=(0, np.where(shared, np.inf, 0)),
        )
        if not found.success:
            raise ValueError(f"Expected an optimum, got none: {found.message}")
        best: NDArray[np.float64] = found.x
        return best

    def as_printed(self, output: Sequence[int], stream: NoiseStream) -> SearchLog:
        """Output counts with a user for each click, drawn by c_ik/c_i. Simulation only: no ε."""
        drawn = np.zeros_like(self.clicks)
        for pair, count in enumerate(output):
            if not count:
                continue
            if not self.totals[pair]:
                raise ValueError(f"Expected clicks on {self.pairs[pair]!r} to draw from, got none.")
            places = integers_below(int(self.totals[pair]), count, stream)
            owners = np.repeat(np.arange(len(self.users)), self.clicks[:, pair])
            drawn[:, pair] = np.bincount(owners[places], minlength=len(self.users))
        return SearchLog(users=self.users, pairs=self.pairs, clicks=drawn)

    def without(self, user: str) -> SearchLog:
        """The neighbouring log: one user fewer."""
        keep = [k for k, name in enumerate(self.users) if name != user]
        names = tuple(self.users[k] for k in keep)
        return SearchLog(users=names, pairs=self.pairs, clicks=self.clicks[keep])


def synthetic_log(
    log: SearchLog,
    *,
    pairs: Sequence[str],
    clicks: int,
    epsilon: float,
    stream: NoiseStream,
    most_pairs: int | None = None,
) -> tuple[SearchLog, dict[str, int]]:
    """A log of users that never were, and the noisy counts that it is drawn from: ε-DP.

    Unit: a user with all its clicks, who may come or go. Of each user the first `clicks` clicks on
    the first `most_pairs` of its `pairs` count, so that Δ₁ = `clicks`, on however few pairs they
    are; discrete Laplace noise of scale Δ₁/ε. All else is post-processing.

    Args:
        log: the users' clicks.
        pairs: public: known without looking at the log.
        clicks: K, public.
        epsilon: of the whole.
        stream: where the noise comes from; of the operating system's entropy for a real release.
        most_pairs: ℓ, public; None: as many as a user has.

    Raises:
        ValueError: no pair, one twice, or K, ℓ or ε not positive.
    """
    check_positive("epsilon", epsilon)
    if not pairs or len(set(pairs)) < len(pairs):
        raise ValueError(f"Expected distinct public pairs, got {list(pairs)}.")
    if isinstance(clicks, bool) or clicks < 1:
        raise ValueError(f"Expected at least one click a user, got {clicks}.")
    if most_pairs is not None and (isinstance(most_pairs, bool) or most_pairs < 1):
        raise ValueError(f"Expected at least one pair a user, got {most_pairs}.")
    known = {name: k for k, name in enumerate(log.pairs)}
    table = np.zeros((len(log.users), len(pairs)), dtype=np.int64)
    for at, name in enumerate(pairs):
        if name in known:
            table[:, at] = log.clicks[:, known[name]]
    if most_pairs is not None:
        table[np.cumsum(table > 0, axis=1) > most_pairs] = 0
    # The first K in the order of the public list.
    before = np.cumsum(table, axis=1) - table
    kept = np.clip(clicks - before, 0, table)
    noise = discrete_laplace(quotient_up(float(clicks), epsilon), len(pairs), stream)
    noisy = kept.sum(axis=0) + noise
    weights = np.maximum(noisy, 0)
    total = int(weights.sum())
    owners = -(-total // clicks)
    rows = np.zeros((owners, len(pairs)), dtype=np.int64)
    if total:
        ends = np.cumsum(weights)
        for user in range(owners):
            places = integers_below(total, min(clicks, total - user * clicks), stream)
            rows[user] = np.bincount(
                np.searchsorted(ends, places, side="right"), minlength=len(pairs)
            )
    names = tuple(f"synthetic-{k + 1}" for k in range(owners))
    counts = {name: int(count) for name, count in zip(pairs, noisy, strict=True)}
    return SearchLog(users=names, pairs=tuple(pairs), clicks=rows), counts


COURSE: Final = SearchLog(
    users=("081", "082", "083"),
    pairs=("pregnancy test", "book", "google", "diabetes", "car price"),
    clicks=np.array([[2, 3, 15, 0, 0], [0, 0, 7, 1, 2], [0, 1, 17, 0, 5]]),
)
"""The example's log: what it costs is what is printed for it."""
