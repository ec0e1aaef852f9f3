"""Adapter to dp-accounting: privacy losses and divergences of sampled Gaussian steps.

This module handles two traps of the library in one place. First, under REPLACE_ONE its PLD places
the neighbours at ±1 itself, so it must be given σ, never σ/2. Its plain Gaussian has the same trap,
so a Gaussian of μ = Δ/σ is passed as ADD_OR_REMOVE_ONE with sensitivity 1. Second, its RDP does not
support Poisson sampling under REPLACE_ONE; `parley.privacy.accounting.subsampled_gaussian`
integrates that divergence.

A run needs the ε of every round. So `_Tail` computes on whole arrays what the library computes
value by value, and `_compose_repeated` computes once what the library recomputes for each number of
steps. Both use the library's formulas in the library's order, and a test compares them with it.

The library takes a second to load: import this module only where it is needed.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.pld_pmf import DensePLDPmf
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss
from dp_accounting.rdp import RdpAccountant
from numpy.typing import NDArray
from scipy import fft

from parley.privacy.accounting.privacy_events import BernoulliSteps, PoissonSampledGaussian, Step
from parley.privacy.accounting.threat_model import Neighbouring

Orders = tuple[float, ...]


def convert_rdp_to_epsilon(orders: Orders, divergences: NDArray[np.float64], delta: float) -> float:
    """Return ε at δ from Rényi divergences `[orders]`.

    Conversion of Canonne, Kamath & Steinke 2020 (arXiv:2004.00010, Proposition 12).
    """
    alpha = np.asarray(orders)
    found = divergences + np.log1p(-1 / alpha) - np.log(delta * alpha) / (alpha - 1)
    # δ ≤ √(1 − e^−KL) (Bretagnolle & Huber 1979) holds at ε = 0.
    found[delta**2 + np.expm1(-divergences) > 0] = 0
    return max(0.0, float(np.fmin.reduce(found, initial=math.inf)))


def compute_add_remove_rdp(rate: float, sigma: float, orders: Orders) -> NDArray[np.float64]:
    """Return `[orders]` Rényi divergences of one step, add-or-remove-one."""
    # The library warns about each order with a series that does not converge, and skips it.
    logging.getLogger("absl").setLevel(logging.ERROR)
    accountant = RdpAccountant(orders, NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)))
    return np.asarray(accountant._rdp, dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class _Tail:
    """One direction's privacy loss from the largest down to 0.

    It is used as in `pld_pmf._get_epsilon_for_delta`. It ends at 0: if no loss above 0 gives ε,
    then ε is 0, for any losses below.

    Attributes:
        losses: `[n]` descending, none below 0.
        upper, lower: `[n + 1]` mass of all losses before each, under either distribution.
    """

    losses: NDArray[np.float64]
    upper: NDArray[np.float64]
    lower: NDArray[np.float64]

    @classmethod
    def from_pmf(cls, pmf: Any) -> _Tail:
        dense = pmf.to_dense_pmf()
        highest = dense._lower_loss + len(dense._probs) - 1
        # Added one after the other, in the library's order.
        steps = np.full(min(max(highest + 2, 0), len(dense._probs)), -dense._discretization)
        steps[:1] = highest * dense._discretization
        losses = np.cumsum(steps, out=steps)
        losses = losses[: len(losses) - int(np.searchsorted(losses[::-1], 0.0))]
        upper, lower = np.empty(len(losses) + 1), np.zeros(len(losses) + 1)
        upper[0], upper[1:] = dense._infinity_mass, np.flip(dense._probs)[: len(losses)]
        np.exp(np.negative(losses, out=lower[1:]), out=lower[1:])
        lower[1:] *= upper[1:]
        return cls(losses=losses, upper=np.cumsum(upper), lower=np.cumsum(lower))

    def compute_epsilon(self, delta: float) -> float:
        """Return the least ε whose divergence is at most δ."""
        upper, lower = self.upper, self.lower
        if upper[0] > delta:
            return math.inf
        last = len(self.losses)
        beyond = upper[:-1] > delta
        for at in range(int(beyond.argmax()), last, _SOLVED_AT_ONCE) if beyond.any() else ():
            some = slice(at, min(at + _SOLVED_AT_ONCE, last))
            with np.errstate(all="ignore"):
                solved = np.log((upper[some] - delta) / lower[some])
                ends = beyond[some] & (lower[some] > 0) & (solved >= self.losses[some])
            if ends.any():
                last = at + int(ends.argmax())
                break
        # Losses so large that e^−loss is 0.
        huge = (upper[1 : last + 1] >= delta) & (lower[1 : last + 1] == 0)
        if huge.any():
            return max(0.0, float(self.losses[huge.argmax()]))
        if upper[last] <= lower[last] + delta:
            return 0.0
        return math.log((upper[last] - delta) / lower[last])


@dataclass(frozen=True, kw_only=True)
class ComposedLoss:
    """A composed privacy loss, stored as the tails of its directions, from which ε is computed.

    Attributes:
        lost: upper bound on the mass of any set of losses that rounding in the transforms removed.
    """

    directions: tuple[_Tail, ...]
    lost: float

    def compute_epsilon(self, delta: float) -> float:
        """Return the least ε for which the loss is (ε, δ)-DP; ∞ if there is none."""
        left = delta - self.lost
        return max(each.compute_epsilon(left) for each in self.directions) if left > 0 else math.inf

    def iterate_curves(self) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Yield `[n]` ε from the largest loss down to 0, and `[n]` δ at each, per direction.

        Between two of them δ is at most that of the lower ε. Beyond the first it is at most that of
        the first.
        """
        for tail in self.directions:
            epsilons = np.append(tail.losses, 0.0)
            lower = np.exp(epsilons) * tail.lower
            yield epsilons, np.maximum(tail.upper - lower, 0.0) + self.lost + 1e-15 * tail.upper


