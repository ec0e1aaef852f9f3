"""An audit: attacks on many worlds, bounds from what they saw, and a second look at what refutes.

The event of a bound is chosen on a tenth of the worlds and counted on the rest. α is shared by all
comparisons of an audit. What refutes a claim at the asked confidence is looked at once more, alone,
at 1 − 10⁻⁶ on four times as many fresh worlds, with the same event: at 95 % one honest audit in
twenty would refute.

Also here: the audit of a job's released model, by attacks that train it many times over.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.threat_model import Adversary, Unit
from parley.privacy.audit.claimed_curve import ClaimedCurve
from parley.privacy.audit.event_counts import Event, alpha_of, pilot_size
from parley.privacy.audit.world_pair import pair_ceiling
from parley.server.jobs.job import Job
from parley.simulations.audit.audit_methods import METHODS, Seen
from parley.simulations.audit.audit_results import (
    CONFIRMED,
    AuditReport,
    AuditResult,
    Claim,
    Finding,
    looked_again,
)
from parley.simulations.audit.audit_target import Audited, as_it_runs, audited, stage_names
from parley.simulations.audit.federation_templates import LEARNERS, AuditError
from parley.simulations.audit.model_attacks import TRAININGS
from parley.simulations.audit.neighbouring_worlds import ATTACKS, neighbours
from parley.simulations.audit.observed_worlds import Observed, Pair, hypotheses, observe, reach
from parley.simulations.audit.world_batch import Source
from parley.simulations.data.experiment import load_experiment
from parley.simulations.data.row_cache import held_mib, peak_mib

_LEAST_TRIALS = 20

Rates = tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much an audit asks for.

    Attributes:
        trials: worlds with the canary, and as many without; None: as many as are cheap.
        confidence: 1 − α, of all bounds of one audit together.
        attacks, methods: names; empty: those that fit.
    """

    trials: int | None = None
    confidence: float = 0.95
    attacks: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        try:
            alpha_of(self.confidence)
        except ValueError as error:
            raise AuditError(str(error)) from error
        if self.trials is not None and self.trials < _LEAST_TRIALS:
            raise AuditError(f"Expected trials >= {_LEAST_TRIALS}, got {self.trials}.")
        for kind, asked, known in (
            ("attacks", self.attacks, {**ATTACKS, **TRAININGS}),
            ("methods", self.methods, METHODS),
        ):
            unknown = [name for name in asked if name not in known]
            if unknown:
                raise AuditError(f"Expected {kind} of {', '.join(known)}, got {unknown[0]!r}.")


def audit(job: Job, effort: Effort, **shape: Any) -> list[AuditReport]:
    """Every guarantee of a job, each by its own audit, in worlds of a shape (`audited`)."""
    return [audit_guarantee(each, effort) for each in views_of(job, seed=effort.seed, **shape)]


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


def trials_of(given: Audited, *, short: bool = False) -> int:
    """As many worlds as are cheap, many or few: networks cost more, ways without a batch most."""
    job, slow = given.job, given.answer.slow
    split = given.charged.shares is not None
    shared = split if job is None else job.privacy.point.in_contributions
    if job is None or (LEARNERS[job.model.learns].cheap and not slow):
        return (500 if shared else 5_000) if short else 100_000
    party = job.privacy.unit == "party"
    by_cost = (
        # Every party of every world trains by itself.
        (party and (shared or job.parties.per_round != "all"), 2_000, 30),
        (slow, 1_000, 40),
        (party, 20_000, 1_500),
        (job.dp_sgd.per_example_method == "vmap", 200, 30),
        (True, 5_000, 300),
    )
    many, few = next((many, few) for costs, many, few in by_cost if costs)
    return few if short else many


def audit_guarantee(given: Audited, effort: Effort) -> AuditReport:
    """One guarantee, by all attacks and methods that are asked for and fit."""
    names = effort.attacks or [name for name, each in ATTACKS.items() if each.fits(given)]
    effort = replace(effort, trials=effort.trials or trials_of(given))
    return audit_by(dict.fromkeys(names, given), effort)


