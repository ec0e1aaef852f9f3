"""Settings with which a job's noise can meet its budget. Each is tried before it is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from parley.privacy.accounting.rounding import format_exact
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import load_job
from parley.server.jobs.set_option_formatting import format_settings
from parley.server.planning.budget_check import JobUnaffordable, build_budgets, check_affordable
from parley.server.planning.run_stages import Planned, get_rounds_stage

_MOST_REMEDIES = 2


_EXACT = "privacy.calibration=exact"


_LAWS = (
    (_EXACT,),
    ("privacy.noise=auto",),
    ("privacy.noise=laplace-l1",),
    (_EXACT, "privacy.noise=auto"),
    (_EXACT, "privacy.noise=laplace-l1"),
)
"""Settings of the noise distribution to try."""


_FACTORS = (0.8, 0.6, 0.5, 0.4, 0.2, 0.1, 0.01)
"""Fractions of the requested ε to try, the largest first."""
_USUAL = (20.0, 10.0, 5.0, 1.0)
"""Values of ε to try after them."""


def find_usual_remedies(job: Job, build: Callable[[Job], Planned]) -> list[str]:
    """Return settings of grid, rate, noise law or budget with which the job can be planned."""
    return find_remedies(job, build, _candidates(job))


def describe_affordable_settings(
    job: Job, build: Callable[[Job], Planned], error: JobUnaffordable
) -> str:
    """Return settings with which a job keeps to its budgets, in a sentence; empty if none do."""
    lower = [
        [
            f"privacy.{own.key_prefix}epsilon="
            f"{format_exact(_round_to_two_digits(factor * own.epsilon))}"
            for own in job.budgets
        ]
        for factor in _FACTORS
    ]
    kinds = (error.cheaper, *_LAWS, ("privacy.certificate=auto",), *lower)
    found = [next((keys for keys in kinds if is_accepted(job, build, keys)), ())]
    if error.accepted:
        found.append(next((k for k in (error.accepted,) if is_accepted(job, build, k)), ()))
    said = [" and ".join(keys) for keys in found]
    parts = [f"set {said[0]}"] if said[0] else []
    parts += [f"accept the cost with {said[1]}"] if said[1:] and said[1] else []
    text = ", or ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def find_remedies(
    job: Job, build: Callable[[Job], Planned], kinds: Iterable[Iterable[Sequence[str]]]
) -> list[str]:
    """Return settings with which the job can be planned within its budgets, as they are typed.

    Args:
        kinds: Kinds of settings to try. The first of a kind that works is taken.
    """
    found: list[str] = []
    for kind in kinds:
        keys = next((keys for keys in kind if is_accepted(job, build, keys)), None)
        if keys is not None:
            found.append(f"`{format_settings(keys)}`")
        if len(found) == _MOST_REMEDIES:
            break
    return found


def is_accepted(job: Job, build: Callable[[Job], Planned], keys: Sequence[str]) -> bool:
    """Return whether the job with these settings can be planned within its budgets."""
    try:
        tried = load_job(values=job.to_values(), overrides=keys)
        _, stages = build(tried)
        budgets = build_budgets(tried, get_rounds_stage(stages).plan, "planned")
        check_affordable(tried, stages, budgets)
    except ValueError:  # Includes JobError, CalibrationError and RingTooSmall.
        return False
    return True


def _candidates(job: Job) -> Iterator[Iterable[Sequence[str]]]:
    """Yield kinds of settings that may help; those that change the guarantee come last."""
    yield _of_grid(job)
    yield _of_rate(job)
    yield _LAWS
    lower = ([(own.key_prefix, factor * own.epsilon) for own in job.budgets] for factor in _FACTORS)
    yield (
        [
            f"privacy.{keys}epsilon={format_exact(_round_to_two_digits(epsilon))}"
            for keys, epsilon in each
        ]
        for each in (*lower, *_list_usual_budgets(job))
    )
    delta = job.privacy.delta
    yield (_delta(power) for power in (-20, -12, -9, -6, -5) if 0 < delta < 10.0**power)
    yield (_delta(power) for power in (-9, -12, -20) if delta > 10.0**power)


def _list_usual_budgets(job: Job) -> Iterator[list[tuple[str, float]]]:
    """Yield usual values of ε below the requested ones, which may be far beyond any noise."""
    for epsilon in _USUAL:
        yield [(own.key_prefix, min(epsilon, own.epsilon)) for own in job.budgets]


def _delta(power: int) -> Sequence[str]:
    return [f"privacy.delta=1e{power:03}"]


def _of_grid(job: Job) -> Iterator[Sequence[str]]:
    sums = job.secure_aggregation
    rings = ["secure-aggregation.ring-bits=64"] if sums.ring_bits == 32 else []
    grids = ["secure-aggregation.scale-bits=auto"] if sums.scale_bits != "auto" else []
    yield from (keys for keys in (grids, rings, [*grids, *rings]) if keys)


def _of_rate(job: Job) -> Iterator[Sequence[str]]:
    if job.dp_sgd.sampling_rate != "auto":
        yield ["dp-sgd.sampling-rate=auto"]
        rates = (times * job.dp_sgd.sampling_rate for times in (10, 1e3, 1e5))
        yield from ([f"dp-sgd.sampling-rate={rate:g}"] for rate in rates if rate < 1)


def _round_to_two_digits(value: float) -> float:
    """Return a nearby value that a person would type."""
    return float(f"{value:.2g}")
