"""RDP and PLD accounting of DP-SGD's Poisson-subsampled Gaussian.

One step (Abadi et al. 2016, arXiv:1607.00133, Algorithm 1): every record is in the batch with
probability q, independently; its gradient is clipped to L2 norm C; N(0, (σC)²I) is added to the
**sum**. T steps compose, adaptively. In units of C the dominating pair of one step is

| neighbours | P | Q |
|---|---|---|
| add-or-remove-one | (1−q)·N(0, σ²) + q·N(1, σ²) | N(0, σ²), and in the other order |
| replace-one | (1−q)·N(0, σ²) + q·N(1, σ²) | (1−q)·N(0, σ²) + q·N(−1, σ²) |

Replace-one: both records' gradients have length at most 1. Among all such pairs the opposite one
has the largest hockey-stick divergence at every ε. The overlap of q·N(g) − (e^ε−1)(1−q)·N(0), where
it is positive, with e^ε·q·N(g′) falls as g′ turns away from g, and as either grows. Dominating
pairs compose (Zhu, Dong & Wang 2022, arXiv:2106.08567, Theorem 10).

If one coin of probability p includes or omits K steps, the release has the pair (1−p)·⊥ + p·P^K and
(1−p)·⊥ + p·Q^K when the coin is seen. It is no worse when the coin is not seen (post-processing).
The loss is 0 with probability 1−p, else that of K steps. A hockey-stick divergence at ε ≥ 0 is p
times theirs, and D_α = ln((1−p) + p·e^((α−1)·K·D_α))/(α−1). T releases, each by a fresh coin,
compose like any others. A coin falls the same way in both worlds, so the T releases have Σ_j Bin(T,
p)(j)·δ_j, where δ_j is that of j·K steps.

dp-accounting computes PLD, and RDP under add-or-remove-one
(`parley.privacy.accounting.dp_accounting_adapter`). The Rényi divergence of the replace-one pair is
integrated here.

    >>> from parley.privacy.accounting.privacy_events import PoissonSampledGaussian
    >>> step = {"sampling_rate": 0.01, "noise_multiplier": 4.0}
    >>> abadi = PoissonSampledGaussian(**step, neighbouring="add-or-remove-one")
    >>> {name: round(value, 3) for name,
    ...     value in compute_epsilons({abadi: 10_000}, delta=1e-5).items()}
    {'rdp': 1.035, 'pld': 0.947}
    >>> rare = BernoulliSteps(probability=0.05, event=abadi, count=100)
    >>> {name: round(value, 3) for name, value in compute_epsilons({rare: 100}, delta=1e-5).items()}
    {'rdp': 0.256, 'pld': 0.219}
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from parley.privacy.accounting.privacy_events import (
    BernoulliSteps,
    CountedSteps,
    PlannedSteps,
    PrivacyEvent,
    Step,
    sort_steps,
)
from parley.privacy.accounting.rounding import format_exact, round_root_up
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.special_functions import erfcx, ndtr

ORDERS: tuple[float, ...] = (
    *(1 + k / 10 for k in range(1, 100)),
    *(float(k) for k in range(11, 64)),
    *(64.0, 80.0, 96.0, 128.0, 192.0, 256.0, 512.0, 1024.0),
)
"""Rényi orders of the RDP accountant."""

PLD_INTERVAL = 1e-4
"""Finest grid of the privacy loss. The estimate is pessimistic: a coarser grid only costs ε."""

_LARGEST_PLD_STEPS = 10_000_000
_MAX_LOSSES = 2**17
"""Approximate maximum number of losses of one step on its grid; each is computed separately."""


def compute_epsilons(steps: Mapping[Step, int], *, delta: float) -> dict[str, float]:
    """Return ε at `delta` of composed steps, by RDP and by PLD; both are upper bounds."""
    items = sort_steps(steps)
    return {
        "rdp": compute_rdp_epsilon(items, delta=delta),
        "pld": compute_pld_epsilon(items, delta=delta),
    }


def compute_rdp_epsilon(steps: CountedSteps, *, delta: float, rho: float = 0.0) -> float:
    """Return ε by RDP of the steps plus anything else that is ρ-zCDP (its RDP is at most αρ)."""
    if delta <= 0:
        return math.inf
    from parley.privacy.accounting.dp_accounting_adapter import convert_rdp_to_epsilon  # noqa: PLC0415 - start-up: `plan` without sampling (dp_accounting takes 0.7 s)

    total = rho * np.asarray(ORDERS)
    for kind, count in steps:
        total = total + count * _compute_step_rdp(kind)
    return convert_rdp_to_epsilon(ORDERS, total, delta)


def compute_pld_epsilon(
    steps: CountedSteps, *, delta: float, mu: float = 0.0, pure: float = 0.0
) -> float:
    """Return ε by PLD of the steps, a Gaussian of μ = `mu`, and a release of pure ε = `pure`.

    Any ε-DP release is dominated by randomized response of that ε (Kairouz, Oh & Viswanath 2015).
    The result is ∞ if the composition is beyond what the library computes.
    """
    if delta <= 0 or _is_beyond(steps, mu):
        return math.inf
    from parley.privacy.accounting.dp_accounting_adapter import compose_step_losses  # noqa: PLC0415 - start-up: `plan` without sampling (dp_accounting takes 0.7 s)

    loss = compose_step_losses(steps, mu, pure, _choose_interval(steps))
    return loss.compute_epsilon(delta)


@functools.lru_cache(maxsize=64)
def build_planned_steps(event: PrivacyEvent, count: int, delta: float) -> PlannedSteps:
    """Return `count` releases of `event`, all of them steps, as one release with δ′ ≤ `delta`.

    Its μ is the least found with δ(e) ≤ g_μ(e) + δ′ for all e ≥ 0 in both directions. Here δ is the
    hockey-stick curve of all releases together and g_μ that of a Gaussian. If the μ of the steps
    without sampling is lower, that μ is used; it needs no δ′.
    """
    unsampled = round_root_up(2 * event.exact_rho * count)
    steps = sort_steps({leaf: times * count for leaf, times in event.iterate_leaves()})  # type: ignore[misc]
    mu = _compute_gdp_mu(steps, delta, limit=unsampled) if delta > 0 else unsampled
    planned = functools.partial(PlannedSteps, event=event, count=count)
    return planned(mu=mu, delta=delta) if mu < unsampled else planned(mu=unsampled, delta=0.0)


_MU_TOLERANCE = 1e-6
"""Relative amount by which a given μ may be below the computed one: processors' rounding varies."""


