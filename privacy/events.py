"""Events and their composition: what one release costs and what all of them cost together.

An `Event` carries the curves that are *proved* for one release; a `Composition` adds them up and
converts the sums to ε at a δ, by proved conversions only. Both are pure values: they never see
data, and a composition depends on the events' totals alone, not on their order. Sums are exact
rationals (`privacy.rounding.exact`: ten times 0.1 is 1). Neighbours are those of the mechanism that
made the event: replace-one throughout this package.

    >>> day = Composition.empty().add(Event(law="gaussian", mu=0.05), count=100)
    >>> {name: round(value, 3) for name, value in day.epsilons(1e-5).items()}
    {'exact': 1.993, 'cks20': 2.166, 'zcdp': 2.524}
    >>> Composition.empty().add(Event(law="laplace-l1", epsilon=0.1), count=10).epsilon(0.0)
    ('pure', 1.0)

Adaptive composition: pure ε adds (Dwork & Roth 2014, Theorem 3.16), ρ adds (Bun & Steinke 2016,
Lemma 1.7), μ² adds (Dong, Roth & Su 2022, Corollary 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from typing import Any

from privacy import subsampled
from privacy.accounting import cks20_epsilon, gaussian_epsilon, zcdp_epsilon
from privacy.rounding import check_delta, exact, read_fraction, root_up, round_up, sum_up

__all__ = ["Composition", "Event"]


def _checked(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"Expected {name} to be a number, got {value!r}.")
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"Expected {name} finite and ≥ 0, got {number}.")
    return number


@dataclass(frozen=True, kw_only=True)
class Event:
    """The privacy cost of one release.

    Attributes:
        law: name of the noise law, as in `privacy.mechanisms.MECHANISMS`.
        mu: Δ/σ where the exact Gaussian curve is proved (μ-GDP), else None.
        rho: ρ of zCDP. Filled in when the event is built, never None afterwards: the least of the
            given ρ, μ²/2 (Bun & Steinke 2016, Proposition 1.6) and ε²/2 (Proposition 1.4).
        epsilon: ε of pure DP, else None.
        delta: bound on the statistical distance between the release and one that has the curves
            above, that is, of the sampler from its ideal law. 0 for an exact sampler.
        steps: the kind of DP-SGD step the release consists of, `step_count` of them; None for
            any other law. Such a release has an RDP curve and a PLD (`privacy.subsampled`).

    Raises:
        ValueError: no curve at all, or a value that is negative, infinite or NaN, or δ ≥ 1.
    """

    law: str
    mu: float | None = None
    rho: float | None = None
    epsilon: float | None = None
    delta: float = 0.0
    steps: subsampled.Steps | None = None
    step_count: int = 0

    def __post_init__(self) -> None:
        if (self.steps is None) != (self.step_count == 0) or self.step_count < 0:
            raise ValueError(f"Expected steps with a count ≥ 1, got {self.step_count}.")
        if self.steps is not None and (self.mu is not None or self.epsilon is not None):
            raise ValueError("Expected DP-SGD steps without mu and epsilon, got one of them.")
        if not isinstance(self.law, str) or not self.law:
            raise ValueError(f"Expected law to be a name, got {self.law!r}.")
        for name in ("mu", "rho", "epsilon"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _checked(name, getattr(self, name)))
        object.__setattr__(self, "delta", _checked("delta", self.delta))
        if self.delta >= 1:
            raise ValueError(f"Expected 0 ≤ delta < 1, got {self.delta}.")
        if self.steps is None and self.mu is None and self.rho is None and self.epsilon is None:
            raise ValueError("Expected at least one of mu, rho and epsilon, got none.")
        object.__setattr__(self, "rho", _checked("rho", round_up(self.exact_rho())))

    def exact_rho(self) -> Fraction:
        """ρ before it is rounded up to a float."""
        proved = [] if self.rho is None else [exact(self.rho)]
        proved += [] if self.steps is None else [self.steps.rho * self.step_count]
        proved += [exact(curve) ** 2 / 2 for curve in (self.mu, self.epsilon) if curve is not None]
        return min(proved)

    def to_json(self) -> dict[str, Any]:
        """A dictionary of plain values that `from_json` reads back unchanged."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _SAMPLED}
        if self.steps is None:
            return plain
        return {**plain, "steps": asdict(self.steps), "step_count": self.step_count}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Event:
        """The event that `to_json` wrote. Raises ValueError on a missing or unknown key."""
        _check_keys(cls, values)
        steps = values.get("steps")
        return cls(**{**values, "steps": subsampled.Steps(**steps)} if steps else values)


_SAMPLED = frozenset({"steps", "step_count", "sampled", "samples"})
"""Fields written only where DP-SGD was released: other entries keep the text they always had."""


