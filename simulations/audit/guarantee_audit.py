"""Audit a guarantee: attack many trials, derive bounds, and confirm what refutes a claim.

A tenth of the trials choose the event of a bound; it is counted on the rest. All comparisons of an
audit share α. A refutation at the requested confidence is repeated once, alone, at 1 − 10⁻⁶ on four
times as many fresh trials, with the same event. At 95 % alone, one honest audit in twenty would
refute.

`audit_released` audits a job's released model, with attacks that train it many times.
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
from parley.privacy.audit.event_counts import ScoreEvent, compute_alpha, compute_pilot_size
from parley.privacy.audit.two_world_bounds import compute_pair_ceiling
from parley.safe_io.error_translation import translate_errors
from parley.server.jobs.job import Job
from parley.simulations.audit.audit_job_shrinking import LEARNERS, SYNTHETIC_DATA, AuditError
from parley.simulations.audit.audit_methods import METHODS, MethodInput
from parley.simulations.audit.audit_results import (
    CONFIRMED,
    AuditClaim,
    AuditReport,
    AuditResult,
    Finding,
    confirm_refutations,
)
from parley.simulations.audit.audit_target import (
    AuditTarget,
    build_target,
    build_unchanged_target,
    list_stages,
)
from parley.simulations.audit.model_attacks import TRAININGS
from parley.simulations.audit.neighbouring_worlds import ATTACKS, build_neighbours
from parley.simulations.audit.trial_observations import (
    ObservedWorlds,
    Pair,
    build_hypotheses,
    compute_reach,
    run_worlds,
)
from parley.simulations.audit.world_batch import WorldRandomness
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.data.memory_check import get_current_mib, get_peak_mib

_MIN_TRIALS = 20

Rates = tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much work an audit does.

    Attributes:
        trials: number of trials with the canary, and the same number without; None: as many as are
            cheap.
        confidence: 1 − α, of all bounds of one audit together.
        attacks, methods: names; empty: those that fit.
    """

    trials: int | None = None
    confidence: float = 0.95
    attacks: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        with translate_errors(ValueError, AuditError):
            compute_alpha(self.confidence)
        if self.trials is not None and self.trials < _MIN_TRIALS:
            raise AuditError(f"Expected trials >= {_MIN_TRIALS}, got {self.trials}.")
        for kind, asked, known in (
            ("attacks", self.attacks, {**ATTACKS, **TRAININGS}),
            ("methods", self.methods, METHODS),
        ):
            unknown = [name for name in asked if name not in known]
            if unknown:
                raise AuditError(f"Expected {kind} of {', '.join(known)}, got {unknown[0]!r}.")


def audit(job: Job, effort: Effort, **shape: Any) -> list[AuditReport]:
    """Audit every guarantee of a job, each on its own, in trials of a shape (`build_target`)."""
    targets = list_job_targets(job, seed=effort.seed, **shape)
    return [audit_guarantee(each, effort) for each in targets]


def list_job_targets(job: Job, *, seed: int | None, **shape: Any) -> Iterator[AuditTarget]:
    """Yield all claims of a job: for every unit, each of its releases, against each adversary."""
    for budget in job.budgets:
        for stage in list_stages(job):
            target = build_target(job, Unit(budget.unit), stage=stage, seed=seed, **shape)
            yield from list_views(target)


def list_views(target: AuditTarget) -> Iterator[AuditTarget]:
    """Yield one claim and, with noise in shares, what readers of the whole sum learn."""
    yield target
    if target.charged.shares is not None:
        yield replace(target, against=Adversary.READERS)


def choose_trials(target: AuditTarget, *, short: bool = False) -> int:
    """Return a cheap number of trials, large or small.

    Networks cost more, and methods without a batch cost most.
    """
    job, slow = target.job, target.response.slow
    split = target.charged.shares is not None
    shared = split if job is None else job.privacy.point.in_contributions
    if job is None or (LEARNERS[job.model.learns].cheap and not slow):
        return (500 if shared else 5_000) if short else 100_000
    party = job.privacy.unit == "party"
    by_cost = (
        # Every party of every trial trains on its own.
        (party and (shared or job.parties.per_round != "all"), 2_000, 30),
        (slow, 1_000, 40),
        (party, 20_000, 1_500),
        (job.dp_sgd.per_example_method == "vmap", 200, 30),
        (True, 5_000, 300),
    )
    many, few = next((many, few) for costs, many, few in by_cost if costs)
    return few if short else many


