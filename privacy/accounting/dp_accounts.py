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
from typing import Any

import numpy as np
from dp_accounting import (
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
)
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.rdp import RdpAccountant, compute_epsilon
from numpy.typing import NDArray

from parley.privacy.accounting.events import PoissonSampledGaussian
from parley.privacy.accounting.guarantee import Neighbouring

__all__ = ["added_rdp", "composed_loss", "epsilon_of_rdp"]

Orders = tuple[float, ...]


def epsilon_of_rdp(orders: Orders, divergences: NDArray[np.float64], delta: float) -> float:
    """ε at δ of Rényi divergences `[orders]`.

    Conversion of Canonne, Kamath & Steinke 2020 (arXiv:2004.00010, Proposition 12).
    """
    return float(compute_epsilon(np.asarray(orders), divergences, delta)[0])


def added_rdp(rate: float, sigma: float, orders: Orders) -> NDArray[np.float64]:
    """`[orders]` Rényi divergences of one step, add-or-remove-one."""
    # The library warns of each order whose series does not converge, and leaves it out.
    logging.getLogger("absl").setLevel(logging.ERROR)
    accountant = RdpAccountant(orders, NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)))
    return np.asarray(accountant._rdp, dtype=np.float64)


@functools.lru_cache(maxsize=2)  # up to 4 MiB each, and a run asks for the present one
def composed_loss(
    steps: tuple[tuple[PoissonSampledGaussian, int], ...], mu: float, pure: float, interval: float
) -> Any:
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


@functools.lru_cache(maxsize=64)
def _step_loss(kind: PoissonSampledGaussian, interval: float) -> Any:
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
