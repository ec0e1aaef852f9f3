"""The running totals of a ledger of version 1 (Parley 0.1.0), read by its log.

Version 1 kept sums over all releases (Σμ², Σε, Σρ, …) where today a composition counts its events.
The sums don't say what was summed, but the log does: a total is the log's if it has its sums.
"""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from typing import Any

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.events import Gaussian, PoissonSampledGaussian, Pure, Zcdp
from parley.privacy.accounting.rounding import exact, read_fraction, round_up
from parley.privacy.ledger.chain import canonical_json

__all__ = ["spent_of_version_1"]


def spent_of_version_1(text: str, logged: Composition) -> str:
    """The text of today's total for one of version 1.

    Args:
        text: as stored.
        logged: what the log adds up to.

    Returns:
        The log's total where the sums are its own, else another one, of the stored ρ.

    Raises:
        ValueError, KeyError, TypeError: not a total of version 1.
    """
    stored = json.loads(text)
    if stored == _sums(logged):
        return canonical_json(logged.to_json())
    rho = round_up(read_fraction("rho_exact", stored["rho_exact"]))
    other = Composition.empty().add(Zcdp(rho=rho), logged.releases + 1)
    return canonical_json(other.to_json())


def _sums(spent: Composition) -> dict[str, Any]:
    """A composition as version 1 wrote it; steps of one kind were one release or several."""
    zero = Fraction(0)
    kinds = Counter(dict.fromkeys((Gaussian, Pure, Zcdp), 0))
    mu, pure, rho, pure_rho = zero, zero, zero, zero
    steps = []
    for event, count in spent.counts.items():
        kinds[type(event)] += count
        rho += event.exact_rho * count
        if isinstance(event, Gaussian):
            mu += exact(event.mu) ** 2 * count
        elif isinstance(event, Pure):
            pure += exact(event.epsilon) * count
            pure_rho += event.exact_rho * count
        elif isinstance(event, PoissonSampledGaussian):
            values = {k: v for k, v in event.to_json().items() if k != "kind"}
            steps.append((event, {**values, "count": count}))
    sums: dict[str, Any] = {
        "releases": spent.releases,
        "gaussians": kinds[Gaussian],
        "pures": kinds[Pure],
        "mu_squared": str(mu),
        "pure_epsilon": str(pure),
        "rho_exact": str(rho),
        "pure_rho": str(pure_rho),
        "slack": str(spent.slack),
    }
    if steps:
        sums["samples"] = spent.releases - kinds[Gaussian] - kinds[Pure] - kinds[Zcdp]
        sums["sampled"] = [values for _, values in sorted(steps, key=lambda item: item[0])]
    return sums
