"""An audit: attacks on many worlds, bounds from what they saw, and a second look at what refutes.

The event of a bound is chosen on a tenth of the worlds and counted on the rest. α is shared by all
comparisons of an audit. What refutes a claim at the asked confidence is looked at once more, alone,
at 1 − 10⁻⁶ on four times as many fresh worlds, with the same event: at 95 % one honest audit in
twenty would refute.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.guarantee import Adversary, Unit
from parley.privacy.audit.claimed_curve import ClaimedCurve
from parley.privacy.audit.counts import check_confidence
from parley.privacy.audit.events import pilot_size
from parley.privacy.audit.pair import pair_ceiling
from parley.server.jobs.job import Job
from parley.simulations.audit.audited import Audited, audited, stage_names
from parley.simulations.audit.hypotheses import hypotheses, reach
from parley.simulations.audit.methods import (
    METHODS,
    Pilot,
    Pilots,
    Seen,
    choose_events,
    fitting_methods,
)
from parley.simulations.audit.neighbours import ATTACKS, Neighbours, neighbours
from parley.simulations.audit.observed import Observed, observe
from parley.simulations.audit.results import AuditReport, AuditResult, Claim
from parley.simulations.audit.scores import Hypotheses
from parley.simulations.audit.smaller import AuditError
from parley.simulations.audit.trainings import TRAININGS
from parley.simulations.audit.worlds import Source
from parley.simulations.data.keeping import held_mib, peak_mib

CONFIRMED = 1e-6
"""α of the second look."""

_LEAST_TRIALS = 20


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much an audit asks for.

    Attributes:
        trials: worlds with the canary, and as many without.
        confidence: 1 − α, of all bounds of one audit together.
        attacks: names of attacks; empty: those that fit.
        methods: names of methods; empty: those that fit.
        seed: of worlds; None for the operating system's entropy.
    """

    trials: int = 100_000
    confidence: float = 0.95
    attacks: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        try:
            check_confidence(self.confidence)
        except ValueError as error:
            raise AuditError(str(error)) from error
        if self.trials < _LEAST_TRIALS:
            raise AuditError(f"Expected trials >= {_LEAST_TRIALS}, got {self.trials}.")
        for kind, asked, known in (
            ("attacks", self.attacks, {**ATTACKS, **TRAININGS}),
            ("methods", self.methods, METHODS),
        ):
            unknown = [name for name in asked if name not in known]
            if unknown:
                raise AuditError(f"Expected {kind} of {', '.join(known)}, got {unknown[0]!r}.")


def audit(
    job: Job,
    effort: Effort,
    *,
    observe_result: Callable[[AuditReport], None] | None = None,
    **shape: Any,
) -> list[AuditReport]:
    """Every guarantee of a job, each by its own audit.

    Args:
        shape: of the worlds; see `parley.simulations.audit.audited.audited`.

    Raises:
        AuditError: an attack or a method that does not fit.
        JobError, CalibrationError, RingTooSmall: as planning the job would.
    """
    reports = []
    for each in views_of(job, seed=effort.seed, **shape):
        reports.append(audit_guarantee(each, effort))
        if observe_result:
            observe_result(reports[-1])
    return reports


def views_of(job: Job, *, seed: int | None, **shape: Any) -> Iterator[Audited]:
    """All that a job claims: of every unit, each of its releases, against each who looks."""
    for budget in job.budgets:
        for stage in stage_names(job):
            yield from views(audited(job, Unit(budget.unit), stage=stage, seed=seed, **shape))


def views(own: Audited) -> Iterator[Audited]:
    """One claim, and what readers of the whole sum learn where noise is in shares."""
    yield own
    if own.charged.shares is not None:
        yield replace(own, against=Adversary.READERS)


