"""Privacy events: the cost of one release, as the curves that are proved for it.

An event is a frozen fact without data. Six kinds have their own curve. The others wrap another
event, as in `dp_accounting.dp_event`:

| event | what is proved |
|---|---|
| Gaussian(mu) | μ-GDP: the exact Gaussian curve (Dong, Roth & Su 2022), ρ = μ²/2 |
| Zcdp(rho) | ρ-zCDP (Bun & Steinke 2016) |
| Pure(epsilon, rho) | ε-DP, and ρ-zCDP with ρ ≤ ε²/2 |
| BoundedRange(epsilon, rho) | the same, and a bounded range of ε (exponential mechanism) |
| PoissonSampledGaussian(…) | one step of DP-SGD: an RDP curve and a PLD (`subsampled_gaussian`) |
| BehindCoin(probability, event, count) | so many such steps, or none, by one coin: the same |
| Repeated(event, count) | `count` releases of `event` |
| Approximate(event, delta) | a release within statistical distance `delta` of `event` |
| PlannedSteps(event, count, mu, delta) | a job of `count` such steps, as one release |

Neighbours are those of the mechanism that made the event. The meaning of an event never changes,
because ledgers that contain it must stay readable.

    >>> event = Approximate(event=GaussianEvent(mu=0.05), delta=2.0**-60)
    >>> parse_event(event.to_json()) == event
    True
    >>> [(leaf, count) for leaf, count in Repeated(event=event, count=3).iterate_leaves()]
    [(GaussianEvent(mu=0.05), 3)]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

from parley.privacy.accounting.rounding import check_positive, check_whole, to_fraction
from parley.privacy.accounting.threat_model import Neighbouring


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"Expected {name} to be a number, got {value!r}.")
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"Expected {name} finite and ≥ 0, got {value}.")


@dataclass(frozen=True, kw_only=True)
class PrivacyEvent:
    """The cost of one release for one unit; a value out of range raises ValueError."""

    kind: ClassVar[str]

    @property
    def exact_rho(self) -> Fraction:
        """Exact ρ of zCDP, which every event has; that of the ideal law if it is approximate."""
        return sum((leaf.exact_rho * count for leaf, count in self.iterate_leaves()), Fraction(0))

    @property
    def sampler_distance(self) -> Fraction:
        """Exact statistical distance of the release from one that has the curves."""
        return Fraction(0)

    @property
    def releases(self) -> int:
        """Number of releases that it represents; a planned job represents several."""
        return 1

    @property
    def ideal(self) -> PrivacyEvent:
        """The event of the ideal law; the event itself if its law is exact."""
        return self

    def iterate_leaves(self) -> Iterator[tuple[PrivacyEvent, int]]:
        """Yield the events with their own curve that it consists of, and the number of each."""
        yield self, 1

    def to_json(self) -> dict[str, Any]:
        """Return plain values, which `parse_event` reads back unchanged."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {k: v.to_json() if isinstance(v, PrivacyEvent) else v for k, v in values.items()}
        return {"kind": self.kind, **plain}


@dataclass(frozen=True, kw_only=True)
class GaussianEvent(PrivacyEvent):
    """μ-GDP: the exact curve of a Gaussian with μ = Δ/σ."""

    kind: ClassVar[str] = "gaussian"

    mu: float

    def __post_init__(self) -> None:
        _check_number("mu", self.mu)

    @cached_property
    def exact_rho(self) -> Fraction:
        """μ²/2 (Bun & Steinke 2016, Proposition 1.6)."""
        return to_fraction(self.mu) ** 2 / 2


@dataclass(frozen=True, kw_only=True)
class Zcdp(PrivacyEvent):
    """ρ-zCDP, without a tighter curve."""

    kind: ClassVar[str] = "zcdp"

    rho: float

    def __post_init__(self) -> None:
        _check_number("rho", self.rho)

    @property
    def exact_rho(self) -> Fraction:
        """The given ρ."""
        return to_fraction(self.rho)


@dataclass(frozen=True, kw_only=True)
class Pure(PrivacyEvent):
    """ε-DP, with `rho` if a ρ below ε²/2 is also proved."""

    kind: ClassVar[str] = "pure"

    epsilon: float
    rho: float | None = None

    def __post_init__(self) -> None:
        _check_number("epsilon", self.epsilon)
        if self.rho is not None:
            _check_number("rho", self.rho)

    @property
    def exact_rho(self) -> Fraction:
        """The lower of ε²/2 (Bun & Steinke 2016, Proposition 1.4) and the given bound."""
        implied = to_fraction(self.epsilon) ** 2 / 2
        return implied if self.rho is None else min(implied, to_fraction(self.rho))


