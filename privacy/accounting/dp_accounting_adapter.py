"""What is taken from dp-accounting: the losses and divergences of sampled Gaussian steps.

Two traps of the library are met here once, for everyone. Under REPLACE_ONE its PLD places the
neighbours at ±1 itself: it is given σ, never σ/2; its RDP knows no Poisson sampling under
REPLACE_ONE (`parley.privacy.accounting.subsampled_gaussian` integrates it). Its plain Gaussian has
the first trap too, so a Gaussian of μ = Δ/σ goes in as ADD_OR_REMOVE_ONE of sensitivity 1.

A run asks for the ε of every round: what the library computes value by value is done on whole
arrays here (`_Tail`), and what it computes anew for every number of steps once
(`_compose_repeated`). Both are its own formulas, in its order, and a test holds them against it.

The library takes a second to load: import this module where it is needed.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from dp_accounting import (
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
)
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.pld_pmf import DensePLDPmf
from dp_accounting.rdp import RdpAccountant
from numpy.typing import NDArray
from scipy import fft

from parley.privacy.accounting.privacy_events import BernoulliSteps, PoissonSampledGaussian, Step
from parley.privacy.accounting.threat_model import Neighbouring

Orders = tuple[float, ...]


def convert_rdp_to_epsilon(orders: Orders, divergences: NDArray[np.float64], delta: float) -> float:
    """ε at δ of Rényi divergences `[orders]`.

    Conversion of Canonne, Kamath & Steinke 2020 (arXiv:2004.00010, Proposition 12).
    """
    alpha = np.asarray(orders)
    found = divergences + np.log1p(-1 / alpha) - np.log(delta * alpha) / (alpha - 1)
    # δ ≤ √(1 − e^−KL) (Bretagnolle & Huber 1979): at ε = 0 already.
    found[delta**2 + np.expm1(-divergences) > 0] = 0
    return max(0.0, float(np.fmin.reduce(found, initial=math.inf)))


def compute_add_remove_rdp(rate: float, sigma: float, orders: Orders) -> NDArray[np.float64]:
    """`[orders]` Rényi divergences of one step, add-or-remove-one."""
    # The library warns of each order whose series does not converge, and leaves it out.
    logging.getLogger("absl").setLevel(logging.ERROR)
    accountant = RdpAccountant(orders, NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)))
    return np.asarray(accountant._rdp, dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class _Tail:
    """One direction's privacy loss from the largest down, as `pld_pmf._get_epsilon_for_delta`.

    Down to 0: an ε that is no loss above 0 is 0, whatever the losses below are.

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
        # Added up one after the other, as the library does.
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
        """The least ε whose divergence is at most δ."""
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
    """A composed privacy loss, ready to be asked for its ε: the tails of its directions.

    Attributes:
        lost: more than the rounding of transforms took from the mass of any set of losses.
    """

    directions: tuple[_Tail, ...]
    lost: float

    def compute_epsilon(self, delta: float) -> float:
        """The least ε for which it is (ε, δ)-DP; ∞ where there is none."""
        left = delta - self.lost
        return max(each.compute_epsilon(left) for each in self.directions) if left > 0 else math.inf

    def iterate_curves(self) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Yield `[n]` ε from the largest loss down to 0, and `[n]` δ at each, per direction.

        Between two of them δ is at most that of the lower ε, beyond the first at most the first.
        """
        for tail in self.directions:
            epsilons = np.append(tail.losses, 0.0)
            lower = np.exp(epsilons) * tail.lower
            yield epsilons, np.maximum(tail.upper - lower, 0.0) + self.lost + 1e-15 * tail.upper


_Loss: TypeAlias = tuple[Any, float]
"""A privacy loss, and what is `lost` of it."""


def _list_directions(loss: Any) -> tuple[Any, ...]:
    return (loss._pmf_remove,) if loss._symmetric else (loss._pmf_remove, loss._pmf_add)


def _bound_rounding(length: int) -> float:
    """How far a transform's rounding moves each number, of numbers with |·| of 1 together.

    A number passes log₂ n stages, in which it is multiplied and added to others: 8·2⁻⁵³ each is
    more than these lose (Higham 2002, §24.1), and 16 more than a complex power does.
    """
    return (8 * math.log2(length) + 16) * 2.0**-53


def _compose_losses(one: _Loss | None, other: _Loss) -> _Loss:
    """Both, one after the other; a sum of |errors| is at most the transform's in L2."""
    if one is None:
        return other
    (first, lost), (second, more) = one, other
    masses = [
        part.to_dense_pmf()._probs for loss in (first, second) for part in _list_directions(loss)
    ]
    length = 4 * max(map(len, masses))
    norms = 2 * math.sqrt(length) * max(float(np.linalg.norm(each)) for each in masses)
    return first.compose(second), (lost + more) * (1 + lost) + 3 * _bound_rounding(length) * norms


@functools.lru_cache(maxsize=2)  # up to 4 MiB each, and a run asks for the present one
def compose_step_losses(
    steps: tuple[tuple[Step, int], ...], mu: float, pure: float, interval: float
) -> ComposedLoss:
    """The privacy loss of so many steps of each kind, a Gaussian of μ, and a release of pure ε."""
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
    return ComposedLoss(
        directions=tuple(_Tail.from_pmf(each) for each in _list_directions(whole)), lost=lost
    )


_SOLVED_AT_ONCE = 1024
"""Losses that are tried at once, from the first that can be ε down."""

_ORDERS = np.concatenate([np.arange(-20, 0), np.arange(1, 21)])

_TRUNCATED_MASS = 1e-15
"""Mass that a composition may move to an infinite loss: the library's own default."""

