"""Output perturbation: one noisy average of the parties' certified local optima.

For strongly convex linear models with the local objective J_j(θ) = (1/n_j) Σ ℓ(θ; x, y) + (λ/2)‖θ‖²
(Chaudhuri et al. 2011; Jayaraman et al. 2018, §3). Each optimum is certified to a gradient norm ≤
κG/n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from parley.client.algorithms.base import Claim, Contribution, PublicFacts, Weights
from parley.client.algorithms.linear_task_codec import build_linear_spec
from parley.client.algorithms.noisy_sum_algorithms import ReleasedAggregate
from parley.client.contract.assumptions import SOLVER_CONVERGENCE
from parley.client.contract.model_state_encoding import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.party_block import PartyBlock
from parley.client.models.contribution_clipping import build_real_ball, clamp_entries
from parley.client.models.linear_models import LinearModel
from parley.client.solvers.local_optima import solve_local_optima
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.calibration.optimum_sensitivity import compute_optimum_radius
from parley.privacy.sampling.random_stream import Randomness

MIN_LAMBDA: Final = 1e-8
MIN_WIDTH: Final = 0.01
MIN_TOLERANCE: Final = 2.0**-36
"""Minimum of κ/n: the gradient norm that a certificate requires, in units of G."""


@dataclass(frozen=True, kw_only=True)
class OutputPerturbation(ReleasedAggregate):
    """The noisy average of certified local optima; one round.

    A local optimum is accepted if its gradient norm is proved to be at most τ = κG/n_j
    (`parley.client.solvers.optimum_certificate`). Then ‖θ̂ − θ*‖ ≤ τ/λ by strong convexity, and the
    sensitivity of one party's model is 2G/(n_jλ) + 2τ/λ, for records on a grid of 2^-16. A party
    that cannot certify its optimum fails, and the release fails with it. This failure is visible,
    and no noise covers it. Therefore only problems are accepted for which no records are known to
    prevent the certificate (`check_certifiable`), regardless of the λ, κ and loss that a server
    requests.

    Attributes:
        relative_tolerance: κ.
    """

    kind: ClassVar[str] = "output-perturbation"
    assumption: ClassVar[str] = SOLVER_CONVERGENCE  # the certificate is proved, the solver is not

    model: LinearModel
    lambda_: float
    lipschitz: float
    weights: Weights
    relative_tolerance: float

    @property
    def dimension(self) -> int:
        """Dimension of the model."""
        return self.model.dimension

    def compute_noise_gain(self, done: int) -> float | None:
        """Return 1: the noise is on θ itself. See
        `parley.client.algorithms.iterative_algorithm.HasNoiseGain`.
        """
        return 1.0

    def check_certifiable(self, records: int) -> None:
        """Refuse problems whose optimum double precision may not reach, for some records.

        Newton's method is damped and J is λ-strongly convex, so each party converges in exact
        arithmetic. Rounding leaves a gradient of about 2⁻⁵²·G, and relative errors of the steps of
        2⁻⁵²/(λ·h), with h the width over which the slope changes. The limits keep both far away.
        """
        if not self.lambda_ >= MIN_LAMBDA:
            expected = f"Expected lambda >= {MIN_LAMBDA:g} with output-perturbation"
            why = "optima could not be certified for all records"
            raise ValueError(f"{expected}, got {self.lambda_:g}: {why}.")
        if not self.relative_tolerance >= MIN_TOLERANCE * records:
            raise ValueError(
                f"Expected a relative_tolerance >= {MIN_TOLERANCE:g} per record, here "
                f"{MIN_TOLERANCE * records:.3g}, got {self.relative_tolerance:g}."
            )
        if not self.model.smoothness * MIN_WIDTH <= 0.5:
            raise ValueError(
                f"Expected a loss with a slope that changes over a width >= {MIN_WIDTH:g} with "
                "output-perturbation, got a smaller width: optima could not be certified for all "
                "records."
            )

    @property
    def bound(self) -> float:
        """Bound ‖θ_j‖ ≤ G(1 + κ)/λ: at the optimum λθ is minus a mean of gradients no longer than
        G.
        """
        return self.lipschitz * (1 + self.relative_tolerance) / self.lambda_

    def local(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """Compute each party's certified optimum."""
        if plan.gradient_tolerance is None:
            raise ValueError("Expected a plan with a gradient_tolerance, got None.")
        target = plan.gradient_tolerance / block.sizes  # κG/n_j of each party
        lambda_ = self.lambda_
        optima = solve_local_optima(self.model, block, lambda_=lambda_, gradient_tolerance=target)
        failed = tuple(np.flatnonzero(~optima.certified).tolist())
        clamp_entries(optima.theta, self.bound)  # towards the optimum, which is within the bound
        return Contribution(values=optima.theta, failed=failed)

    def claim(self, facts: PublicFacts) -> Claim:
        """Claim a ball of radius G(1 + κ)/(n₍₁₎λ) (uniform) or G(1 + κ)/(n̄λ) (size)."""
        # A gradient bound that holds only on a ball, or only after clipping, bounds no optimum.
        if not math.isinf(self.model.loss.theta_radius) or self.lipschitz < self.model.lipschitz:
            expected = "Expected a loss whose gradient is bounded everywhere, unclipped"
            got = f"{type(self.model.loss).__name__} with |gradient| ≤ {self.lipschitz:g}"
            raise ValueError(f"{expected}, got {got}.")
        self.check_certifiable(facts.max_records)
        radius = compute_optimum_radius(
            lipschitz=self.lipschitz,
            lambda_=self.lambda_,
            parties=facts.parties,
            min_records=facts.min_records,
            total_records=facts.total_records,
            weights=self.weights,
            relative_tolerance=self.relative_tolerance,
        )
        ball, bits = build_real_ball(self.dimension, radius)
        return Claim(
            dimension=self.dimension,
            features=self.model.features,
            bound=self.bound,
            lies_in=ball,
            grid_bits=bits,
            whole=False,
            unit=Unit.RECORD,
            neighbouring=Neighbouring.REPLACE_ONE,
            weights=self.weights,
            classes=self.model.loss.outputs,
            lipschitz=self.lipschitz,
            lambda_=self.lambda_,
            gradient_tolerance=self.relative_tolerance * self.lipschitz,
        )


@dataclass(frozen=True, kw_only=True)
class PathakAveraging(OutputPerturbation):
    """The average of certified optima, with m times the noise its ε needs (Pathak et al. 2010)."""

    kind: ClassVar[str] = "pathak"

    def claim(self, facts: PublicFacts) -> Claim:
        """Claim the same as output perturbation, at ε/m."""
        return replace(super().claim(facts), epsilon_share=1 / facts.parties)


_CERTIFIED = ", and each party certifies its local optimum"

SPEC = build_linear_spec(
    OutputPerturbation,
    title="output perturbation",
    bounded=_CERTIFIED,
    remedy=("algorithm.kind=gradient-perturbation",),
    advice="{remedy} usually loses less at the same ε, if δ > 0 is acceptable",
)

PATHAK_SPEC = build_linear_spec(
    PathakAveraging,
    title="output perturbation (Pathak et al. 2010)",
    bounded=_CERTIFIED,
    remedy=("algorithm.kind=output-perturbation",),
    advice="This noise is m times what its ε needs: {remedy} needs an m-th of it",
)