_Loss: TypeAlias = tuple[Any, float]
"""A privacy loss and a bound on its mass that rounding removed (`ComposedLoss.lost`)."""


def _list_directions(loss: Any) -> tuple[Any, ...]:
    return (loss._pmf_remove,) if loss._symmetric else (loss._pmf_remove, loss._pmf_add)


def _bound_rounding(length: int) -> float:
    """Bound how far a transform's rounding moves each number, for an input of L2 norm 1.

    A number passes log₂ n stages, each with a multiplication and an addition. These lose less than
    8·2⁻⁵³ per stage (Higham 2002, §24.1), and a complex power loses less than 16·2⁻⁵³.
    """
    return (8 * math.log2(length) + 16) * 2.0**-53


def _compose_losses(one: _Loss | None, other: _Loss) -> _Loss:
    """Return the composition of both losses.

    A sum of |errors| is at most the transform's error in L2.
    """
    if one is None:
        return other
    (first, lost), (second, more) = one, other
    masses = [
        part.to_dense_pmf()._probs for loss in (first, second) for part in _list_directions(loss)
    ]
    length = 4 * max(map(len, masses))
    norms = 2 * math.sqrt(length) * max(float(np.linalg.norm(each)) for each in masses)
    return first.compose(second), (lost + more) * (1 + lost) + 3 * _bound_rounding(length) * norms


@functools.lru_cache(maxsize=2)  # up to 4 MiB each; a run needs the current one
def compose_step_losses(
    steps: tuple[tuple[Step, int], ...], mu: float, pure: float, interval: float
) -> ComposedLoss:
    """Return the privacy loss of counted steps, a Gaussian of μ and a release of pure ε."""
    parts = [_compose_repeated(kind, interval, count) for kind, count in steps]
    if mu > 0:
        loss = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=interval)
        parts.append((loss, 0.0))
    if pure > 0:
        loss = pld.from_privacy_parameters(
            DifferentialPrivacyParameters(pure, 0), value_discretization_interval=interval
        )
        parts.append((loss, 0.0))
    nothing = (pld.identity(value_discretization_interval=interval), 0.0)
    whole, lost = functools.reduce(_compose_losses, parts, None) or nothing
    directions = tuple(map(_Tail.from_pmf, _list_directions(whole)))
    return ComposedLoss(directions=directions, lost=lost)


_SOLVED_AT_ONCE = 1024
"""Number of losses that are tried at once, downwards from the first that can be ε."""

_ORDERS = np.concatenate([np.arange(-20, 0), np.arange(1, 21)])

_TRUNCATED_MASS = 1e-15
"""Mass that a composition may move to an infinite loss; the library's default."""

_NEGLIGIBLE = 1e-26
"""Size below which a frequency of a composed loss counts as 0.

All these frequencies together move no mass by more than this.
"""