def audit_guarantee(given: Audited, effort: Effort) -> AuditReport:
    """One guarantee, by all attacks and methods that are asked for and fit.

    Raises:
        AuditError: one that does not fit.
    """
    attacks = effort.attacks or _usual_attacks(given)
    methods = _methods(given, effort.methods)
    comparisons = len(attacks) * len(methods)
    alpha = (1 - effort.confidence) / comparisons
    names = ("audit", given.algorithm.kind, str(given.unit), str(given.against))
    source = Source(seed=effort.seed, names=names)
    results: list[AuditResult] = []
    roc: dict[str, tuple[tuple[float, float], ...]] = {}
    for name in attacks:
        attack = _Attack(
            given=given, worlds=neighbours(given, name), name=name, source=source.of(name)
        )
        found, curve = attack.run(methods, effort.trials, alpha, comparisons)
        results += found
        roc[name] = curve
    return AuditReport(
        claim=claim_of(given),
        results=tuple(results),
        environment=environment_of(given, effort),
        confidence=effort.confidence,
        roc=roc,
        claimed_curve=claimed_rates(given),
    )


def _usual_attacks(given: Audited) -> tuple[str, ...]:
    return tuple(name for name, attack in ATTACKS.items() if attack.fits(given))


def _methods(given: Audited, asked: Sequence[str]) -> list[str]:
    fitting = fitting_methods(given)
    wrong = [name for name in asked if name not in fitting]
    if wrong:
        raise AuditError(
            f"Expected a method that fits this claim ({', '.join(fitting)}), got {wrong[0]!r}."
        )
    return list(asked) or fitting


class _Attack:
    """One attack on one guarantee."""

    def __init__(self, *, given: Audited, worlds: Neighbours, name: str, source: Source) -> None:
        self._given, self._worlds, self._name, self._source = given, worlds, name, source
        self._hypotheses: Hypotheses = hypotheses(given, worlds)
        self._reach = reach(given, self._hypotheses)
        self._held = 0.0

    def run(
        self, methods: list[str], trials: int, alpha: float, comparisons: int
    ) -> tuple[list[AuditResult], tuple[tuple[float, float], ...]]:
        """What every method found, and the empirical error rates."""
        began, self._held = time.perf_counter(), held_mib()
        pilot_trials = pilot_size(trials)
        first = self._both("pilot", pilot_trials)
        pilot = choose_events(
            methods,
            Pilots(
                audited=self._given,
                inside=first[0].scores,
                outside=first[1].scores,
                trials=trials - pilot_trials,
                alpha=alpha,
            ),
        )
        rest = self._both("count", trials - pilot_trials)
        seconds = time.perf_counter() - began
        rate = 2 * trials / max(seconds, 1e-9)
        found = [
            self._result(method, pilot, rest, alpha, comparisons, seconds, rate)
            for method in methods
        ]
        doubtful = [each.method for each in found if each.refuted]
        if doubtful:
            again = self._both("confirm", 4 * trials)
            sure = {
                method: self._result(method, pilot, again, CONFIRMED, 1, seconds, rate).refuted
                for method in doubtful
            }
            found = [
                replace(each, confirmed=sure[each.method]) if each.refuted else each
                for each in found
            ]
        return found, error_rates(rest[0].scores, rest[1].scores)

    def _both(self, purpose: str, count: int) -> tuple[Observed, Observed]:
        inside, outside = (
            observe(
                self._given,
                self._worlds,
                self._hypotheses,
                inside=inside,
                count=count,
                source=self._source.of(purpose, "in" if inside else "out"),
            )
            for inside in (True, False)
        )
        return inside, outside

    def _result(
        self,
        method: str,
        pilot: Pilot,
        seen: tuple[Observed, Observed],
        alpha: float,
        comparisons: int,
        seconds: float,
        rate: float,
    ) -> AuditResult:
        how = METHODS[method]
        event = pilot.events.get(method)
        finding = how.find(
            Seen(
                audited=self._given,
                event=event,
                inside=seen[0],
                outside=seen[1],
                reach=self._reach,
                alpha=alpha,
            )
        )
        return AuditResult(
            attack=self._name,
            way=_way(self._given),
            method=method,
            assumption=how.assumption,
            trials_in=seen[0].scores.size,
            trials_out=seen[1].scores.size,
            trials_threshold=pilot.trials,
            hits_in=finding.hits[0],
            hits_out=finding.hits[1],
            threshold=finding.threshold,
            alpha=alpha,
            comparisons=comparisons,
            epsilon_lower=finding.epsilon_lower,
            ceiling=finding.ceiling,
            mu_lower=finding.mu_lower,
            fraction_of_claim=finding.fraction,
            reach=self._reach,
            noise_scale=finding.noise_scale,
            refuted=finding.refuted,
            note=finding.note,
            seconds=seconds,
            trials_per_second=rate,
            peak_mib=peak_mib(),
            worlds_mib=max(peak_mib() - self._held, 0.0),
        )


