"""Define the results of an audit, as they are written to `audit.json`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from parley.privacy.audit.event_counts import Hits
from parley.privacy.audit.two_world_bounds import compute_pair_ceiling, compute_pair_epsilon

Verdict = Literal["not-refuted", "refuted", "loose"]

CONFIRMED = 1e-6
"""α of the confirmation."""

LOOSE = 1.05
"""Noise that is surely larger than this factor of the claimed is a warning: no lower bound
detects excess noise.
"""


@dataclass(frozen=True, kw_only=True)
class AuditClaim:
    """The audited claim, in plain values.

    Attributes:
        curve: gaussian if μ is claimed, else the accountant's.
        release: what is released: an algorithm's rounds, a stage before or after them, or queries.
        mu: √Σμ², if it is claimed.
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
class Finding:
    """The result of one method.

    Attributes:
        epsilon_lower: the bound; None if the method has none.
        confirmed: repeated alone, at 1 − 10⁻⁶, on four times as many fresh trials; None: not tried.
        hits_in, hits_out: of the event; 0 without an event.
        ceiling: maximum that this number of trials can certify; None if there is no maximum.
        fraction_of_claim: of ε; of μ if it is bounded.
        noise_scale: bounds of the noise's scale relative to the claimed, at this α.
    """

    assumption: str = "none"
    epsilon_lower: float | None
    refuted: bool
    confirmed: bool | None = None
    hits_in: int = 0
    hits_out: int = 0
    threshold: float | None = None
    ceiling: float | None = None
    mu_lower: float | None = None
    fraction_of_claim: float | None = None
    noise_scale: tuple[float, float] | None = None
    note: str = ""


def build_pair_finding(
    hits: tuple[Hits, Hits], *, alpha: float, delta: float, claimed: float, **more: Any
) -> Finding:
    """Build the finding for one event's hits in trials with and without the canary."""
    epsilon = compute_pair_epsilon(*hits, alpha=alpha, delta=delta)
    return Finding(
        epsilon_lower=epsilon,
        refuted=epsilon > claimed,
        ceiling=compute_pair_ceiling(hits[0].trials, alpha=alpha, delta=delta),
        hits_in=hits[0].hits,
        hits_out=hits[1].hits,
        # If δ alone covers the claim, there is no fraction of it.
        fraction_of_claim=epsilon / claimed if claimed else None,
        **more,
    )


def confirm_refutations(
    findings: dict[str, Finding], repeat: Callable[[list[str]], dict[str, Finding]]
) -> dict[str, Finding]:
    """Return findings by method, with those that refute repeated at α = `CONFIRMED`."""
    doubtful = [name for name, each in findings.items() if each.refuted]
    sure = repeat(doubtful) if doubtful else {}
    checked = {each: replace(findings[each], confirmed=sure[each].refuted) for each in doubtful}
    return findings | checked


@dataclass(frozen=True, kw_only=True)
class AuditResult(Finding):
    """One attack with one method.

    Attributes:
        way: how per-record gradients were computed; empty if there is only one method.
        trials_in, trials_out: counted trials, with the canary and without.
        trials_threshold: trials that chose the event.
        alpha: of this bound: the audit's, divided by the number of its comparisons.
        reach: share of the sensitivity that the canaries reach; None for attacks on the released
            model, and for noise inside an objective.
        peak_mib: of the process; `worlds_mib` of that are above its memory before the first trial,
            which is Python, the libraries and the plan. None if trials are not in blocks.
    """

    attack: str
    way: str = ""
    method: str
    trials_in: int
    trials_out: int
    trials_threshold: int
    alpha: float
    comparisons: int
    reach: float | None = None
    seconds: float
    trials_per_second: float
    peak_mib: float
    worlds_mib: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        plain = asdict(self)
        if self.threshold is not None and not math.isfinite(self.threshold):
            plain["threshold"] = None
        return plain


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """The audit of one guarantee.

    Attributes:
        environment: how the audited job differs, versions, randomness.
        roc: empirical error rates (false positives, false negatives) by attack.
        claimed_curve: (false positives, minimum false negatives) of the claim.
    """

    claim: AuditClaim
    results: tuple[AuditResult, ...]
    environment: dict[str, Any]
    confidence: float
    roc: dict[str, tuple[tuple[float, float], ...]]
    claimed_curve: tuple[tuple[float, float], ...]

    @property
    def verdict(self) -> Verdict:
        """Refuted if a result was confirmed; loose if the noise is surely too large."""
        if any(each.confirmed for each in self.results):
            return "refuted"
        scales = [each.noise_scale for each in self.results if each.noise_scale]
        return "loose" if any(low > LOOSE for low, _ in scales) else "not-refuted"

    def to_json(self) -> dict[str, Any]:
        """Return plain values, the verdict first."""
        return {
            "verdict": self.verdict,
            "simulation_only": True,
            **asdict(self),
            "results": [each.to_json() for each in self.results],
        }


def combine_verdicts(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst verdict of several audits."""
    found = set(verdicts)
    return next((worst for worst in ("refuted", "loose") if worst in found), "not-refuted")
