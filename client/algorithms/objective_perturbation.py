"""Objective perturbation in each party: one average of the optima of perturbed objectives.

Party j minimises J_j(θ) + b_jᵀθ/n_j + (Δ/2)‖θ‖² with its own b_j. It certifies the solver's result
to a gradient norm ≤ κG/n_j, and adds noise for the distance to the exact minimiser (Chaudhuri,
Monteleoni & Sarwate 2011, Algorithm 2; Iyengar et al. 2019, Algorithm 1). What a party sends is
private by itself. `parley.privacy.mechanisms.objective_noise` shows what is charged, and why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import Claim, Contribution, PublicFacts
from parley.client.algorithms.linear_task_codec import build_linear_spec
from parley.client.algorithms.output_perturbation import OutputPerturbation
from parley.client.contract.model_state_encoding import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.party_block import PartyBlock
from parley.client.models.contribution_clipping import build_real_ball, clamp_entries
from parley.client.solvers.local_optima import solve_local_optima
from parley.privacy.accounting.rounding import round_up_to_bits
from parley.privacy.calibration.optimum_sensitivity import compute_optimum_radius
from parley.privacy.mechanisms.laplace import L2Laplace
from parley.privacy.mechanisms.objective_noise import ObjectiveNoise, compute_objective_noise
from parley.privacy.sampling.l2_laplace import draw_rounded_l2_laplace
from parley.privacy.sampling.random_stream import Randomness

_UNITS: Final = 2.0**28
"""Grid units per scale of b, on whose grid b is sampled."""

_TAIL: Final = 2.0**-50
"""Probability that an entry of b exceeds the encoding's range: it is clamped then."""

_MAX_TILT: Final = 2.0**12
"""Maximum b/n, in units of G. Beyond, double precision might not certify each optimum."""

_UP: Final = 1 + 1e-12

_BOUND_BITS: Final = 32
"""Significant bits of an entry's bound, which a party compares with the plan's to the bit."""


def compute_output_share(relative_tolerance: float) -> float:
    """Return the share of ε for the noise on the optimum: κ^⅔/(1 + κ^⅔).

    The two noises have variances near (1/ε₁)² and (κ/ε₂)², times the same factor. Their sum is
    smallest at ε₂/ε₁ = κ^⅔.
    """
    ratio = math.pow(relative_tolerance, 2 / 3)
    return ratio / (1 + ratio)


@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbationOfParties(OutputPerturbation):
    """The average of certified optima of perturbed objectives; one round, logistic loss.

    Attributes:
        objective_epsilon: ε₁ that the exact minimiser may cost.
    """

    kind: ClassVar[str] = "objective-perturbation"

    objective_epsilon: float

    def compute_noise_gain(self, done: int) -> float | None:
        """Return None: most noise is in the objectives, and its effect depends on the records."""
        return None

    def compute_objective_noise(self, min_records: int) -> ObjectiveNoise:
        """Return the objective's noise that suffices for parties with `min_records` or more."""
        return compute_objective_noise(
            epsilon=self.objective_epsilon,
            records=min_records,
            lambda_=self.lambda_,
            curvature=self.model.smoothness,
        )

    def claim(self, facts: PublicFacts) -> Claim:
        """Claim a ball of radius (κG + h)/(n₍₁₎(λ + Δ′)) around the exact minimiser.

        The ball covers the distance by which solvers miss the minimiser. h is what rounding b to
        its grid adds to the gradient, times n.
        """
        if not self.model.loss.twice_smooth or self.lipschitz != 1:
            raise ValueError("Expected the logistic loss, unweighted, in objective perturbation.")
        if facts.weights != "uniform" or self.weights != "uniform":
            raise ValueError("Expected uniform weights with objective perturbation, got size.")
        noise = self.compute_objective_noise(facts.min_records)
        convexity = self.lambda_ + noise.regularisation
        rounding = math.sqrt(self.dimension) * noise.scale / _UNITS
        missed = self.relative_tolerance * self.lipschitz + rounding
        radius = compute_optimum_radius(
            lipschitz=missed * _UP,
            lambda_=convexity,
            parties=facts.parties,
            min_records=facts.min_records,
        )
        ball, bits = build_real_ball(self.dimension, radius)
        return replace(
            super().claim(facts),
            lies_in=ball,
            grid_bits=bits,
            bound=self._compute_entry_bound(noise, facts.min_records),
            objective=self.objective_epsilon,
        )

    def _compute_entry_bound(self, noise: ObjectiveNoise, records: int) -> float:
        """Return a bound on entries of an optimum, for all but extreme b.

        It is (G(1 + κ) + |b_i|/n)/(λ + Δ′).
        """
        law = L2Laplace(sensitivity=noise.scale, epsilon=1.0, dimension=self.dimension)
        pulled = self.lipschitz * (1 + self.relative_tolerance) + law.noise_tail(_TAIL) / records
        if not pulled <= _MAX_TILT * self.lipschitz:
            expected = f"Expected noise in the objective of at most {_MAX_TILT:g} times a gradient"
            remedy = "Use a larger epsilon, or parties with more records."
            raise ValueError(f"{expected}, got {pulled:.3g}. {remedy}")
        # Rounded up to few bits: server and party get the same value even if their processors'
        # logarithms differ.
        return round_up_to_bits(pulled / (self.lambda_ + noise.regularisation), _BOUND_BITS)

    def local(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """Compute each party's certified optimum of its perturbed objective."""
        if plan.gradient_tolerance is None:
            raise ValueError("Expected a plan with a gradient_tolerance, got None.")
        noise = self.compute_objective_noise(plan.min_records)
        tilts = self._draw_tilts(block.get_positions(), plan.round_number, randomness)
        optima = solve_local_optima(
            self.model,
            block,
            lambda_=self.lambda_ + noise.regularisation,
            gradient_tolerance=plan.gradient_tolerance / block.sizes,
            tilt=tilts * (noise.scale * _UP / _UNITS) / block.sizes[:, None],
        )
        # Clamping two optima never moves them further apart.
        clamp_entries(optima.theta, self._compute_entry_bound(noise, plan.min_records))
        failed = tuple(np.flatnonzero(~optima.certified).tolist())
        return Contribution(values=optima.theta, failed=failed)

    def _draw_tilts(
        self, positions: NDArray[np.int64], number: int, randomness: Randomness
    ) -> NDArray[np.int64]:
        """Sample `[B, d]` b in units of its grid, of length Gamma(d, `_UNITS`)."""
        if not randomness.seeded:
            stream = randomness.open_objective_noise(number)
            return draw_rounded_l2_laplace(_UNITS, self.dimension, len(positions), stream)
        streams = (randomness.open_objective_noise(number, place) for place in positions.tolist())
        tilts = [draw_rounded_l2_laplace(_UNITS, self.dimension, 1, stream) for stream in streams]
        return np.concatenate(tilts)


SPEC = build_linear_spec(
    ObjectivePerturbationOfParties,
    title="objective perturbation in the parties",
    bounded=", and each party certifies its perturbed optimum",
    remedy=("algorithm.kind=output-perturbation", "privacy.noise-point=share"),
    advice="Noise in each party is in total √m times what a sum needs: {remedy} loses less",
)
