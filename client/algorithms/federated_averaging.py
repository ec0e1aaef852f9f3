"""Federated averaging of networks (McMahan et al. 2017, arXiv:1602.05629), with noise inside or
out.

In each round each party trains from θ and contributes its update v_j = θ_j − θ.

- unit record: the training is DP-SGD (Abadi et al. 2016). v_j is post-processing of noisy sums, so
  clamping its coordinates costs no privacy. If a share of the privacy is given to it, the party's
  noisy fraction of clipped gradients travels as one more coordinate.
- unit party: the training is plain, v_j is clipped to S in L2, and noise is added to the sum. A
  party moves the sum by 2S; by S if it is added or removed (McMahan et al. 2018, arXiv:1710.06963).
- both: DP-SGD in the party, then the clip to S and noise: two guarantees of one release.

A sampled party that is not in a round contributes zero, and the average is divided by the public
fraction. One coin decides on all its steps of a round. The server's step is averaging, averaging
with momentum, or Adam (Reddi et al. 2021, arXiv:2003.00295): post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from parley.client.algorithms.base import Claim, Contribution, PublicFacts, SampledSums
from parley.client.algorithms.network_algorithm import NetworkAlgorithm
from parley.client.contract.model_state_encoding import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.party_block import PartyBlock
from parley.client.dp_sgd.batch_sums import split_party_chunks
from parley.client.dp_sgd.local_training import train_parties
from parley.client.dp_sgd.optimisers import ServerStep, build_server_state
from parley.client.dp_sgd.training_data import TrainingParties
from parley.client.models.contribution_clipping import (
    build_ball,
    build_real_ball,
    clamp_entries,
    clip_rows,
)
from parley.privacy.accounting.rounding import to_fraction
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.mechanisms.subsampled_gaussian import PartySteps
from parley.privacy.sampling.random_stream import NoiseStream, Randomness
from parley.privacy.sensitivity.bounded_sets import compute_sensitivity

_MAX_VALUES = 1 << 21
"""Coordinates of updates held at once if only their sum is needed: 16 MiB."""


@dataclass(frozen=True, kw_only=True)
class FederatedAveraging(NetworkAlgorithm):
    """Federated averaging; see the module.

    Attributes:
        update_bound: norm of a contribution: S with unit party or both. With unit record only: the
            largest coordinate after clamping, times √d for d coordinates of a contribution.
        neighbouring: with replace-one a party divides by its own number of records, which no
            neighbour changes. With add-or-remove-one it divides by the public minimum, unless its
            whole update is clipped, which bounds it for any divisor.
        both: with unit record, whether the update is also clipped to S, for a second guarantee of
            unit party.
        clipped_reach: distance from ½ within which a party's noisy fraction of clipped gradients
            survives clamping; 0 if none is released.
    """

    kind: ClassVar[str] = "fedavg"

    update_bound: float
    server: ServerStep
    both: bool = False
    clipped_reach: float = 0.0

    def __post_init__(self) -> None:
        releases_fraction, reach = self.training.clipped_share > 0, self.clipped_reach
        if not (0 < reach < math.inf if releases_fraction else reach == 0):
            expected = "Expected clipped_reach > 0 if a clipped fraction is released, otherwise 0"
            raise ValueError(f"{expected}, got {reach}.")
        if releases_fraction and (self.unit is not Unit.RECORD or self.both):
            expected = "Expected only unit record with a clipped fraction"
            raise ValueError(f"{expected}, got {'both' if self.both else self.unit}.")
        if (releases_fraction or self.both) and not self.attendance.includes_everyone:
            raise ValueError("Expected one unit and no clipped fraction with sampled parties.")

    @property
    def dimension(self) -> int:
        """Coordinates of a contribution: the network's, and the clipped fraction's."""
        return self.model.dimension + (self.training.clipped_share > 0)

    @property
    def lipschitz(self) -> float:
        """Upper bound on a unit's part of a release: C (record) or S (party)."""
        if self.unit is Unit.RECORD and self.training.clip_norm is not None:
            return self.training.clip_norm
        return self.update_bound

    def init(self) -> State:
        """Return the network's public initial state."""
        return {
            **build_server_state(self.model.start()),
            **({} if self.components is None else {"components": self.components}),
            **({"clipped": np.zeros(1)} if self.training.clipped_share else {}),
        }

    def local(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """Compute each party's update, bounded for any outcome of its training; none fails.

        A record whose gradient is not finite adds zero to the sum
        (`parley.client.dp_sgd.torch_clipping`). If training diverged, the update is not finite, and
        a fixed map brings it within its bound. With unit record this is post-processing of noisy
        sums, coordinate by coordinate. With unit party any function of a party's data with norm at
        most S moves the sum by 2S.
        """
        present = self.attendance.sample_parties(block, plan, randomness)
        if randomness.party is None and not present.all():
            values = np.zeros((block.parties, self.dimension))
            if present.any():
                present_block = block.take(np.flatnonzero(present))
                values[present] = self._compute_updates(state, present_block, plan, randomness)
        else:  # a single party trains regardless of its coin
            values = self._compute_updates(state, block, plan, randomness)
            values[~present] = 0.0
        return Contribution(values=values, failed=())

    def compute_sum(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> NDArray[np.float64] | None:
        """Return `[d]`, the sum of sampled parties' updates; None with a seed or all parties."""
        if self.attendance.includes_everyone or randomness.seeded:
            return None
        present = np.flatnonzero(self.attendance.sample_parties(block, plan, randomness))
        if not present.size:
            return np.zeros(self.dimension)
        total = np.zeros(self.dimension)
        at_once = max(1, _MAX_VALUES // self.dimension)
        for first in range(0, present.size, at_once):
            own = block.take(present[first : first + at_once])
            total += self._compute_updates(state, own, plan, randomness).sum(axis=0)
        return total

    def _compute_updates(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> NDArray[np.float64]:
        """Return `[B, d]` updates of parties that are in the round."""
        features = self.model.to_tensor(block.dense_features)
        labels = torch.as_tensor(np.asarray(block.labels, dtype=np.int64), device=self.model.device)
        public_sizes = self.neighbouring is Neighbouring.REPLACE_ONE
        uses_own_size = public_sizes or self.training.clip_norm is None
        batches, noise = self._choose_streams(block, plan, randomness)
        parties = TrainingParties(
            features=features,
            labels=labels,
            offsets=block.offsets,
            divisors=block.sizes if uses_own_size else np.full(block.parties, plan.min_records),
            batches=batches,
            noise=noise,
        )
        records = round(plan.mean_records) if uses_own_size else plan.min_records
        trained = train_parties(self.model, state["theta"], parties, self.training, records=records)
        with np.errstate(invalid="ignore"):  # ∞ − ∞ if training diverged
            values = trained.theta - state["theta"]
        if trained.clipped_fractions is not None:
            share = (trained.clipped_fractions - 0.5) * (self.coordinate_bound / self.clipped_reach)
            values = np.column_stack([values, share])
        if self.unit is Unit.RECORD and not self.both:
            clamp_entries(values, self.coordinate_bound)
        else:
            clip_rows(values, self.update_bound)
        return values

    def _choose_streams(
        self, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> tuple[list[NoiseStream], list[NoiseStream]]:
        """Return each party's two streams: its own with a seed, otherwise those of its chunk."""
        number = plan.round_number
        if randomness.seeded:
            places = block.get_positions().tolist()
            own_streams = [randomness.open_training_batches(number, place) for place in places]
            return own_streams, [randomness.open_training_noise(number, place) for place in places]
        batches, noise = list[NoiseStream](), list[NoiseStream]()
        for first, last in split_party_chunks(self.model, block.parties, self.training):
            batches += [randomness.open_training_batches(number)] * (last - first)
            noise += [randomness.open_training_noise(number)] * (last - first)
        return batches, noise

    @property
    def coordinate_bound(self) -> float:
        """Largest |coordinate| of a contribution with unit record only."""
        return self.update_bound / math.sqrt(self.dimension)

    def update(self, state: State, average: NDArray[np.float64]) -> State:
        """Make the server's step along the average update; update the mean of later iterates."""
        average = average / self.attendance.fraction
        if self.training.clipped_share:
            average, last = average[:-1], average[-1:]
            clipped = 0.5 + last * (self.clipped_reach / self.coordinate_bound)
            state = {**state, "clipped": clipped}
        return self.with_mean(state, self.server(state, average))

    def released(self, state: State) -> dict[str, float]:
        """Return the fraction of clipped gradients, if a share of the privacy is given to it."""
        if not self.training.clipped_share:
            return {}
        return {"clipped_fraction": float(state["clipped"][0])}

    def claim(self, facts: PublicFacts) -> Claim:
        """Claim a party's ball with unit party, and a record's of a step's clipped sum with unit
        record.
        """
        training, record = self.training, self.unit is Unit.RECORD
        private = self.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE
        ball, bits = build_ball(self.dimension, self.update_bound)  # set of a party's update
        clipped = self.both or not record
        steps = None
        if record:
            ball, bits = build_real_ball(self.dimension, to_fraction(self.lipschitz))
            moved = compute_sensitivity(ball, self.neighbouring)
            steps = PartySteps(
                sensitivity=moved.compute_l2(Fraction(2) ** -bits),
                dimension=self.dimension,
                clip_norm=self.lipschitz,
                noise_multiplier=training.noise_multiplier,
                sampling_rate=training.sampling_rate,
                steps=training.steps,
                neighbouring=str(self.neighbouring),
                clipped_share=training.clipped_share,
                attendance=self.attendance.rate,
            )
        sums = None
        if not record and self.attendance.rate < 1:
            sums = SampledSums(
                steps=1,
                sampling_rate=self.attendance.charged_rate,
                noise_multiplier=0.0,
                attendance=self.attendance.rate,
                hidden=self.attendance.is_secret,
            )
        divisor = facts.min_records if private else facts.max_records
        # Unit record: rounding to the grid costs no privacy, but must be small against a step's
        # noise.
        fine = math.sqrt(self.dimension) * training.compute_step_noise(divisor)
        return Claim(
            dimension=self.dimension,
            features=self.model.features,
            # A little above the clamping bound of coordinates: rescaling may round upwards.
            bound=self.update_bound if clipped else self.coordinate_bound * (1 + 1e-9),
            lies_in=ball,
            grid_bits=bits,
            whole=not record,
            unit=self.unit,
            neighbouring=self.neighbouring,
            steps=steps,
            party_norm=self.update_bound if self.both else None,
            weights="uniform" if clipped else facts.weights,
            classes=self.model.classes,
            lipschitz=self.lipschitz,
            clip_norm=self.lipschitz,
            grid_length=None if clipped else fine,
            work=training.steps,
            sums=sums,
        )
