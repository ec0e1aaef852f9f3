"""What an audit found, as it is written to `audit.json`."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["not-refuted", "refuted", "loose"]

LOOSE = 1.05
"""Noise of surely more than this, over the claimed, is a warning: no lower bound sees too much."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What is audited.

    Attributes:
        epsilon: what all releases are charged at δ.
        unit, neighbouring: of the claim.
        against: whom it holds against.
        law: of the noise.
        curve: gaussian where μ is claimed, else the accountant's.
        accountant: by whose account ε is.
        release: what is released: an algorithm's rounds, a stage beside them, or queries.
        rounds: number of releases.
        mu: √Σμ², where it is claimed.
    """

    epsilon: float
    delta: float
    unit: str
    neighbouring: str
    against: str
    law: str
    curve: str
    accountant: str
    release: str
    rounds: int
    mu: float | None


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """One attack under one assumption.

    Attributes:
        attack: its name.
        way: how per-record gradients were computed; empty where there is only one.
        method: pair, mu, profile, factor or white.
        assumption: none, or what the bound presumes.
        trials_in, trials_out: worlds that were counted, with the canary and without.
        trials_threshold: worlds that chose the event.
        hits_in, hits_out: of the event; 0 where there is none.
        threshold: of the score.
        alpha: of this bound: the audit's, over the number of its comparisons.
        comparisons: how many.
        epsilon_lower: the bound; None where the method has none.
        ceiling: the most that so many trials can certify; None where there is no such end.
        mu_lower: of the Gaussian curve.
        fraction_of_claim: of ε; of μ where it is bounded.
        reach: of the sensitivity, by the canaries; None for attacks on the released model, and for
            noise inside an objective.
        noise_scale: limits of the noise's scale over the claimed, at this α.
        refuted: at the asked confidence.
        confirmed: alone, at 1 − 10⁻⁶, on four times as many fresh trials; None: not tried.
        note: what was found, in words.
        peak_mib: of the process; `worlds_mib` of that are above what it held before the first
            world, which is Python, the libraries and the plan. None where no worlds are in blocks.
    """

    attack: str
    way: str
    method: str
    assumption: str
    trials_in: int
    trials_out: int
    trials_threshold: int
    hits_in: int = 0
    hits_out: int = 0
    threshold: float | None = None
    alpha: float
    comparisons: int
    epsilon_lower: float | None
    ceiling: float | None = None
    mu_lower: float | None = None
    fraction_of_claim: float | None = None
    reach: float | None
    noise_scale: tuple[float, float] | None = None
    refuted: bool
    confirmed: bool | None = None
    note: str = ""
    seconds: float
    trials_per_second: float
    peak_mib: float
    worlds_mib: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        plain = asdict(self)
        if self.threshold is not None and not math.isfinite(self.threshold):
            plain["threshold"] = None
        return plain


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """One guarantee, audited.

    Attributes:
        claim: what was claimed.
        results: by attack and method.
        environment: how the audited job differs, versions, randomness.
        confidence: asked for.
        roc: empirical error rates (false positives, false negatives) by attack.
        claimed_curve: (false positives, least false negatives) of the claim.
    """

    claim: Claim
    results: tuple[AuditResult, ...]
    environment: dict[str, Any]
    confidence: float
    roc: dict[str, tuple[tuple[float, float], ...]]
    claimed_curve: tuple[tuple[float, float], ...]

    @property
    def verdict(self) -> Verdict:
        """Refuted where a result was confirmed; loose where the noise is surely too large."""
        if any(each.confirmed for each in self.results):
            return "refuted"
        scales = [each.noise_scale for each in self.results if each.noise_scale]
        return "loose" if any(low > LOOSE for low, _ in scales) else "not-refuted"

    def to_json(self) -> dict[str, Any]:
        """Plain values, the verdict first."""
        return {
            "verdict": self.verdict,
            "simulation_only": True,
            "confidence": self.confidence,
            "claim": asdict(self.claim),
            "environment": self.environment,
            "results": [each.to_json() for each in self.results],
            "roc": {name: [list(point) for point in points] for name, points in self.roc.items()},
            "claimed_curve": [list(point) for point in self.claimed_curve],
        }


def combined(verdicts: list[Verdict]) -> Verdict:
    """Of several audits: the worst."""
    for worst in ("refuted", "loose"):
        if worst in verdicts:
            return worst
    return "not-refuted"