@dataclass(frozen=True, kw_only=True)
class BoundedRange(Pure):
    """A release with a log-likelihood ratio of range ε: the exponential mechanism.

    Durfee & Rogers 2019, Definition 3.1; ρ = ε²/8 (Cesar & Rogers 2021, Lemma 3.2).
    """

    kind: ClassVar[str] = "bounded-range"


@dataclass(frozen=True, kw_only=True, order=True)
class PoissonSampledGaussian(PrivacyEvent):
    """One step of DP-SGD: a Poisson batch, with noise N(0, (σC)²I) on its clipped sum.

    Attributes:
        sampling_rate: q in (0, 1].
        noise_multiplier: σ > 0; the noise on the sum is σC.
    """

    kind: ClassVar[str] = "poisson-sampled-gaussian"

    sampling_rate: float
    noise_multiplier: float
    neighbouring: str

    def __post_init__(self) -> None:
        check_positive("noise_multiplier", self.noise_multiplier)
        if not 0 < self.sampling_rate <= 1:
            raise ValueError(f"Expected a sampling rate in (0, 1], got {self.sampling_rate}.")
        object.__setattr__(self, "neighbouring", str(Neighbouring(self.neighbouring)))

    @property
    def sensitivity(self) -> int:
        """Sensitivity of the clipped sum in units of C: 2 (replace-one), 1 (add-or-remove-one)."""
        return Neighbouring(self.neighbouring).radii

    @property
    def exact_rho(self) -> Fraction:
        """ρ of one step, ignoring sampling: sampling never raises a divergence."""
        return (Fraction(self.sensitivity) / to_fraction(self.noise_multiplier)) ** 2 / 2


@dataclass(frozen=True, kw_only=True, order=True)
class BernoulliSteps(PrivacyEvent):
    """`count` adaptive steps of `event` with probability p, by one coin; else no step.

    The coin is fresh, tossed independently, and may be seen: p is the same for both neighbours. If
    (P, Q) is the dominating pair of the steps, that of the release is (1−p)·⊥ + p·P and (1−p)·⊥ +
    p·Q. Either all of the steps are included or none. That is one mixture, not `count` of them.
    """

    kind: ClassVar[str] = "behind-coin"

    probability: float
    event: PoissonSampledGaussian
    count: int

    def __post_init__(self) -> None:
        _check_number("probability", self.probability)
        if not 0 < self.probability < 1:
            raise ValueError(f"Expected a probability in (0, 1), got {self.probability}.")
        if not isinstance(self.event, PoissonSampledGaussian):
            raise ValueError(f"Expected a step of DP-SGD behind a coin, got {self.event!r}.")
        check_whole("count", self.count)

    @property
    def neighbouring(self) -> str:
        """Neighbouring relation of the steps."""
        return self.event.neighbouring

    @property
    def exact_rho(self) -> Fraction:
        """ρ of the steps. (1−p) + p·e^((α−1)D) ≤ e^((α−1)D) as D ≥ 0, so a coin raises no D_α."""
        return self.event.exact_rho * self.count


Step = PoissonSampledGaussian | BernoulliSteps
"""An event that is accounted by the privacy loss of DP-SGD steps (`subsampled_gaussian`)."""


@dataclass(frozen=True, kw_only=True)
class Repeated(PrivacyEvent):
    """`count` adaptive releases of `event`."""

    kind: ClassVar[str] = "repeated"

    event: PrivacyEvent
    count: int

    def __post_init__(self) -> None:
        check_whole("count", self.count)

    @property
    def sampler_distance(self) -> Fraction:
        """Sum of the releases' distances."""
        return self.event.sampler_distance * self.count

    def iterate_leaves(self) -> Iterator[tuple[PrivacyEvent, int]]:
        """Yield the event's leaves, each with `count` times its number."""
        for leaf, count in self.event.iterate_leaves():
            yield leaf, count * self.count


