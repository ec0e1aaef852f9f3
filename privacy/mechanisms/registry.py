"""The noise laws, by name: what each one draws, what it guarantees, how large it is.

A mechanism is a frozen fact: a law, an L2 sensitivity Δ and a scale, both in one unit, whichever it
is: model units in tables, grid units (integers) in a run. Neighbours are replace-one, because Δ is
(`parley.privacy.calibration.optimum_sensitivity`). The noise z, of dimension d, is added once to
the sum.

| law | z | guarantee | E‖z‖² |
|---|---|---|---|
| gaussian | N(0, σ²I), rounded | exact Gaussian curve, μ = Δ/σ | dσ² |
| discrete-gaussian | N_Z(0, σ²) in each coordinate | ρ = Δ²/(2σ²) | ≤ dσ² |
| l2-laplace | density ∝ exp(−‖z‖₂/b), rounded, b = Δ/ε | ε-DP | d(d+1)b² |
| laplace-l1 | discrete Laplace of scale √d·b in each | ε-DP, ρ = ε²/(2d) | 2d²b² |
| laplace-as-printed | discrete Laplace of scale b in each | √d·ε-DP, ρ = ε²/2; *not* ε-DP | 2db² |

A law that needs more than Δ₂ and a budget has no row, for a job cannot ask for it by name: queries
take `laplace` (`parley.privacy.mechanisms.laplace.Laplace`), of scale Δ₁/ε.

    >>> noise = L2Laplace(sensitivity=0.004, epsilon=0.5, dimension=10)
    >>> noise.scale, round(noise.expected_norm(), 7), noise.event().event
    (0.008, 0.0839047, Pure(epsilon=0.5, rho=None))
"""

from __future__ import annotations

from parley.privacy.mechanisms.gaussian import DiscreteGaussian, Gaussian, GaussianLaw
from parley.privacy.mechanisms.laplace import L2Laplace, LaplaceAsPrinted, LaplaceL1, LaplaceLaw

MECHANISMS: dict[str, type[GaussianLaw] | type[LaplaceLaw]] = {
    "gaussian": Gaussian,
    "discrete-gaussian": DiscreteGaussian,
    "l2-laplace": L2Laplace,
    "laplace-l1": LaplaceL1,
    "laplace-as-printed": LaplaceAsPrinted,
}