def audit_guarantee(target: AuditTarget, effort: Effort) -> AuditReport:
    """Audit one guarantee by all requested attacks and methods that fit."""
    names = effort.attacks or [name for name, each in ATTACKS.items() if each.is_applicable(target)]
    effort = replace(effort, trials=effort.trials or choose_trials(target))
    return audit_by_attacks(dict.fromkeys(names, target), effort)


def audit_by_attacks(
    targets: Mapping[str, AuditTarget], effort: Effort, **environment: Any
) -> AuditReport:
    """Audit one claim by several attacks, each on its own target."""
    by_attack = {name: _choose_methods(given, effort) for name, given in targets.items()}
    comparisons = sum(map(len, by_attack.values()))
    results: list[AuditResult] = []
    roc: dict[str, Rates] = {}
    for name, given in targets.items():
        found, roc[name] = _run_attack(given, name, by_attack[name], effort, comparisons)
        results += found
    return build_report(given, effort, results, roc, **environment)


def _choose_methods(target: AuditTarget, effort: Effort) -> list[str]:
    fitting = [name for name, method in METHODS.items() if method.is_applicable(target)]
    wrong = [name for name in effort.methods if name not in fitting]
    if wrong:
        raise AuditError(
            f"Expected a method that fits this claim ({', '.join(fitting)}), got {wrong[0]!r}."
        )
    return list(effort.methods) or fitting


def build_report(
    target: AuditTarget,
    effort: Effort,
    results: Sequence[AuditResult],
    roc: dict[str, Rates],
    **environment: Any,
) -> AuditReport:
    """Build the report on one guarantee: results, claim, and how the audited job differs."""
    claim = AuditClaim(
        epsilon=target.epsilon,
        delta=target.delta,
        unit=str(target.unit),
        neighbouring=str(target.guarantee.neighbouring),
        against=str(target.against),
        law=target.charged.mechanism.law,
        curve="gaussian" if target.mu is not None else target.accountant,
        accountant=target.accountant,
        release=target.release,
        rounds=target.rounds,
        mu=target.mu,
    )
    return AuditReport(
        claim=claim,
        results=tuple(results),
        environment={
            "changed": list(target.changed),
            **asdict(target.shape),
            "dimension": target.plan.dimension,
            "algorithm": target.algorithm.kind,
            **describe_environment(effort, delta=target.delta),
            **environment,
        },
        confidence=effort.confidence,
        roc=roc,
        claimed_curve=compute_claimed_rates(target.spent, target.delta),
    )


def describe_environment(effort: Effort, *, delta: float) -> dict[str, Any]:
    """Return the effort and versions."""
    alpha = 1 - effort.confidence
    return {
        "seed": effort.seed,
        "trials": effort.trials,
        "ceiling_of_trials": compute_pair_ceiling(effort.trials or 1, alpha=alpha, delta=delta),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
    }


def _run_attack(
    target: AuditTarget, name: str, methods: list[str], effort: Effort, comparisons: int
) -> tuple[list[AuditResult], Rates]:
    """Return what every method found for one attack, and the empirical error rates."""
    began, held = time.perf_counter(), get_current_mib()
    look, reached = _prepare_attack(target, name)
    names = ("audit", target.algorithm.kind, str(target.unit), str(target.against), name)
    source = WorldRandomness(seed=effort.seed, names=names)
    trials = effort.trials or _MIN_TRIALS
    alpha = (1 - effort.confidence) / comparisons

    def seen_by(method: str, pair: Pair, at: float) -> MethodInput:
        return MethodInput(
            target=target,
            event=events.get(method),
            inside=pair[0],
            outside=pair[1],
            reach=reached,
            alpha=at,
        )

    def found(names: list[str], pair: Pair, at: float) -> dict[str, Finding]:
        return {name: METHODS[name].find_bound(seen_by(name, pair, at)) for name in names}

    events: dict[str, ScoreEvent] = {}
    choosing = {method: choose for method in methods if (choose := METHODS[method].choose_event)}
    first = compute_pilot_size(trials) if choosing else 0
    if choosing:
        pilot = look(first, source.with_names("pilot"))
        for method, choose in choosing.items():
            events[method] = choose(seen_by(method, pilot, alpha), trials - first)
    counted = look(trials - first, source.with_names("count"))
    seconds = time.perf_counter() - began
    findings = confirm_refutations(
        found(methods, counted, alpha),
        lambda doubtful: found(doubtful, look(4 * trials, source.with_names("confirm")), CONFIRMED),
    )
    training: Any = getattr(target.algorithm, "training", None)
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
            peak_mib=get_peak_mib(),
            worlds_mib=max(get_peak_mib() - held, 0.0),
        )
        for method, finding in findings.items()
    ]
    return results, compute_error_rates(counted[0].scores, counted[1].scores)