def check_planned(job: PlannedSteps) -> None:
    """Raise ValueError if the job's μ does not hold with its δ′."""
    least = build_planned_steps(job.event, job.count, job.delta).mu
    if job.mu < least * (1 - _MU_TOLERANCE):
        raise ValueError(
            f"Expected μ ≥ {least:.6g} of a planned job of {job.count} releases with "
            f"δ′ = {format_exact(job.delta)}, got {job.mu:.6g}."
        )


_CURVE_POINTS = 20_000


def _compute_gdp_mu(steps: CountedSteps, delta: float, limit: float) -> float:
    """Return μ of `build_planned_steps`.

    It is `limit` if the composition is beyond what the library computes.
    """
    if _is_beyond(steps):
        return limit
    from parley.privacy.accounting.dp_accounting_adapter import compose_step_losses  # noqa: PLC0415 - start-up: `plan` without sampling (dp_accounting takes 0.7 s)

    loss = compose_step_losses(steps, 0.0, 0.0, _choose_interval(steps))
    curves = []
    for epsilons, deltas in loss.iterate_curves():
        above = deltas > delta * (1 - 1e-9)
        if above[0]:  # already at an infinite loss
            return limit
        # δ and g both fall with e, so on [e₁, e₂] it is enough that δ(e₁) ≤ g(e₂) + δ′.
        kept = np.flatnonzero(above)
        if kept.size:
            places = np.linspace(kept[0] - 1, kept[-1], _CURVE_POINTS).astype(int)
            places = np.unique(np.append(places, kept[-1]))
            curves.append((epsilons[places[:-1]], deltas[places[1:]]))
    low, high = 0.0, limit
    for _ in range(60):
        mu = (low + high) / 2
        fits = all((ds <= _compute_gaussian_deltas(mu, e) + delta).all() for e, ds in curves)
        low, high = (low, mu) if fits else (mu, high)
        if high - low <= 1e-7 * high:
            break
    return high