def _check_keys(cls: type[Any], values: Mapping[str, Any]) -> None:
    expected = {field.name for field in fields(cls)}
    if not _SAMPLED & set(values):
        expected -= _SAMPLED
    if set(values) != expected:
        raise ValueError(
            f"Expected the keys {sorted(expected)} of {cls.__name__}, got {sorted(values)}."
        )


_COUNTS = frozenset({"releases", "gaussians", "pures", "samples"})
_ZERO = Fraction(0)


@dataclass(frozen=True, kw_only=True)
class Composition:
    """Running totals over all releases so far, exact; start from `empty()`.

    Attributes:
        releases: number of events; `gaussians` of them have a μ, `pures` an ε (and no μ).
        mu_squared: Σ μ² over the Gaussian events.
        pure_epsilon: Σ ε over the pure events.
        rho_exact: Σ ρ over all events; `pure_rho` is its part from the pure events.
        slack: Σ of the events' `delta`.
        samples: number of DP-SGD events; `sampled` is how many steps of each kind they had.
    """

    releases: int = 0
    gaussians: int = 0
    pures: int = 0
    mu_squared: Fraction = _ZERO
    pure_epsilon: Fraction = _ZERO
    rho_exact: Fraction = _ZERO
    pure_rho: Fraction = _ZERO
    slack: Fraction = _ZERO
    samples: int = 0
    sampled: tuple[tuple[subsampled.Steps, int], ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name == "sampled":
                continue
            kind = int if field.name in _COUNTS else Fraction
            value = getattr(self, field.name)
            if type(value) is not kind or value < 0:
                raise ValueError(f"Expected {field.name}: {kind.__name__} ≥ 0, got {value!r}.")
        if self.gaussians + self.pures + self.samples > self.releases:
            raise ValueError(
                f"Expected gaussians + pures + samples ≤ releases, got {self.gaussians} + "
                f"{self.pures} + {self.samples} > {self.releases}."
            )
        relations = {kind.neighbouring for kind, _ in self.sampled}
        if len(relations) > 1:
            raise ValueError(f"Expected one neighbouring relation, got {sorted(relations)}.")
        if self.samples > sum(count for _, count in self.sampled):
            raise ValueError(f"Expected a step for every one of {self.samples} DP-SGD releases.")

    @classmethod
    def empty(cls) -> Composition:
        """Nothing released yet."""
        return cls()

    def add(self, event: Event, count: int = 1) -> Composition:
        """The composition after `count` more releases of `event` (0 changes nothing).

        Raises:
            ValueError: `count` is negative or not an integer.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ValueError(f"Expected an integer count ≥ 0, got {count!r}.")
        rho = event.exact_rho() * count
        gaussian = event.mu is not None
        pure = event.epsilon is not None and not gaussian
        return Composition(
            releases=self.releases + count,
            gaussians=self.gaussians + (count if gaussian else 0),
            pures=self.pures + (count if pure else 0),
            mu_squared=self.mu_squared + (exact(event.mu) ** 2 * count if event.mu else 0),
            pure_epsilon=self.pure_epsilon
            + (exact(event.epsilon) * count if pure and event.epsilon else 0),
            rho_exact=self.rho_exact + rho,
            pure_rho=self.pure_rho + (rho if pure else 0),
            slack=self.slack + exact(event.delta) * count,
            samples=self.samples + (count if event.steps is not None else 0),
            sampled=self._with_steps(event.steps, event.step_count * count),
        )

    def remove(self, event: Event) -> Composition:
        """The composition without one of its releases: sums are exact, so nothing is left of it.

        Raises:
            ValueError: there can't have been such a release.
        """
        one = Composition.empty().add(event)
        steps = dict(self.sampled)
        for kind, count in one.sampled:
            steps[kind] = steps.get(kind, 0) - count
        if min(steps.values(), default=0) < 0:
            raise ValueError("Expected the steps of a release among those composed, got fewer.")
        sums = {
            name: getattr(self, name) - getattr(one, name)
            for name in (each.name for each in fields(self))
            if name != "sampled"
        }
        left = tuple(sorted((kind, count) for kind, count in steps.items() if count))
        return Composition(**sums, sampled=left)

    def _with_steps(
        self, kind: subsampled.Steps | None, count: int
    ) -> tuple[tuple[subsampled.Steps, int], ...]:
        if kind is None or count == 0:
            return self.sampled
        steps = dict(self.sampled)
        steps[kind] = steps.get(kind, 0) + count
        return tuple(sorted(steps.items()))

    @property
    def rho(self) -> float:
        """Σ ρ, rounded up. Where `slack` > 0 it is ρ of the ideal laws (approximate zCDP)."""
        return round_up(self.rho_exact)

    def epsilons(self, delta: float) -> dict[str, float]:
        """ε at `delta` by every conversion that is proved for what was composed and finite.

        - `exact`: only Gaussians; one Gaussian of μ = √Σμ² (Balle & Wang 2018, Theorem 8), δ > 0.
        - `cks20`, `zcdp`: from Σρ, for everything, δ > 0.
        - `pure`: only pure events; Σε.
        - `mixed`: pure and other events; Σε of the pure ones plus the ε of the rest (exact if all
          of the rest are Gaussians, else from its ρ by cks20), δ > 0.
        - `rdp`: with DP-SGD steps: their RDP plus αρ of everything else, δ > 0.
        - `pld`: with DP-SGD steps, where all else is Gaussian or pure: the privacy loss
          distributions convolved, δ > 0.

        Every value is an upper end. The sampler's statistical distance γ (`slack`) is paid for:
        an (ε, δ′) law sampled within γ is (ε, δ′ + (1 + e^ε)·γ)-DP, so that δ′ = δ − (1 + e^ε)·γ.

        Raises:
            ValueError: not 0 ≤ delta < 1.
        """
        check_delta(delta)
        mu, rho, pure = root_up(self.mu_squared), self.rho, round_up(self.pure_epsilon)
        curves: dict[str, Callable[[float], float]] = {}
        if self.gaussians == self.releases:
            curves["exact"] = lambda slice_: gaussian_epsilon(mu, slice_)
        curves["cks20"] = lambda slice_: cks20_epsilon(rho, slice_)
        curves["zcdp"] = lambda slice_: zcdp_epsilon(rho, slice_)
        if self.pures == self.releases:
            curves["pure"] = lambda slice_: pure
        elif self.pures and self.gaussians + self.pures == self.releases:
            # Basic composition of (Σε, 0) and (ε′, δ): Dwork & Roth 2014, Theorem 3.16.
            curves["mixed"] = lambda slice_: sum_up(pure, gaussian_epsilon(mu, slice_))
        elif self.pures:
            rest = round_up(self.rho_exact - self.pure_rho)
            curves["mixed"] = lambda slice_: sum_up(pure, cks20_epsilon(rest, slice_))
        if self.samples:
            steps, others = self.sampled, round_up(self.rho_exact - self._sampled_rho())
            curves["rdp"] = lambda slice_: subsampled.rdp_epsilon(steps, delta=slice_, rho=others)
            if self.gaussians + self.pures + self.samples == self.releases:
                curves["pld"] = lambda slice_: subsampled.pld_epsilon(
                    steps, delta=slice_, mu=mu, pure=pure
                )
        values = {name: self._with_slack(curve, delta) for name, curve in curves.items()}
        return {name: value for name, value in values.items() if math.isfinite(value)}

    def _sampled_rho(self) -> Fraction:
        return sum((kind.rho * count for kind, count in self.sampled), _ZERO)

    def epsilon(self, delta: float) -> tuple[str, float]:
        """The name and value of the lowest of `epsilons`; ("none", ∞) where none is finite."""
        values = self.epsilons(delta)
        return min(values.items(), key=lambda item: item[1]) if values else ("none", math.inf)

    def slack_delta(self, epsilon: float) -> float:
        """The part of δ that the samplers take at ε: (1 + e^ε)·γ, rounded up; ∞ on overflow."""
        if not self.slack:
            return 0.0
        if epsilon > 700:  # e^ε is near the largest float
            return math.inf
        return round_up(self.slack) * (1 + math.exp(epsilon)) * (1 + 1e-15)

    def _with_slack(self, curve: Callable[[float], float], delta: float) -> float:
        """The least ε found with curve(δ − slack_delta(ε)) ≤ ε; ∞ where there is none."""
        guess = curve(delta)
        if not self.slack or math.isinf(guess):
            return guess
        for _ in range(100):
            left = delta - self.slack_delta(guess)
            if left < 0:
                return math.inf
            needed = curve(math.nextafter(left, 0.0))
            if needed <= guess:  # (needed, δ′) implies (guess, δ′)
                return guess
            guess = needed * (1 + 1e-12)
        return math.inf

    def to_json(self) -> dict[str, Any]:
        """Counts as integers, sums as "numerator/denominator": nothing is lost."""
        names = [f.name for f in fields(self) if self.samples or f.name not in _SAMPLED]
        values = {name: getattr(self, name) for name in names}
        if self.samples:
            values["sampled"] = [{**asdict(kind), "count": n} for kind, n in self.sampled]
        kept = _COUNTS | {"sampled"}
        return {k: v if k in kept else str(v) for k, v in values.items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Composition:
        """The composition that `to_json` wrote. Raises ValueError on anything else."""
        _check_keys(cls, values)
        read: dict[str, Any] = {
            name: value if name in _COUNTS else read_fraction(name, value)
            for name, value in values.items()
            if name != "sampled"
        }
        if "sampled" in values:
            steps = [dict(step) for step in values["sampled"]]
            counts = [step.pop("count") for step in steps]
            kinds = [subsampled.Steps(**step) for step in steps]
            read["sampled"] = tuple(sorted(zip(kinds, counts, strict=True)))
        return cls(**read)