_NEGLIGIBLE = 1e-26
"""A frequency's part in a composed loss that counts as none. All of them together move no mass by
more."""


def _compose_repeated(kind: Step, interval: float, count: int) -> _Loss:
    """`PrivacyLossDistribution.self_compose`, by moments that are kept."""
    (loss, lost), moments = _compute_step_loss(kind, interval), _compute_log_moments(kind, interval)
    both = [
        _compute_convolution(*each, count)
        for each in zip(_list_directions(loss), moments, strict=True)
    ]
    composed, more = zip(*both, strict=True)
    # An error of masses is added up with each step, over masses that it may have made larger.
    before = math.expm1(count * math.log1p(lost))
    return pld.PrivacyLossDistribution(*composed), before + max(more) * (1 + before)


def _compute_convolution(
    pmf: Any, moments: NDArray[np.float64], count: int
) -> tuple[DensePLDPmf, float]:
    """`count` times one direction's loss: `common.self_convolve`, equation by equation."""
    masses = pmf._probs
    bounds = (count * moments + math.log(2 / _TRUNCATED_MASS)) / (
        _ORDERS / len(masses)
    )  # Chernoff's
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
    """`[length]` the transform of one direction's loss, to the power of `count`; what is lost.

    An error e of a frequency X is count·|X|^(count − 1)·e of its power. Of the masses that come
    back all errors' |·| add up to no more than the L2 norm of those of frequencies (Parseval).
    """
    half, magnitudes = _transform(pmf, length)
    power = np.zeros(length, dtype=np.complex128)
    # A complex power takes longer than the transform, and of many steps few frequencies are left.
    kept = np.flatnonzero(magnitudes > _NEGLIGIBLE ** (1 / count))
    power[kept] = half[kept] ** count
    twice = kept[(kept > 0) & (2 * kept < length)]
    power[length - twice] = np.conj(power[twice])  # the masses are real
    rest = length * _NEGLIGIBLE ** (2 * (count - 1) / count)
    errors = math.sqrt(2 * float((magnitudes[kept] ** (2 * (count - 1))).sum()) + rest)
    back = 2 * float(np.abs(power[kept]).sum())
    return power, _bound_rounding(length) * (count * errors + back)


@functools.lru_cache(maxsize=4)  # two directions, of two kinds; up to some MiB each
def _transform(pmf: Any, length: int) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    """The first half of one direction's transform, and its magnitudes."""
    half = fft.fft(pmf._probs, length)[: length // 2 + 1].copy()
    return half, np.abs(half)


@functools.lru_cache(maxsize=64)
def _compute_log_moments(kind: Step, interval: float) -> tuple[NDArray[np.float64], ...]:
    """`[40]` log moments of one step's loss, of each direction."""
    return tuple(
        _compute_pmf_moments(each._probs)
        for each in _list_directions(_compute_step_loss(kind, interval)[0])
    )


def _compute_pmf_moments(masses: NDArray[np.float64]) -> NDArray[np.float64]:
    """ln Σ_i masses[i]·e^(i·order/n) at every order.

    The largest term is taken out, not the largest power: at the end of a loss there may be places
    without mass, beside which all that has any would be too small for a float.
    """
    places, logs = np.arange(len(masses)), np.full(len(masses), -math.inf)
    np.log(masses, out=logs, where=masses != 0)  # NaN below 0: no order then bounds anything
    found = []
    for order in _ORDERS / len(masses):
        terms = places * order + logs
        most = terms.max()
        found.append(most + np.log(np.exp(terms - most).sum()))
    return np.array(found)


def _compute_step_loss(kind: Step, interval: float) -> _Loss:
    of = _compute_coin_loss if isinstance(kind, BernoulliSteps) else _compute_sampled_loss
    return of(kind, interval)


@functools.lru_cache(maxsize=4)  # up to some MiB each
def _compute_coin_loss(kind: BernoulliSteps, interval: float) -> _Loss:
    """The loss of steps that a coin lets in: 0 with 1 − p, where they are not."""
    inner, lost = _compose_repeated(kind.event, interval, kind.count)
    parts = (_mix_with_zero_loss(each, kind.probability) for each in _list_directions(inner))
    return pld.PrivacyLossDistribution(*parts), lost * math.nextafter(kind.probability, 1.0)


def _mix_with_zero_loss(pmf: Any, probability: float) -> DensePLDPmf:
    """p·`pmf` and an atom of 1 − p at loss 0, both rounded up: more mass is never a lower ε."""
    dense = pmf.to_dense_pmf()
    above = math.nextafter(probability, 1.0)
    low = min(dense._lower_loss, 0)
    high = max(dense._lower_loss + len(dense._probs), 1)
    masses = np.zeros(high - low)
    at = dense._lower_loss - low
    # What a transform leaves below 0 is rounding.
    masses[at : at + len(dense._probs)] = above * np.maximum(dense._probs, 0.0)
    masses[-low] += math.nextafter(1 - probability, 1.0)
    return DensePLDPmf(
        dense._discretization,
        low,
        masses,
        above * dense._infinity_mass,
        dense._pessimistic_estimate,
    )


@functools.lru_cache(maxsize=64)
def _compute_sampled_loss(kind: PoissonSampledGaussian, interval: float) -> _Loss:
    relation = (
        NeighboringRelation.REPLACE_ONE
        if kind.neighbouring == Neighbouring.REPLACE_ONE
        else NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    loss = pld.from_gaussian_mechanism(
        kind.noise_multiplier,
        sampling_prob=kind.sampling_rate,
        value_discretization_interval=interval,
        neighboring_relation=relation,
    )
    dense = (each.to_dense_pmf() for each in _list_directions(loss))
    return pld.PrivacyLossDistribution(*dense), 0.0