def _compute_gaussian_deltas(mu: float, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `[n]` δ of a μ-GDP release at each ε, rounded down (`gaussian_curve`)."""
    to_left = mu / 2 - epsilons / mu
    mass = ndtr(to_left)
    rest = np.exp(-(to_left**2) / 2) / 2 * erfcx((mu / 2 + epsilons / mu) / math.sqrt(2))
    return np.asarray(mass - rest - 1e-13 * mass)


def _is_beyond(steps: CountedSteps, mu: float = 0.0) -> bool:
    """Return whether a composition is beyond what the library computes."""
    taken = sum(count * getattr(kind, "count", 1) for kind, count in steps)
    squares = sum(
        float(2 * kind.exact_rho) * _bound_admitted_steps(kind, count) for kind, count in steps
    )
    # The composed privacy loss spreads with the steps' total μ; a wide one gets a coarser grid.
    return taken > _LARGEST_PLD_STEPS or math.sqrt(squares) + mu > 200


def _choose_interval(steps: CountedSteps) -> float:
    return min((_choose_step_interval(kind) for kind, _ in steps), default=PLD_INTERVAL)


def _bound_admitted_steps(kind: Step, count: int) -> float:
    """Return about the most of `count` releases that coins include: mean plus 8 deviations."""
    if not isinstance(kind, BernoulliSteps):
        return count
    mean = kind.probability * count
    return min(count, mean + 8 * math.sqrt(mean) + 20)


def _choose_step_interval(kind: Step) -> float:
    """Return a 25th of one step's loss, rounded to PLD_INTERVAL times a power of two.

    Rounding to powers of two lets steps share grids.
    """
    if isinstance(kind, BernoulliSteps):
        return _choose_step_interval(kind.event)
    own = kind.sampling_rate * kind.sensitivity / kind.noise_multiplier / 25
    doublings = max(0, min(6, math.floor(math.log2(own / PLD_INTERVAL))))
    # A small sampling rate with little noise has rare, large losses. The grid is made coarser so
    # that their number stays bounded. A coarser grid rounds a loss up.
    largest = (kind.sensitivity / kind.noise_multiplier) ** 2 / 2
    largest += 10 * kind.sensitivity / kind.noise_multiplier
    places = largest / PLD_INTERVAL / _MAX_LOSSES
    return PLD_INTERVAL * 2.0 ** max(doublings, math.floor(math.log2(places)))


@functools.lru_cache(maxsize=256)
def _compute_step_rdp(kind: Step) -> NDArray[np.float64]:
    """Return `[orders]` Rényi divergences of the dominating pair of one step or one coin."""
    if isinstance(kind, BernoulliSteps):
        rest = np.asarray(ORDERS) - 1
        inner = math.log(kind.probability) + rest * kind.count * _compute_step_rdp(kind.event)
        # Rounded up by the possible error of a logarithm and a sum of this size.
        mixed = np.logaddexp(math.log1p(-kind.probability), inner)
        return np.asarray(np.maximum(mixed + 1e-15 * (1 + np.abs(inner)), 0.0) / rest)
    if kind.neighbouring == Neighbouring.REPLACE_ONE:
        return _compute_replace_one_rdp(kind.sampling_rate, kind.noise_multiplier)
    from parley.privacy.accounting.dp_accounting_adapter import compute_add_remove_rdp  # noqa: PLC0415 - start-up: `plan` without sampling (dp_accounting takes 0.7 s)

    return compute_add_remove_rdp(kind.sampling_rate, kind.noise_multiplier, ORDERS)


def _compute_replace_one_rdp(rate: float, sigma: float) -> NDArray[np.float64]:
    """Return D_α(P‖Q) of the replace-one pair, by the trapezoidal rule on the logarithms.

    The integrand is analytic and falls like a Gaussian, so the rule converges faster than any power
    of the step (Trefethen & Weideman 2014). With a step of σ/24 the remaining error is below double
    precision.
    """
    orders = np.asarray(ORDERS)
    result = np.empty_like(orders)
    for at, alpha in enumerate(orders):
        # P^α·Q^(1−α) is largest between −1 and 2α − 1 and falls off with σ on either side.
        low, high = -1 - 40 * sigma, 2 * alpha - 1 + 40 * sigma
        step = min(sigma / 24, sigma**2 / 4)
        if (high - low) / step > 2_000_000:
            result[at] = math.inf
            continue
        x = np.arange(low, high, step)
        centre = -(x**2) / (2 * sigma**2)
        tilt = x / sigma**2 - 1 / (2 * sigma**2)
        mirrored = -x / sigma**2 - 1 / (2 * sigma**2)
        rest = math.log1p(-rate) if rate < 1 else -math.inf
        log_p = np.logaddexp(rest, math.log(rate) + tilt)
        log_q = np.logaddexp(rest, math.log(rate) + mirrored)
        terms = centre + alpha * log_p + (1 - alpha) * log_q
        peak = float(terms.max())
        whole = np.exp(terms - peak).sum() * step / (sigma * math.sqrt(2 * math.pi))
        total = peak + math.log(whole)
        # Rounded up by the possible error of summing logarithms of this size.
        result[at] = max(0.0, total + 1e-13 * (1 + abs(peak))) / (alpha - 1)
    return result