def _prepare_attack(
    target: AuditTarget, name: str
) -> tuple[Callable[[int, WorldRandomness], Pair], float | None]:
    """Return the function from trials and randomness to observations, and the canaries' reach."""
    if target.records is not None:
        return partial(TRAININGS[name], target), None
    worlds = build_neighbours(target, name)
    expected = build_hypotheses(target, worlds)

    def look(count: int, source: WorldRandomness) -> Pair:
        def seen(inside: bool) -> ObservedWorlds:
            own = source.with_names("in" if inside else "out")
            return run_worlds(target, worlds, expected, inside=inside, count=count, source=own)

        return seen(True), seen(False)

    return look, compute_reach(target, expected)


def compute_error_rates(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> Rates:
    """Return (false positives, false negatives) at 60 thresholds, from 10⁻⁴ of either on."""
    quantiles = 1 / (1 + np.exp(-np.linspace(-9, 9, 60)))
    pooled = np.concatenate([inside, outside])
    thresholds = np.quantile(pooled, quantiles, overwrite_input=True)  # in place, to save a copy
    del pooled
    positives = 1 - np.searchsorted(np.sort(outside), thresholds) / outside.size
    negatives = np.searchsorted(np.sort(inside), thresholds) / inside.size
    pairs = zip(positives.tolist(), negatives.tolist(), strict=True)
    return tuple((float(a), float(b)) for a, b in pairs)


def compute_claimed_rates(spent: Composition, delta_of_claim: float) -> Rates:
    """Return (false positives, minimum false negatives) of all that is charged: max over its
    points' lines.
    """
    epsilon, delta = np.array(ClaimedCurve.of(spent, delta=delta_of_claim, points=40).points).T
    # Denser at both ends, for logarithmic axes.
    positives = 1 / (1 + np.exp(-np.linspace(-12, 12, 80)))
    lines = np.maximum(
        1 - delta - np.exp(epsilon) * positives[:, None],
        np.exp(-epsilon) * (1 - delta - positives[:, None]),
    )
    negatives = np.maximum(lines.max(axis=1), 0.0)
    return tuple(zip(positives.tolist(), negatives.tolist(), strict=True))


_TRIALS = 400
"""Default number of trials with a canary; the same number is without."""


def audit_released(job: Job, effort: Effort, *, own_records: bool = False) -> AuditReport:
    """Audit what readers of the job's model learn, by attacks named in `TRAININGS`.

    Args:
        own_records: train on the job's own records; the scores then reveal something about them.

    Raises:
        AuditError: an attack of another kind, requested methods, or a job without such a model.
    """
    wrong = [name for name in effort.attacks if name not in TRAININGS]
    if wrong or effort.methods or not effort.attacks:
        raise AuditError(
            f"Expected only attacks on the released model ({', '.join(TRAININGS)}), with their "
            f"own methods, got {', '.join([*wrong, *effort.methods]) or 'none'}."
        )
    if not job.run.in_process:
        raise AuditError(
            f"Expected run.engine = 'fast', got {job.run.engine!r}: an audit is never part of a "
            "deployment."
        )
    if not own_records:
        plain = job.to_values()
        plain["data"] |= SYNTHETIC_DATA
        job = Job.model_validate(plain)
    world = load_experiment(job)
    job = job.resolve_auto(world.federation, world.data.classes)
    targets = {
        name: build_unchanged_target(job, world, by_halves=name == "membership", seed=effort.seed)
        for name in effort.attacks
    }
    effort = replace(effort, trials=effort.trials or _TRIALS)
    return audit_by_attacks(targets, effort, own_records=own_records)