def _compose_repeated(kind: Step, interval: float, count: int) -> _Loss:
    """Compute `PrivacyLossDistribution.self_compose`, with cached moments."""
    (loss, lost), moments = _compute_step_loss(kind, interval), _compute_log_moments(kind, interval)
    directions = zip(_list_directions(loss), moments, strict=True)
    both = [_compute_convolution(*each, count) for each in directions]
    composed, more = zip(*both, strict=True)
    # Each step adds an error of masses, relative to masses that earlier errors may have enlarged.
    before = math.expm1(count * math.log1p(lost))
    return pld.PrivacyLossDistribution(*composed), before + max(more) * (1 + before)


def _compute_convolution(
    pmf: Any, moments: NDArray[np.float64], count: int
) -> tuple[DensePLDPmf, float]:
    """Compose one direction's loss `count` times: `common.self_convolve`, equation by equation."""
    masses = pmf._probs
    chernoff = count * moments + math.log(2 / _TRUNCATED_MASS)
    bounds = chernoff / (_ORDERS / len(masses))
    finite = np.isfinite(bounds)
    high = math.ceil(bounds[finite & (_ORDERS > 0)].min(initial=(len(masses) - 1) * count))
    low = math.floor(bounds[finite & (_ORDERS < 0)].max(initial=0))
    size = high - low + 1
    length = fft.next_fast_len(max(size, len(masses)))
    power, lost = _compute_power(pmf, length, count)
    whole = np.real(fft.ifft(power, overwrite_x=True))
    begin = low % length
    composed = DensePLDPmf(
        pmf._discretization,
        pmf._lower_loss * count + low,
        np.concatenate([whole[begin : begin + size], whole[: max(0, begin + size - length)]]),
        _TRUNCATED_MASS - math.expm1(count * math.log1p(-pmf._infinity_mass)),
        pmf._pessimistic_estimate,
    )
    return composed, lost


def _compute_power(pmf: Any, length: int, count: int) -> tuple[NDArray[np.complex128], float]:
    """Return `[length]` one direction's transform to the power of `count`, and the lost mass.

    An error e of a frequency X becomes an error of count·|X|^(count − 1)·e of its power. After the
    inverse transform the masses' |errors| sum to at most the L2 norm of the frequencies' errors
    (Parseval).
    """
    half, magnitudes = _transform(pmf, length)
    power = np.zeros(length, dtype=np.complex128)
    # A complex power takes longer than the transform, and after many steps few frequencies remain.
    kept = np.flatnonzero(magnitudes > _NEGLIGIBLE ** (1 / count))
    power[kept] = half[kept] ** count
    twice = kept[(kept > 0) & (2 * kept < length)]
    power[length - twice] = np.conj(power[twice])  # the masses are real
    rest = length * _NEGLIGIBLE ** (2 * (count - 1) / count)
    errors = math.sqrt(2 * float((magnitudes[kept] ** (2 * (count - 1))).sum()) + rest)
    back = 2 * float(np.abs(power[kept]).sum())
    return power, _bound_rounding(length) * (count * errors + back)


