"""What is taken from dp-accounting: the losses and divergences of sampled Gaussian steps.

Two traps of the library are met here once, for everyone. Under REPLACE_ONE its PLD places the
neighbours at ±1 itself: it is given σ, never σ/2; its RDP knows no Poisson sampling under
REPLACE_ONE (`parley.privacy.accounting.subsampled` integrates it). Its plain Gaussian has the first
trap too, so a Gaussian of μ = Δ/σ goes in as ADD_OR_REMOVE_ONE of sensitivity 1.

The library takes a second to load: import this module where it is needed.
"""

from __future__ import annotations

import functools
import logging
import math
from typing import Any

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

from parley.privacy.accounting.events import BehindCoin, PoissonSampledGaussian, Step
from parley.privacy.accounting.guarantee import Neighbouring

Orders = tuple[float, ...]


def epsilon_of_rdp(orders: Orders, divergences: NDArray[np.float64], delta: float) -> float:
    """ε at δ of Rényi divergences `[orders]`.

    Conversion of Canonne, Kamath & Steinke 2020 (arXiv:2004.00010, Proposition 12).
    """
    alpha = np.asarray(orders)
    found = divergences + np.log1p(-1 / alpha) - np.log(delta * alpha) / (alpha - 1)
    # δ ≤ √(1 − e^−KL) (Bretagnolle & Huber 1979): at ε = 0 already.
    found[delta**2 + np.expm1(-divergences) > 0] = 0
    return max(0.0, float(np.fmin.reduce(found, initial=math.inf)))


def added_rdp(rate: float, sigma: float, orders: Orders) -> NDArray[np.float64]:
    """`[orders]` Rényi divergences of one step, add-or-remove-one."""
    # The library warns of each order whose series does not converge, and leaves it out.
    logging.getLogger("absl").setLevel(logging.ERROR)
    accountant = RdpAccountant(orders, NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)))
    return np.asarray(accountant._rdp, dtype=np.float64)


def _parts(loss: Any) -> tuple[Any, ...]:
    return (loss._pmf_remove,) if loss._symmetric else (loss._pmf_remove, loss._pmf_add)


@functools.lru_cache(maxsize=2)  # up to 4 MiB each, and a run asks for the present one
def composed_loss(
    steps: tuple[tuple[Step, int], ...], mu: float, pure: float, interval: float
) -> pld.PrivacyLossDistribution:
    """The privacy loss of so many steps of each kind, a Gaussian of μ, and a release of pure ε."""
    loss = None
    for kind, count in steps:
        part = _step_loss(kind, interval).self_compose(count)
        loss = part if loss is None else loss.compose(part)
    if mu > 0:
        part = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=interval)
        loss = part if loss is None else loss.compose(part)
    if pure > 0:
        part = pld.from_privacy_parameters(
            DifferentialPrivacyParameters(pure, 0), value_discretization_interval=interval
        )
        loss = part if loss is None else loss.compose(part)
    return pld.identity(value_discretization_interval=interval) if loss is None else loss


def _step_loss(kind: Step, interval: float) -> Any:
    of = _behind_coin if isinstance(kind, BehindCoin) else _sampled_loss
    return of(kind, interval)


@functools.lru_cache(maxsize=4)  # up to some MiB each
def _behind_coin(kind: BehindCoin, interval: float) -> Any:
    """The loss of steps that a coin lets in: 0 with 1 − p, where they are not."""
    inner = _sampled_loss(kind.event, interval).self_compose(kind.count)
    parts = (_or_nothing(each, kind.probability) for each in _parts(inner))
    return pld.PrivacyLossDistribution(*parts)


def _or_nothing(pmf: Any, probability: float) -> DensePLDPmf:
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
def _sampled_loss(kind: PoissonSampledGaussian, interval: float) -> Any:
    relation = (
        NeighboringRelation.REPLACE_ONE
        if kind.neighbouring == Neighbouring.REPLACE_ONE
        else NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    return pld.from_gaussian_mechanism(
        kind.noise_multiplier,
        sampling_prob=kind.sampling_rate,
        value_discretization_interval=interval,
        neighboring_relation=relation,
    )