def audit_by(targets: Mapping[str, Audited], effort: Effort, **environment: Any) -> AuditReport:
    """One claim by several attacks, each on its own of what is audited for it."""
    by_attack = {name: _methods_of(given, effort) for name, given in targets.items()}
    comparisons = sum(map(len, by_attack.values()))
    results: list[AuditResult] = []
    roc: dict[str, Rates] = {}
    for name, given in targets.items():
        found, roc[name] = _attacked(given, name, by_attack[name], effort, comparisons)
        results += found
    return report_of(given, effort, results, roc, **environment)


def _methods_of(given: Audited, effort: Effort) -> list[str]:
    fitting = [name for name, method in METHODS.items() if method.fits(given)]
    wrong = [name for name in effort.methods if name not in fitting]
    if wrong:
        raise AuditError(
            f"Expected a method that fits this claim ({', '.join(fitting)}), got {wrong[0]!r}."
        )
    return list(effort.methods) or fitting


def report_of(
    given: Audited,
    effort: Effort,
    results: Sequence[AuditResult],
    roc: dict[str, Rates],
    **environment: Any,
) -> AuditReport:
    """What was found of one guarantee, beside its claim, and how the audited job differs."""
    claim = Claim(
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
    return AuditReport(
        claim=claim,
        results=tuple(results),
        environment={
            "changed": list(given.changed),
            **asdict(given.shape),
            "dimension": given.plan.dimension,
            "algorithm": given.algorithm.kind,
            **environment_of(effort, delta=given.delta),
            **environment,
        },
        confidence=effort.confidence,
        roc=roc,
        claimed_curve=rates_of(given.spent, given.delta),
    )


def environment_of(effort: Effort, *, delta: float) -> dict[str, Any]:
    """How much was asked for, and versions."""
    alpha = 1 - effort.confidence
    return {
        "seed": effort.seed,
        "trials": effort.trials,
        "ceiling_of_trials": pair_ceiling(effort.trials or 1, alpha=alpha, delta=delta),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
    }


def _attacked(
    given: Audited, name: str, methods: list[str], effort: Effort, comparisons: int
) -> tuple[list[AuditResult], Rates]:
    """What every method found of one attack, and the empirical error rates."""
    began, held = time.perf_counter(), held_mib()
    look, reached = _target(given, name)
    source = Source(
        seed=effort.seed,
        names=("audit", given.algorithm.kind, str(given.unit), str(given.against), name),
    )
    trials = effort.trials or _LEAST_TRIALS
    alpha = (1 - effort.confidence) / comparisons

    def seen_by(method: str, pair: Pair, at: float) -> Seen:
        return Seen(
            audited=given,
            event=events.get(method),
            inside=pair[0],
            outside=pair[1],
            reach=reached,
            alpha=at,
        )

    def found(names: list[str], pair: Pair, at: float) -> dict[str, Finding]:
        return {name: METHODS[name].find(seen_by(name, pair, at)) for name in names}

    events: dict[str, Event] = {}
    choosing = {method: choose for method in methods if (choose := METHODS[method].event)}
    first = pilot_size(trials) if choosing else 0
    if choosing:
        pilot = look(first, source.of("pilot"))
        for method, choose in choosing.items():
            events[method] = choose(seen_by(method, pilot, alpha), trials - first)
    counted = look(trials - first, source.of("count"))
    seconds = time.perf_counter() - began
    findings = looked_again(
        found(methods, counted, alpha),
        lambda doubtful: found(doubtful, look(4 * trials, source.of("confirm")), CONFIRMED),
    )
    training: Any = getattr(given.algorithm, "training", None)
    clips = training is not None and training.clip_norm is not None
    results = [
        AuditResult(
            **vars(finding) | {"assumption": METHODS[method].assumption},
            attack=name,
            way=training.per_example_method if clips else "",
            method=method,
            trials_in=trials - first,
            trials_out=trials - first,
            trials_threshold=first,
            alpha=alpha,
            comparisons=comparisons,
            reach=reached,
            seconds=seconds,
            trials_per_second=2 * trials / max(seconds, 1e-9),
            peak_mib=peak_mib(),
            worlds_mib=max(peak_mib() - held, 0.0),
        )
        for method, finding in findings.items()
    ]
    return results, error_rates(counted[0].scores, counted[1].scores)


def _target(given: Audited, name: str) -> tuple[Callable[[int, Source], Pair], float | None]:
    """How many worlds, and their randomness → what is seen of them; and how far apart they are."""
    if given.records is not None:
        return partial(TRAININGS[name], given), None
    worlds = neighbours(given, name)
    expected = hypotheses(given, worlds)

    def look(count: int, source: Source) -> Pair:
        def seen(inside: bool) -> Observed:
            own = source.of("in" if inside else "out")
            return observe(given, worlds, expected, inside=inside, count=count, source=own)

        return seen(True), seen(False)

    return look, reach(given, expected)


def error_rates(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> Rates:
    """(false positives, false negatives) at 60 thresholds, from 10⁻⁴ of either on."""
    quantiles = 1 / (1 + np.exp(-np.linspace(-9, 9, 60)))
    pooled = np.concatenate([inside, outside])
    thresholds = np.quantile(pooled, quantiles, overwrite_input=True)  # a copy less
    del pooled
    positives = 1 - np.searchsorted(np.sort(outside), thresholds) / outside.size
    negatives = np.searchsorted(np.sort(inside), thresholds) / inside.size
    pairs = zip(positives.tolist(), negatives.tolist(), strict=True)
    return tuple((float(a), float(b)) for a, b in pairs)


def rates_of(spent: Composition, delta_of_claim: float) -> Rates:
    """(false positives, least false negatives) of all that is charged: max of its points' lines."""
    epsilon, delta = np.array(ClaimedCurve.of(spent, delta=delta_of_claim, points=40).points).T
    # Denser at both ends, for axes of logarithms.
    positives = 1 / (1 + np.exp(-np.linspace(-12, 12, 80)))
    lines = np.maximum(
        1 - delta - np.exp(epsilon) * positives[:, None],
        np.exp(-epsilon) * (1 - delta - positives[:, None]),
    )
    negatives = np.maximum(lines.max(axis=1), 0.0)
    return tuple(zip(positives.tolist(), negatives.tolist(), strict=True))


_TRIALS = 400
"""Worlds with a canary, and as many without, unless the audit is asked for others."""

_SYNTHETIC = {
    "source": "synthetic",
    "schema": "",
    "partition": "iid",
    "test-source": "",
    "test-schema": "",
}


def audit_released(job: Job, effort: Effort, *, own_records: bool = False) -> AuditReport:
    """What readers of the job's model get, by the attacks of `effort`: names of `TRAININGS`.

    Args:
        own_records: train on the job's own, of which the scores then say something.

    Raises:
        AuditError: an attack of another kind, methods that are asked for, or a job that has no
            such model.
    """
    wrong = [name for name in effort.attacks if name not in TRAININGS]
    if wrong or effort.methods or not effort.attacks:
        raise AuditError(
            f"Expected attacks on the released model alone ({', '.join(TRAININGS)}), by their own "
            f"methods, got {', '.join([*wrong, *effort.methods]) or 'none'}."
        )
    if not job.run.in_process:
        raise AuditError(
            f"Expected run.engine = 'fast', got {job.run.engine!r}: an audit is never part of a "
            "deployment."
        )
    if not own_records:
        plain = job.values()
        plain["data"] |= _SYNTHETIC
        job = Job.model_validate(plain)
    world = load_experiment(job)
    job = job.settled(world.federation, world.data.classes)
    targets = {
        name: as_it_runs(job, world, by_halves=name == "membership", seed=effort.seed)
        for name in effort.attacks
    }
    effort = replace(effort, trials=effort.trials or _TRIALS)
    return audit_by(targets, effort, own_records=own_records)