@functools.lru_cache(maxsize=4)  # two directions of two kinds; up to a few MiB each
def _transform(pmf: Any, length: int) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    """Return the first half of one direction's transform, and its magnitudes."""
    half = fft.fft(pmf._probs, length)[: length // 2 + 1].copy()
    return half, np.abs(half)


@functools.lru_cache(maxsize=64)
def _compute_log_moments(kind: Step, interval: float) -> tuple[NDArray[np.float64], ...]:
    """Return `[40]` log moments of one step's loss, for each direction."""
    loss, _ = _compute_step_loss(kind, interval)
    return tuple(_compute_pmf_moments(each._probs) for each in _list_directions(loss))


def _compute_pmf_moments(masses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ln Σ_i masses[i]·e^(i·order/n) at every order.

    The largest term is factored out, not the largest power. The end of a loss may contain positions
    without mass. If their power were factored out, all positions with mass would underflow.
    """
    places, logs = np.arange(len(masses)), np.full(len(masses), -math.inf)
    np.log(masses, out=logs, where=masses != 0)  # NaN below 0: then no order gives a bound
    found = []
    for order in _ORDERS / len(masses):
        terms = places * order + logs
        most = terms.max()
        found.append(most + np.log(np.exp(terms - most).sum()))
    return np.array(found)


def _compute_step_loss(kind: Step, interval: float) -> _Loss:
    of = _compute_coin_loss if isinstance(kind, BernoulliSteps) else _compute_sampled_loss
    return of(kind, interval)


@functools.lru_cache(maxsize=4)  # up to a few MiB each
def _compute_coin_loss(kind: BernoulliSteps, interval: float) -> _Loss:
    """Return the loss of steps behind a coin; it is 0 with probability 1 − p (no steps)."""
    inner, lost = _compose_repeated(kind.event, interval, kind.count)
    parts = (_mix_with_zero_loss(each, kind.probability) for each in _list_directions(inner))
    return pld.PrivacyLossDistribution(*parts), lost * math.nextafter(kind.probability, 1.0)


def _mix_with_zero_loss(pmf: Any, probability: float) -> DensePLDPmf:
    """Return p·`pmf` and an atom of 1 − p at loss 0, both rounded up: more mass never lowers ε."""
    dense = pmf.to_dense_pmf()
    above = math.nextafter(probability, 1.0)
    low = min(dense._lower_loss, 0)
    high = max(dense._lower_loss + len(dense._probs), 1)
    masses = np.zeros(high - low)
    at = dense._lower_loss - low
    # Values below 0 after a transform are rounding errors.
    masses[at : at + len(dense._probs)] = above * np.maximum(dense._probs, 0.0)
    masses[-low] += math.nextafter(1 - probability, 1.0)
    return DensePLDPmf(
        dense._discretization,
        low,
        masses,
        above * dense._infinity_mass,
        dense._pessimistic_estimate,
    )


class _ReplacedGaussianLoss(GaussianPrivacyLoss):  # type: ignore[misc]  # the library is untyped
    """The library's loss of a sampled Gaussian under replace-one, inverted for many ε at once.

    The library inverts the loss for each ε, which is most of the time of a plan. Its formulas are
    used here with their operations in its order, so that the results have the same bits.
    """

    def get_delta_for_epsilon(self, epsilon: Any) -> Any:
        """Return the δ of each ε."""
        if np.ndim(epsilon) == 0 or self.sampling_prob == 1:
            return super().get_delta_for_epsilon(epsilon)
        cutoffs = self._invert(epsilon)
        lower = np.exp(epsilon + self.mu_lower_log_cdf(cutoffs))
        return np.clip(self.mu_upper_cdf(cutoffs) - lower, 0, 1)

    def _invert(self, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the largest x with each loss; see `_inverse_privacy_loss_replace`."""
        rate, ratio = self.sampling_prob, self.sensitivity / self._standard_deviation
        log_alpha = 0.5 * ratio**2 + math.log1p(-rate) - math.log(rate)
        # A grid's losses lie on both sides of 0.
        sizes, places = np.unique(np.abs(epsilons), return_inverse=True)
        # The library's `math` functions: those of arrays may differ in the last bit.
        log_sinh = [
            a + math.log1p(-math.exp(-2 * a)) - math.log(2) if a else -math.inf
            for a in (sizes / 2).tolist()
        ]
        term = (log_alpha + np.array(log_sinh))[places]
        asinh = np.logaddexp(0.5 * np.logaddexp(0, 2 * term), term)
        scale = self._standard_deviation**2 / self.sensitivity
        found = scale * (np.where(epsilons >= 0, -1, 1) * asinh - epsilons / 2)
        return np.where(epsilons == 0, 0.0, found)


@functools.lru_cache(maxsize=64)
def _compute_sampled_loss(kind: PoissonSampledGaussian, interval: float) -> _Loss:
    if kind.neighbouring == Neighbouring.REPLACE_ONE:
        replaced = _ReplacedGaussianLoss(
            kind.noise_multiplier,
            sampling_prob=kind.sampling_rate,
            adjacency_type=AdjacencyType.REPLACE,
        )
        one = pld._create_pld_pmf_from_monotone_privacy_loss(
            replaced, value_discretization_interval=interval, use_connect_dots=True
        )
        return pld.PrivacyLossDistribution(one.to_dense_pmf()), 0.0
    loss = pld.from_gaussian_mechanism(
        kind.noise_multiplier,
        sampling_prob=kind.sampling_rate,
        value_discretization_interval=interval,
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
    )
    dense = (each.to_dense_pmf() for each in _list_directions(loss))
    return pld.PrivacyLossDistribution(*dense), 0.0