@dataclass(frozen=True, kw_only=True)
class Approximate(PrivacyEvent):
    """A release with a law within statistical distance `delta` of one that has `event`'s curves.

    A sampler that is not exact is charged by this event: `Composition.compute_sampler_delta`.
    """

    kind: ClassVar[str] = "approximate"

    event: PrivacyEvent
    delta: float

    def __post_init__(self) -> None:
        _check_number("delta", self.delta)
        if self.delta >= 1:
            raise ValueError(f"Expected 0 ≤ delta < 1, got {self.delta}.")
        if any(isinstance(leaf, Pure) and count > 1 for leaf, count in self.event.iterate_leaves()):
            # Its distance would cover several events at once
            # (`accountants.compute_sampler_epsilon`).
            raise ValueError("Expected one pure event within a distance, got a repeated one.")

    @cached_property
    def sampler_distance(self) -> Fraction:
        """Sum of `delta` and the event's distance."""
        return to_fraction(self.delta) + self.event.sampler_distance

    @property
    def ideal(self) -> PrivacyEvent:
        """The event that has the curves."""
        return self.event

    def iterate_leaves(self) -> Iterator[tuple[PrivacyEvent, int]]:
        """Return the event's leaves."""
        return self.event.iterate_leaves()


@dataclass(frozen=True, kw_only=True)
class PlannedSteps(PrivacyEvent):
    """All `count` releases of `event` that one job planned beforehand, charged as one release.

    The releases together have a dominating pair (P, Q). In both directions its hockey-stick curve
    is nowhere above that of a μ-GDP pair by more than `delta`
    (`subsampled_gaussian.build_planned_steps`). So P is within distance `delta` of a P′ for which
    (P′, Q) is μ-GDP: clip the likelihood ratio at both ends. A job that ends early is
    post-processing of the complete job.

    Attributes:
        delta: δ′; those of several jobs add up.
    """

    kind: ClassVar[str] = "planned-steps"

    event: PrivacyEvent
    count: int
    mu: float
    delta: float

    def __post_init__(self) -> None:
        check_whole("count", self.count)
        _check_number("mu", self.mu)
        _check_number("delta", self.delta)
        if not all(isinstance(leaf, Step) for leaf, _ in self.event.iterate_leaves()):
            raise ValueError(f"Expected planned steps of DP-SGD, got {self.event!r}.")

    @property
    def releases(self) -> int:
        """Number of releases of the job."""
        return self.count

    @property
    def sampler_distance(self) -> Fraction:
        """Distance of all the steps' samplers from their laws."""
        return self.event.sampler_distance * self.count

    @property
    def exact_rho(self) -> Fraction:
        """Sum of the steps' ρ, which holds without δ′."""
        return self.event.exact_rho * self.count


EVENTS: dict[str, type[PrivacyEvent]] = {
    kind.kind: kind
    for kind in (
        GaussianEvent,
        Zcdp,
        Pure,
        BoundedRange,
        PoissonSampledGaussian,
        BernoulliSteps,
        Repeated,
        Approximate,
        PlannedSteps,
    )
}
"""Kinds of event, by their name in a ledger."""

_MAX_DEPTH = 8


def parse_event(values: object, *, depth: int = 0) -> PrivacyEvent:
    """Parse the event that `to_json` wrote.

    Raises:
        ValueError: the values are no such event: an unknown kind, a missing or unknown key, a bad
            value.
    """
    if not isinstance(values, Mapping) or depth > _MAX_DEPTH:
        raise ValueError(f"Expected an event as an object, got {type(values).__name__}.")
    kind = EVENTS.get(str(values.get("kind")))
    if kind is None:
        raise ValueError(f"Expected an event of {', '.join(EVENTS)}, got {values.get('kind')!r}.")
    named = {field.name for field in fields(kind)}
    if set(values) != named | {"kind"}:
        raise ValueError(f"Expected the keys {sorted(named)} of {kind.kind}, got {sorted(values)}.")
    inner = {"event": parse_event(values["event"], depth=depth + 1)} if "event" in named else {}
    rest = {name: values[name] for name in named - {"event"}}
    return kind(**rest, **inner)


def parse_planned(values: object) -> PlannedSteps:
    """Parse the planned job that `to_json` wrote; raise ValueError for anything else."""
    event = parse_event(values)
    if not isinstance(event, PlannedSteps):
        raise ValueError(f"Expected a planned job, got {event.kind}.")
    return event


CountedSteps = tuple[tuple[Step, int], ...]
"""Kinds of steps with the number of each, in a fixed order."""


def sort_steps(steps: Mapping[Step, int]) -> CountedSteps:
    """Return the counted steps in an order that does not depend on when they were added."""
    return tuple(sorted(steps.items(), key=lambda item: (item[0].kind, item)))
