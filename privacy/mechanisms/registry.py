"""Registry of noise laws by name: their distribution, guarantee and size.

A mechanism is a frozen fact: a law, an L2 sensitivity Δ and a scale, both in the same unit: model
units in tables, grid units (integers) in a run. Neighbours are replace-one, because that is the
relation of Δ (`parley.privacy.calibration.optimum_sensitivity`). The noise z, of dimension d, is
added once to the sum.

| law | z | guarantee | E‖z‖² |
|---|---|---|---|
| gaussian | N(0, σ²I), rounded | exact Gaussian curve, μ = Δ/σ | dσ² |
| discrete-gaussian | N_Z(0, σ²) in each coordinate | ρ = Δ²/(2σ²) | ≤ dσ² |
| l2-laplace | density ∝ exp(−‖z‖₂/b), rounded, b = Δ/ε | ε-DP | d(d+1)b² |
| laplace-l1 | discrete Laplace of scale √d·b in each | ε-DP, ρ = ε²/(2d) | 2d²b² |
| laplace-as-printed | discrete Laplace of scale b in each | √d·ε-DP, ρ = ε²/2; *not* ε-DP | 2db² |

A law that needs more than Δ₂ and a budget has no row in `MECHANISMS`, because a job cannot select
it by name. Queries use `laplace` (`parley.privacy.mechanisms.laplace.Laplace`), of scale Δ₁/ε.

    >>> noise = MECHANISMS["l2-laplace"](sensitivity=0.004, epsilon=0.5, dimension=10)
    >>> noise.scale, round(noise.expected_norm(), 7), noise.event().event
    (0.008, 0.0839047, Pure(epsilon=0.5, rho=None))
"""

from __future__ import annotations

from collections import ChainMap
from typing import Any

from parley.module_loading.plugin_table import PluginTable

MECHANISMS = PluginTable[type[Any]](
    {
        "gaussian": "parley.privacy.mechanisms.gaussian:Gaussian",
        "discrete-gaussian": "parley.privacy.mechanisms.discrete_gaussian:DiscreteGaussian",
        "l2-laplace": "parley.privacy.mechanisms.laplace:L2Laplace",
        "laplace-l1": "parley.privacy.mechanisms.laplace:LaplaceL1",
        "laplace-as-printed": "parley.privacy.mechanisms.laplace:LaplaceAsPrinted",
    }
)
"""Subclasses of `GaussianLaw` and `LaplaceLaw`, by the name that a job uses."""

_OTHERS = {
    "laplace": "parley.privacy.mechanisms.laplace:Laplace",
    "dp-sgd": "parley.privacy.mechanisms.subsampled_gaussian:PartySteps",
    "sampled-gaussian": "parley.privacy.mechanisms.subsampled_gaussian:SampledGaussian",
    "objective-perturbation": "parley.privacy.mechanisms.objective_noise:ObjectivePerturbation",
    "randomised-response": "parley.privacy.mechanisms.randomised_response:Reports",
}

MECHANISM_CLASSES = PluginTable[type[Any]](ChainMap(_OTHERS, MECHANISMS.rows))
"""Subclasses of `Mechanism`, by the name of their law, for every law that a plan may have."""