def _way(given: Audited) -> str:
    training: Any = getattr(given.algorithm, "training", None)
    return "" if training is None or training.clip_norm is None else training.per_example_method


def claim_of(given: Audited) -> Claim:
    """What is audited, in plain values."""
    return Claim(
        epsilon=given.epsilon,
        delta=given.delta,
        unit=str(given.unit),
        neighbouring=str(given.guarantee.neighbouring),
        against=str(given.against),
        law=given.charged.mechanism.law,
        curve="gaussian" if given.mu is not None else given.accountant,
        accountant=given.accountant,
        release=given.release,
        rounds=given.rounds,
        mu=given.mu,
    )


def environment_of(given: Audited, effort: Effort) -> dict[str, Any]:
    """How the audited job differs, how much was asked for, versions."""
    return {
        "changed": list(given.changed),
        "parties": given.shape.parties,
        "records": given.shape.records,
        "features": given.shape.features,
        "dimension": given.plan.dimension,
        "algorithm": given.algorithm.kind,
        **environment_without(effort, delta=given.delta),
    }


def environment_without(effort: Effort, *, delta: float) -> dict[str, Any]:
    """The same but for the job: how much was asked for, versions."""
    alpha = 1 - effort.confidence
    return {
        "seed": effort.seed,
        "trials": effort.trials,
        "ceiling_of_trials": pair_ceiling(effort.trials, alpha=alpha, delta=delta),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
    }


def error_rates(
    inside: NDArray[np.float64], outside: NDArray[np.float64]
) -> tuple[tuple[float, float], ...]:
    """(false positives, false negatives) at 60 thresholds, from 10⁻⁴ of either on."""
    quantiles = 1 / (1 + np.exp(-np.linspace(-9, 9, 60)))
    pooled = np.concatenate([inside, outside])
    thresholds = np.quantile(pooled, quantiles, overwrite_input=True)  # a copy less
    del pooled
    positives = 1 - np.searchsorted(np.sort(outside), thresholds) / outside.size
    negatives = np.searchsorted(np.sort(inside), thresholds) / inside.size
    pairs = zip(positives.tolist(), negatives.tolist(), strict=True)
    return tuple((float(a), float(b)) for a, b in pairs)


def claimed_rates(given: Audited) -> tuple[tuple[float, float], ...]:
    """(false positives, least false negatives) of the claim."""
    return rates_of(given.spent, given.delta)


def rates_of(spent: Composition, delta_of_claim: float) -> tuple[tuple[float, float], ...]:
    """The same of all that is charged: max of the lines of its points."""
    epsilon, delta = np.array(ClaimedCurve.of(spent, delta=delta_of_claim, points=40).points).T
    # Denser at both ends, for axes of logarithms.
    positives = 1 / (1 + np.exp(-np.linspace(-12, 12, 80)))
    lines = np.maximum(
        1 - delta - np.exp(epsilon) * positives[:, None],
        np.exp(-epsilon) * (1 - delta - positives[:, None]),
    )
    negatives = np.maximum(lines.max(axis=1), 0.0)
    return tuple(zip(positives.tolist(), negatives.tolist(), strict=True))
