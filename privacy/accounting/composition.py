"""Composition: the number of releases of each kind, and their total cost.

A composition only counts events, so it is exact and does not depend on their order. The accountants
(`parley.privacy.accounting.accountants`) compute its ε at a δ, each for the events it is proved
for. The lowest ε is charged.

    >>> from parley.privacy.accounting.privacy_events import GaussianEvent, Pure
    >>> day = Composition().add(GaussianEvent(mu=0.05), count=100)
    >>> {name: round(value, 3) for name, value in day.compute_epsilons(1e-5).items()}
    {'exact': 1.993, 'cks20': 2.166, 'zcdp': 2.524}
    >>> Composition().add(Pure(epsilon=0.1), count=10).compute_lowest_epsilon(0.0)
    ('pure', 1.0)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Any

from parley.privacy.accounting.accountants import ACCOUNTANTS, compute_total_mu, compute_total_rho
from parley.privacy.accounting.privacy_events import PrivacyEvent, Step, parse_event
from parley.privacy.accounting.rounding import check_delta, check_whole, parse_fraction, round_up

_ZERO = Fraction(0)


def find_lowest(epsilons: Mapping[str, float]) -> tuple[str, float]:
    """Return the lowest of `Composition.compute_epsilons` with its name; ("none", ∞) if empty."""
    return min(epsilons.items(), key=lambda item: item[1]) if epsilons else ("none", math.inf)


@dataclass(frozen=True, kw_only=True)
class Composition:
    """All releases so far; `Composition()` is none.

    Attributes:
        counts: events with their own curve → their number.
        releases: number of releases added. One release may add many of `counts`, and a planned job
            counts as several releases.
    """

    counts: Mapping[PrivacyEvent, int] = field(default_factory=lambda: MappingProxyType({}))
    sampler_distance: Fraction = _ZERO
    releases: int = 0

    def __post_init__(self) -> None:
        for count in self.counts.values():
            check_whole("count", count, 1)
        check_whole("count", self.releases, 1 if self.counts else 0)
        if type(self.sampler_distance) is not Fraction or self.sampler_distance.numerator < 0:
            raise ValueError(f"Expected a Fraction ≥ 0 as slack, got {self.sampler_distance!r}.")
        relations = {event.neighbouring for event in self.counts if isinstance(event, Step)}
        if len(relations) > 1:
            raise ValueError(f"Expected one neighbouring relation, got {sorted(relations)}.")

    @property
    def mu(self) -> float | None:
        """√Σμ² if all events are Gaussian, with this curve (`gaussian_curve`); else None."""
        return compute_total_mu(self.counts) if ACCOUNTANTS["exact"].supports(self.counts) else None

    def __hash__(self) -> int:
        return hash((frozenset(self.counts.items()), self.sampler_distance, self.releases))

    @classmethod
    def from_events(cls, events: Iterable[PrivacyEvent]) -> Composition:
        """Return the composition of all `events`, in any order."""
        return functools.reduce(cls.add, events, cls())

    def add(self, event: PrivacyEvent, count: int = 1) -> Composition:
        """Return the composition after `count` more releases of `event` (0 changes nothing)."""
        if check_whole("count", count, 0) == 0:
            return self
        counts = dict(self.counts)
        for leaf, times in event.iterate_leaves():
            counts[leaf] = counts.get(leaf, 0) + times * count
        return Composition(
            counts=MappingProxyType(counts),
            sampler_distance=self.sampler_distance
            + (event.sampler_distance if count == 1 else event.sampler_distance * count),
            releases=self.releases + count * event.releases,
        )

    def remove(self, event: PrivacyEvent) -> Composition:
        """Return the composition without one release of `event`.

        Raises:
            ValueError: the composition cannot contain such a release.
        """
        counts = dict(self.counts)
        for leaf, times in event.iterate_leaves():
            counts[leaf] = counts.get(leaf, 0) - times
        if min(counts.values(), default=0) < 0 or self.releases < 1:
            raise ValueError(f"Expected a release of this composition, got {event!r}.")
        return Composition(
            counts=MappingProxyType({leaf: n for leaf, n in counts.items() if n}),
            sampler_distance=self.sampler_distance - event.sampler_distance,
            releases=self.releases - event.releases,
        )

    @property
    def rho(self) -> float:
        """Σρ, rounded up; ρ of the ideal laws (approximate zCDP) if `sampler_distance` > 0."""
        return compute_total_rho(self.counts)

    def compute_epsilons(self, delta: float) -> dict[str, float]:
        """Return ε at `delta` by each accountant that is proved for these events, if it is finite.

        Every value is an upper bound. The samplers' statistical distance γ (`sampler_distance`) is
        included: an (ε, δ′) law sampled within γ is (ε, δ′ + (1 + e^ε)·γ)-DP, so δ′ = δ − (1 +
        e^ε)·γ is used.
        """
        check_delta(delta)
        if delta not in self._epsilons_by_delta:
            values = {
                name: self._add_sampler_delta(name, delta)
                for name, accountant in ACCOUNTANTS.items()
                if accountant.supports(self.counts)
            }
            finite = {name: v for name, v in values.items() if math.isfinite(v)}
            self._epsilons_by_delta[delta] = finite
        return dict(self._epsilons_by_delta[delta])

    @cached_property
    def _epsilons_by_delta(self) -> dict[float, dict[str, float]]:
        """Cached `compute_epsilons` by δ: a ledger and its reader request the same values."""
        return {}

    def compute_lowest_epsilon(self, delta: float) -> tuple[str, float]:
        """Return the accountant's name and value of the lowest ε; ("none", ∞) if none is finite."""
        return find_lowest(self.compute_epsilons(delta))

    def compute_epsilon_by(self, accountant: str, delta: float) -> float:
        """Return ε by the named accountant; ∞ if it finds none."""
        check_delta(delta)
        if not ACCOUNTANTS[accountant].supports(self.counts):
            raise ValueError(f"Expected an accountant for these events, got {accountant!r}.")
        return self._add_sampler_delta(accountant, delta)

    def compute_sampler_delta(self, epsilon: float) -> float:
        """Return the part of δ that the samplers use at ε: (1 + e^ε)·γ, rounded up; ∞ on overflow.

        If pure events are composed one by one, ε is that of one of them or of the rest.
        """
        if not self.sampler_distance:
            return 0.0
        if epsilon > 700:  # e^ε is near the largest float
            return math.inf
        return self._distance_up * (1 + math.exp(epsilon)) * (1 + 1e-15)

    @cached_property
    def _distance_up(self) -> float:
        return round_up(self.sampler_distance)

    def _add_sampler_delta(self, name: str, delta: float) -> float:
        """Return the least ε found with curve(δ − compute_sampler_delta(ε)) ≤ ε; ∞ if none."""
        accountant = ACCOUNTANTS[name]
        curve = accountant.curve(self.counts)
        guess = curve(delta)
        if not self.sampler_distance or math.isinf(guess):
            return guess
        before = math.nan
        for _ in range(100):
            left = delta - self.compute_sampler_delta(accountant.sampled(self.counts, guess))
            if left < 0:
                return math.inf
            if left == before:  # the ε needed at this δ is known and below the guess
                return guess
            before = left
            needed = curve(math.nextafter(left, 0.0))
            if needed <= guess:  # (needed, δ′) implies (guess, δ′)
                return guess
            guess = needed * (1 + 1e-12)
        return math.inf

    def to_json(self) -> dict[str, Any]:
        """Return events with their counts in a canonical order, and the slack as a fraction."""
        ordered = [
            {"event": event.to_json(), "count": count}
            for event, count in sorted(self.counts.items(), key=lambda item: repr(item[0]))
        ]
        return {"events": ordered, "slack": str(self.sampler_distance), "releases": self.releases}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Composition:
        """Parse the composition that `to_json` wrote; raise ValueError for anything else."""
        if not isinstance(values, Mapping) or set(values) != {"events", "slack", "releases"}:
            came: object = sorted(values) if isinstance(values, Mapping) else type(values).__name__
            raise ValueError(f"Expected events, slack and releases of a composition, got {came}.")
        counts: dict[PrivacyEvent, int] = {}
        for item in values["events"]:
            if not isinstance(item, Mapping) or set(item) != {"event", "count"}:
                came = sorted(item) if isinstance(item, Mapping) else type(item).__name__
                raise ValueError(f"Expected the keys event and count of an item, got {came}.")
            counts[parse_event(item["event"])] = check_whole("count", item["count"], 1)
        if len(counts) != len(values["events"]):
            raise ValueError("Expected each event once in a composition, got one twice.")
        return cls(
            counts=MappingProxyType(counts),
            sampler_distance=parse_fraction("slack", values["slack"]),
            releases=check_whole("count", values["releases"], 0),
        )
