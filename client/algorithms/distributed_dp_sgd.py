"""Distributed DP-SGD: each step is a secure sum of clipped gradients, with noise on the sum.

A step from the public θ (Abadi et al. 2016, arXiv:1607.00133, Algorithm 1, across parties):

1. Party j samples each of its records into a batch with probability q, by its own coins. Its
   contribution is g_j = Σ clip(∇ℓ_i(θ), C). An empty batch contributes zero.
2. The secure sum gives Σ_j g_j with noise N(0, (σC)²I), on integers.
3. It is divided by the public q·N, or by p·q·N with sampled parties. The divisor does not depend on
   the sampled or surviving records and parties.
4. The server's optimiser moves θ. This is post-processing, as is the mean of later iterates.

A step is the Poisson-subsampled Gaussian (`parley.privacy.accounting.subsampled_gaussian`). The
parties together pay for one noise, while fedavg pays for m. A round is a block of steps that are
reserved, charged and committed together. With unit party, g_j is clipped to S in L2. With both
units, records are clipped to C and then g_j to S: one noise, two accounts. docs/privacy-shares.md,
section 13, has the proofs, and what the coins of records and of parties amplify.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import Claim, Contribution, PublicFacts, SampledSums
from parley.client.algorithms.network_algorithm import NetworkAlgorithm
from parley.client.contract.model_state_encoding import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.party_block import PartyBlock
from parley.client.dp_sgd.batch_sums import compute_party_sum, compute_union_sums
from parley.client.dp_sgd.optimisers import apply_step
from parley.client.dp_sgd.poisson_batches import draw_party_batches, draw_poisson_batch
from parley.client.models.contribution_clipping import build_ball, clamp_entries, clip_rows
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.sampling.random_stream import NoiseStream, Randomness


@dataclass(frozen=True, kw_only=True)
class DistributedDPSGD(NetworkAlgorithm):
    """Distributed DP-SGD; see the module.

    Attributes:
        training: rate, clip norm (None with unit party) and clipping method. Its `steps` are those
            of a round, its optimiser is the server's. Its noise is the one requested on the sum (0
            with unit party, where only the budget determines it).
        bound: largest |coordinate| of a contribution; a larger one is clamped.
        party_norm: S, with unit party or both; None with unit record.
        expected_batch: q·N, public.
        pad: a single party processes the same number of rows, regardless of its batch
            (`parley.client.dp_sgd.poisson_batch_bound.compute_padded_width`).
    """

    kind: ClassVar[str] = "distributed-dp-sgd"

    bound: float
    party_norm: float | None
    expected_batch: float
    pad: bool

    def __post_init__(self) -> None:
        record = self.unit is Unit.RECORD
        if record != (self.training.clip_norm is not None) or not (record or self.party_norm):
            raise ValueError(
                "Expected a clip norm of records with unit record or both, and one of parties with "
                f"unit party or both, got {self.training.clip_norm} and {self.party_norm}."
            )
        if self.training.clipped_share or bool(self.training.noise_multiplier) != record:
            expected = "Expected noise on clipped sums of records, and no share of it for a count"
            got = f"{self.training.noise_multiplier}, {self.training.clipped_share}"
            raise ValueError(f"{expected}, got {got}.")
        if self.both and not self.attendance.includes_everyone:
            raise ValueError("Expected one unit with sampled parties, got both.")
        if min(self.expected_batch, self.bound) <= 0 or self.rounds < 1:
            expected = "Expected q·N, a bound and rounds > 0"
            raise ValueError(f"{expected}, got {self.expected_batch}, {self.bound}, {self.rounds}.")

    @property
    def dimension(self) -> int:
        """Dimension of the network."""
        return self.model.dimension

    @property
    def both(self) -> bool:
        """Whether it has a guarantee of unit party in addition to that of unit record."""
        return self.unit is Unit.RECORD and self.party_norm is not None

    @property
    def lipschitz(self) -> float:
        """Upper bound on a unit's part of a sum: C (record) or S (party)."""
        clip = self.training.clip_norm if self.unit is Unit.RECORD else self.party_norm
        return float(clip or 0)

    def init(self) -> State:
        """Return the network's public initial state."""
        theta = self.model.start()
        zero = np.zeros_like(theta)
        return {
            "theta": theta,
            **dict.fromkeys(self.training.moments, zero),
            **({"average": zero} if self.average else {}),
            "round": np.zeros(1),
            **({} if self.components is None else {"components": self.components}),
        }

    def local(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """Compute each party's clipped sum at θ, bounded for any records; none fails.

        A single party, and a simulation that repeats, process one party's batch after the other.
        Their results agree to the last bit. Otherwise all batches go through one pass.
        """
        theta, rate = state["theta"], self.training.sampling_rate
        present = self.attendance.sample_parties(block, plan, randomness)
        if randomness.seeded or randomness.party is not None:
            rows = []
            for position, place in enumerate(block.get_positions()):
                if randomness.party is None and not present[position]:
                    rows.append(np.zeros(self.dimension))
                    continue  # a single party computes regardless of its coin
                begin, end = block.offsets[position], block.offsets[position + 1]
                stream = randomness.open_step_batch(plan.round_number, plan.step, int(place))
                party_sum = compute_party_sum(
                    self.model,
                    theta,
                    block.features[begin:end],
                    block.labels[begin:end],
                    draw_poisson_batch(int(end - begin), rate, stream),
                    self.training,
                    public=plan.min_records,
                    pad=self.pad,
                    draws=self._get_loss_stream(plan, randomness, int(place)),
                )
                rows.append(party_sum)
            values = np.stack(rows)
        else:
            batches = self._sample_batches(block, plan, randomness, present)
            values = compute_union_sums(
                self.model,
                theta,
                block.dense_features,
                block.labels,
                batches,
                self.training,
                # An audit's block contains many federations.
                public=plan.min_records * max(plan.parties, block.parties),
                draws=self._get_loss_stream(plan, randomness),
            )
        if self.party_norm is not None:
            clip_rows(values, self.party_norm)
        clamp_entries(values, self.bound)
        values[~present] = 0.0
        return Contribution(values=values, failed=())

    def compute_sum(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> NDArray[np.float64] | None:
        """Return `[d]`, the sum of `local` over the parties; None if each contribution is needed.

        For a simulation in which no one sees a contribution: one product per layer for all parties.
        """
        clip = self.training.clip_norm
        if self.party_norm is not None or clip is None or randomness.seeded:
            return None
        theta = state["theta"]
        present = self.attendance.sample_parties(block, plan, randomness)
        batches = self._sample_batches(block, plan, randomness, present)
        public = plan.min_records * plan.parties
        if max(map(len, batches)) * clip > self.bound:  # one might be clamped
            sums = compute_union_sums(
                self.model, theta, block.dense_features, block.labels, batches, self.training,
                public=public, draws=self._get_loss_stream(plan, randomness),
            )  # fmt: skip
            clamp_entries(sums, self.bound)
            return np.asarray(sums.sum(axis=0))
        rows = np.concatenate(batches)
        return compute_party_sum(  # all parties as one: no single sum is computed
            self.model, theta, block.dense_features, block.labels, rows, self.training,
            public=public, pad=False, draws=self._get_loss_stream(plan, randomness),
        )  # fmt: skip

    def _sample_batches(
        self, block: PartyBlock, plan: ReleasePlan, randomness: Randomness, drawn: NDArray[np.bool_]
    ) -> list[NDArray[np.int64]]:
        """Return each party's batch, from one stream; empty if the party is not in the sum."""
        stream = randomness.open_step_batch(plan.round_number, plan.step)
        batches = draw_party_batches(block.offsets, self.training.sampling_rate, stream)
        both = zip(batches, drawn, strict=True)
        return [rows if is_drawn else rows[:0] for rows, is_drawn in both]

    def _get_loss_stream(
        self, plan: ReleasePlan, randomness: Randomness, row: int = 0
    ) -> NoiseStream | None:
        """Return the stream of the records' losses, if they use random numbers."""
        if not self.model.draws_per_record:
            return None
        return randomness.open_loss_draws(plan.round_number, plan.step, row)

    def update(self, state: State, total: NDArray[np.float64]) -> State:
        """Make the server's step along the noisy sum `[d]` over q·N; update the mean of later
        iterates.
        """
        after = apply_step(state, total / self.expected_batch, self.training)
        return self.with_mean(state, after) if self.average else after

    @property
    def steps(self) -> int:
        """Steps T of all rounds."""
        return self.rounds * self.training.steps

    def claim(self, facts: PublicFacts) -> Claim:
        """Claim C or 2C per step's sum, on batches at rate q; 2S with unit party, at rate 1."""
        training, rate = self.training, self.training.sampling_rate
        if self.unit is Unit.PARTY:
            ball, bits = build_ball(self.dimension, self.lipschitz)
            rate = self.attendance.charged_rate
        else:
            ball, bits = training.build_sensitivity_set(self.dimension)
        return Claim(
            dimension=self.dimension,
            features=self.model.features,
            bound=self.bound,
            lies_in=ball,
            grid_bits=bits,
            whole=not self.both,  # with both units it is clipped once more
            unit=self.unit,
            neighbouring=self.neighbouring,
            party_norm=self.party_norm if self.both else None,
            classes=self.model.classes,
            lipschitz=self.lipschitz,
            clip_norm=self.lipschitz,
            sums=SampledSums(
                steps=training.steps,
                sampling_rate=rate,
                noise_multiplier=training.noise_multiplier,
                attendance=self.attendance.rate,
                # The sum may show whether a record's party is in it, so that coin hides no record.
                hidden=self.unit is Unit.PARTY and self.attendance.is_secret,
            ),
            work=training.steps,
        )
