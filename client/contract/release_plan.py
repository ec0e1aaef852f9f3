"""`ReleasePlan`: what one round would release, frozen before anything is computed.

The server proposes it, and every party checks it against its own policy. It binds clipping,
weights, sensitivity, grid, noise distribution, event and neighbouring relation, so that they cannot
drift apart.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.assumptions import BLOCK_MEMBERSHIP, build_assumptions_fact
from parley.client.contract.guarantee import Guarantee
from parley.privacy.accounting.privacy_events import PrivacyEvent
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.ledger.block_composition import Blocks, parse_blocks
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.mechanisms.base import Mechanism, SampledNoise
from parley.privacy.sampling.random_stream import NoiseStream
from parley.secure_agg.encoding import FixedPoint, Ring

ACCOUNTANT_VERSION = "1"
"""Version of the accounting. It is raised if the same events would be charged differently."""


@dataclass(frozen=True, kw_only=True)
class ReleasePlan:
    """What round `round_number` of a run would release.

    The contribution of party j is `weight_j · v_j`, rounded to the grid of `encoding`. The release
    is the ring sum over the survivors plus integer noise. That noise comes from every guarantee
    whose noise is not in the contributions already. With noise in shares, every contribution
    contains its own, so no one sees the bare sum.

    Attributes:
        lipschitz: G, the upper bound on a record's gradient norm (by the loss or by clipping).
        min_records: public n₍₁₎. If sizes are public, a party with fewer records refuses.
        weights: uniform (weight 1) or size (weight n_j / n̄, n̄ = `mean_records`).
        gradient_tolerance: κG = n·τ, the certified gradient norm of a local optimum times n; output
            perturbation only.
        min_survivors: minimum number of contributions in a sum that may be unmasked.
        seeded: whether the noise is a simulation's, reproducible from a seed. It then protects no
            one.
        guarantees: what the release hides, the primary guarantee first. Each has another unit, and
            each of their units is charged by exactly one of them.
        step: number of this secure sum within the release, from 1. Most releases have one.
        blocks: blocks of a public column that the release reads and charges; none: all records.

    Raises:
        ValueError: there is no guarantee, or a unit is charged by none of them or by several; two
            guarantees describe the noise on sampled sums differently; or there are blocks with a
            unit other than record (each record has one block).
    """

    run_id: str
    round_number: int
    algorithm: str
    dimension: int
    lipschitz: float
    min_records: int
    weights: str
    mean_records: float
    lambda_: float
    gradient_tolerance: float | None
    encoding: FixedPoint
    min_survivors: int
    parties: int
    seeded: bool
    guarantees: tuple[Guarantee, ...]
    step: int = 1
    blocks: Blocks = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", parse_blocks(self.blocks))
        if self.blocks and self.units != (Unit.RECORD,):
            raise ValueError(f"Expected only unit record with blocks, got {self.units}.")
        units = [each.unit for each in self.guarantees]
        charged = [unit for each in self.guarantees for unit in each.charges]
        if not units or len(set(units)) < len(units) or sorted(charged) != sorted(units):
            expected = "Expected guarantees of different units, each charged once"
            raise ValueError(f"{expected}, got units {units} and charges {charged}.")
        split = [each for each in self.guarantees if each.shares is not None]
        if len({(each.mechanism.law, each.mechanism.scale, each.shares) for each in split}) > 1:
            expected = "all guarantees by noise in shares to have the same noise"
            raise ValueError(f"Expected {expected}, got several.")
        sampled = self.sampled_noises
        noises = {(each.scale, each.steps) for each in sampled}
        if sampled and (len(sampled) < len(self.guarantees) or len(noises) > 1):
            raise ValueError(
                "Expected all guarantees to have one noise on sampled sums, with one "
                "scale and one number of steps, got others."
            )

    @property
    def primary(self) -> Guarantee:
        """The guarantee to which the job's own ε and δ apply."""
        return self.guarantees[0]

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units of its guarantees, the primary guarantee's first."""
        return tuple(each.unit for each in self.guarantees)

    def get_guarantee(self, unit: Unit) -> Guarantee | None:
        """Return the guarantee of a unit; None if the release has none."""
        return next((each for each in self.guarantees if each.unit is unit), None)

    def get_charging_guarantee(self, unit: Unit) -> Guarantee:
        """Return the guarantee that charges a unit; if two apply, by `privacy.record-bound`.

        "A local DP-SGD release that only the aggregate reveals may be charged by whichever bound is
        lower" (privacy.md, section 4). No update is ever shown except in the noisy sum.

        Raises:
            ValueError: the release has no guarantee of this unit.
        """
        for each in self.guarantees:
            if unit in each.charges:
                return each
        raise ValueError(f"Expected a unit of {', '.join(self.units)}, got {unit}.")

    @property
    def private_sizes(self) -> bool:
        """Whether a guarantee hides a party's number of records.

        If so, `min_records` is an ordinary public number and bounds no party's size.
        """
        added = self.primary.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE
        return added or Unit.PARTY in self.units

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions of its ε in addition to its algorithm's."""
        replaced = self.primary.neighbouring is Neighbouring.REPLACE_ONE
        return (BLOCK_MEMBERSHIP,) if self.blocks and replaced else ()

    @property
    def parameters(self) -> int:
        """d, the model's number of parameters, without the fraction of clipped gradients."""
        return self.primary.mechanism.parameters

    def compute_event(self, unit: Unit) -> PrivacyEvent:
        """Return the privacy event that one release under this plan charges to a unit."""
        return self.get_charging_guarantee(unit).event

    @property
    def sum_guarantees(self) -> tuple[Guarantee, ...]:
        """The guarantees whose noise is on the sum: the server's noise or the parties' shares."""
        return tuple(each for each in self.guarantees if not each.in_training)

    @property
    def shared_guarantee(self) -> Guarantee | None:
        """A guarantee whose noise the parties add in shares. All such guarantees have one noise."""
        return next((each for each in self.guarantees if each.shares is not None), None)

    @property
    def sampled_noises(self) -> tuple[SampledNoise, ...]:
        """The mechanisms of noise on sampled sums: accounts of the same noise, one per unit."""
        sampled = (each.mechanism.sampled for each in self.guarantees)
        return tuple(each for each in sampled if each is not None)

    @property
    def steps(self) -> int:
        """Number of consecutive secure sums in one release."""
        return self.sampled_noises[0].steps if self.sampled_noises else 1

    @property
    def sum_number(self) -> int:
        """Number of this secure sum among those of all rounds, from 1."""
        return (self.round_number - 1) * self.steps + self.step

    @property
    def noises(self) -> tuple[Mechanism, ...]:
        """The mechanisms of the server's noise. Accounts of one noise occur once."""
        added = [each for each in self.guarantees if not each.noise_point.in_contributions]
        noises = tuple(each.mechanism for each in added)
        return noises[:1] if self.sampled_noises else noises

    def draw(self, stream: NoiseStream) -> NDArray[np.int64]:
        """Return `[d]` the server's noise on the sum in grid units; zeros if parties add all."""
        return np.asarray(self.draw_many(1, stream)[0])

    def draw_many(self, count: int, stream: NoiseStream) -> NDArray[np.int64]:
        """Return `[count, d]` the noise of `count` such releases, independent."""
        noise = np.zeros((count, self.dimension), dtype=np.int64)
        for each in self.noises:
            noise += each.draw_many(count, stream)
        return noise

    def encode(self, values: NDArray[np.floating], streams: Sequence[NoiseStream]) -> Ring:
        """Return `[B, d]` weighted contributions as ring elements, each with its noise share.

        Raises:
            EncodingError: a value is not finite or exceeds the bound. No noise is drawn then.
        """
        split = self.shared_guarantee
        if split is None or split.shares is None:
            return self.encoding.encode(values)
        shares = split.shares
        integers = self.encoding.quantize_fine(values, shares.fine_bits)
        shares.add(split.mechanism, integers, streams)
        return self.encoding.wrap_to_ring(shares.round_to_ring(integers))

    @cached_property
    def central_noise_plan(self) -> ReleasePlan | None:
        """The plan that adds up contributions for central noise, on the shares' grid (h bits
        finer).

        The noise covers what rounding to that grid moves, but not what a coarser grid would. None:
        no noise is in shares, or 64 bits do not hold the grid.
        """
        split, own = self.shared_guarantee, self.encoding
        if split is None or split.shares is None:
            return None
        more = split.shares.fine_bits
        if not more:
            return self
        if own.ring_bits + more > 63 or own.scale_bits + more > 60:
            return None
        fine = FixedPoint(scale_bits=own.scale_bits + more, ring_bits=64, bound=own.bound)
        return replace(self, encoding=fine)

    def add_central_noise(
        self, survivors: int, stream: NoiseStream, summed: Ring | None = None
    ) -> Ring:
        """Return `[d]` ring elements: a sum with one draw from the distribution of the shares' sum.

        For simulations only.

        Args:
            survivors: number of shares in that sum.
            summed: `[d]` the sum on the grid of `central_noise_plan`; None: zeros.

        Raises:
            ValueError: the plan has no noise in shares.
        """
        split, dealer = self.shared_guarantee, self.central_noise_plan
        if split is None or split.shares is None or dealer is None:
            expected = "Expected noise in shares for central noise"
            raise ValueError(f"{expected}, got noise point {self.primary.noise_point}.")
        total = np.zeros(self.dimension, dtype=np.int64)
        if summed is not None:
            total += dealer.encoding.decode(summed)
        split.shares.add_summed(split.mechanism, total, survivors, stream)
        return self.encoding.wrap_to_ring(split.shares.round_to_ring(total))

    def compute_noise_tail(self, probability: float) -> float:
        """Return the grid units that all noise exceeds with about this probability at most."""
        drawn = [each for each in self.sum_guarantees if each.shares is None]
        drawn = drawn[:1] if self.sampled_noises else drawn  # accounts of one noise
        split = self.shared_guarantee
        parts = [*drawn, split] if split is not None else drawn
        return sum(each.compute_noise_tail(probability) for each in parts)

    @property
    def inflation(self) -> float:
        """Relative growth of the sensitivity by rounding before the noise."""
        scale = 2.0**self.encoding.scale_bits
        return max((each.compute_inflation(scale) for each in self.sum_guarantees), default=0.0)

    def with_round(self, round_number: int) -> ReleasePlan:
        """Return the first sum of the same release at a round."""
        return replace(self, round_number=round_number, step=1)

    def with_step(self, step: int) -> ReleasePlan:
        """Return another sum of the same release."""
        return replace(self, step=step)

    def with_run_id(self, run_id: str) -> ReleasePlan:
        """Return the same release under a run's name."""
        return replace(self, run_id=run_id)

    def to_ledger_facts(self, unit: Unit) -> dict[str, Any]:
        """Return the ledger's facts of a release charged to `unit` (`release_facts.FACTS`).

        Raises:
            ValueError: the release has no guarantee of this unit.
        """
        own, by = self.get_guarantee(unit), self.get_charging_guarantee(unit)
        if own is None:
            raise ValueError(f"Expected a unit of {', '.join(self.units)}, got {unit}.")
        facts = {
            "mechanism": self.algorithm,
            "norm": "L2",
            "accountant": "parley.privacy.accounting.privacy_events",
            "accountant_version": ACCOUNTANT_VERSION,
            "seeded": self.seeded,
            "dimension": self.dimension,
            "parties": self.parties,
            "public_n": self.min_records,
            "total_records": round(self.mean_records * self.parties),
            "weights": self.weights,
            "lambda": self.lambda_,
            "lambda_convention": "(λ/2)‖θ‖²",
            "grid_scale": 2.0**self.encoding.scale_bits,
            "min_survivors": self.min_survivors,
            **by.to_ledger_facts(2.0**self.encoding.scale_bits),
            # A record within a party is charged by the party's bound, under the record's own
            # relation.
            "unit": str(own.unit),
            "neighbouring": str(own.neighbouring),
            "grid_inflation": self.inflation,
        }
        if by is self.primary:
            facts["lipschitz"] = self.lipschitz
            if self.gradient_tolerance is not None:
                facts["gradient_tolerance"] = self.gradient_tolerance / self.min_records
        if own is self.primary and len(self.guarantees) > 1 and not self.sampled_noises:
            inner = "inner: DP-SGD in the party"
            facts["bound"] = inner if by is own else "outer: noise on the sum of clipped updates"
        return facts

    def build_entries(
        self, dataset: str, *, party: str, assumptions: Sequence[str] = ()
    ) -> tuple[LedgerEntry, ...]:
        """Return the entries that the release charges: one per guarantee, to its unit's budget.

        Args:
            assumptions: the assumptions of its ε beyond its proof.
        """
        return tuple(
            LedgerEntry(
                run_id=self.run_id,
                dataset=dataset,
                party=party,
                index=self.round_number,
                event=self.compute_event(unit),
                facts=self.to_ledger_facts(unit)
                | build_assumptions_fact(unit, (*assumptions, *self.assumptions)),
                blocks=self.blocks,
            )
            for unit in self.units
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values. `plan_decoding.decode_plan` is the inverse."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        guarantees = [each.to_json() for each in self.guarantees]
        return plain | {"encoding": asdict(self.encoding), "guarantees": guarantees}

    def compute_digest(self) -> str:
        """Return the SHA-256 of the canonical JSON of every field. Equal digests: equal plans."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()
