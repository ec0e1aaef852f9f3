"""The release plan: what one round would release, frozen before anything is computed.

The server proposes it; every party checks it against its own policy. It binds clipping, weights,
sensitivity, grid, noise law, event and neighbouring relation, so that they cannot drift apart.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.decoding import DecodingError, facts_from
from parley.client.contract.guarantee import Guarantee
from parley.privacy.accounting.events import Event
from parley.privacy.accounting.guarantee import NoisePoint, Unit
from parley.privacy.ledger.budget import PARTY_MARK
from parley.privacy.ledger.entry import Entry
from parley.privacy.mechanisms.dp_sgd import PartySteps
from parley.privacy.sampling.stream import NoiseStream
from parley.secure_agg.encoding import FixedPoint

__all__ = ["ACCOUNTANT_VERSION", "ReleasePlan"]

ACCOUNTANT_VERSION = "1"
"""Raised when the same events would be charged differently."""


@dataclass(frozen=True, kw_only=True)
class ReleasePlan:
    """What round `round_number` of a run would release.

    The contribution of party j is `weight_j · v_j`, rounded to the grid of `encoding`; the release
    is the ring sum over the survivors plus the integer noise of every guarantee whose noise point
    is the server.

    Attributes:
        dimension: d of a contribution.
        lipschitz: G: no record's gradient is longer (by the loss, or by clipping).
        min_records: public n₍₁₎; a party with fewer records refuses.
        weights: uniform (weight 1) or size (weight n_j / n̄, n̄ = `mean_records`).
        tolerance: certified gradient norm τ·n of a local optimum (κG), output perturbation only.
        min_survivors: least number of contributions whose sum may be opened.
        parties: m.
        seeded: the noise is a simulation's, reproducible from a seed, and protects nobody.
        guarantees: what the release hides, the primary one first: each of another unit, and each
            of their units charged by one of them.

    Raises:
        ValueError: no guarantee, or a unit that is charged by none of them or by several.
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
    tolerance: float | None
    encoding: FixedPoint
    min_survivors: int
    parties: int
    seeded: bool
    guarantees: tuple[Guarantee, ...]

    def __post_init__(self) -> None:
        units = [each.unit for each in self.guarantees]
        charged = [unit for each in self.guarantees for unit in each.charges]
        if not units or len(set(units)) < len(units) or sorted(charged) != sorted(units):
            raise ValueError(
                f"Expected guarantees of different units, each charged once, got units {units} "
                f"and charges {charged}."
            )

    @property
    def primary(self) -> Guarantee:
        """The guarantee that the job's own ε and δ are asked for."""
        return self.guarantees[0]

    @property
    def units(self) -> tuple[Unit, ...]:
        """Of its guarantees, the primary's first."""
        return tuple(each.unit for each in self.guarantees)

    def of(self, unit: Unit) -> Guarantee | None:
        """The guarantee of a unit, if the release has one."""
        return next((each for each in self.guarantees if each.unit is unit), None)

    def charged_by(self, unit: Unit) -> Guarantee:
        """The guarantee whose noise a unit is charged by.

        Where two bounds are proved for a record, a job's `privacy.record-bound` has chosen:
        privacy.md section 4, "a local DP-SGD release that only the aggregate reveals may be
        charged by whichever bound is lower". No update is ever shown but in the noisy sum.

        Raises:
            ValueError: the release guarantees nothing for that unit.
        """
        for each in self.guarantees:
            if unit in each.charges:
                return each
        raise ValueError(f"Expected a unit of {', '.join(self.units)}, got {unit}.")

    @property
    def parameters(self) -> int:
        """The model's: d, without the fraction of clipped gradients."""
        if isinstance(self.primary.mechanism, PartySteps):
            return self.primary.mechanism.parameters
        return self.dimension

    def event(self, unit: Unit) -> Event:
        """What one release under this plan charges one unit.

        Raises:
            ValueError: the release guarantees nothing for that unit.
        """
        return self.charged_by(unit).event

    @property
    def on_sum(self) -> tuple[Guarantee, ...]:
        """The guarantees whose noise the server adds to the sum."""
        return tuple(each for each in self.guarantees if each.noise_point is NoisePoint.SERVER)

    def draw(self, stream: NoiseStream) -> NDArray[np.int64]:
        """`[d]` the server's noise on the sum, in grid units; zeros where parties add it all."""
        noise = np.zeros(self.dimension, dtype=np.int64)
        for each in self.on_sum:
            noise += each.mechanism.draw(stream)
        return noise

    @property
    def inflation(self) -> float:
        """Relative growth of the sensitivity by rounding to the grid."""
        scale = 2.0**self.encoding.scale_bits
        return max((each.inflation(scale) for each in self.on_sum), default=0.0)

    def at_round(self, round_number: int) -> ReleasePlan:
        """The same release, one round further."""
        return replace(self, round_number=round_number)

    def for_run(self, run_id: str) -> ReleasePlan:
        """The same release under a run's name."""
        return replace(self, run_id=run_id)

    def with_primary(self, **changes: Any) -> ReleasePlan:
        """The same release with its primary guarantee changed."""
        first, *others = self.guarantees
        return replace(self, guarantees=(replace(first, **changes), *others))

    def facts(self, unit: Unit) -> dict[str, Any]:
        """What the ledger keeps of a release that is charged to `unit`: see `ledger.entry.FACTS`.

        Raises:
            ValueError: the release guarantees nothing for that unit.
        """
        own, by = self.of(unit), self.charged_by(unit)
        if own is None:
            raise ValueError(f"Expected a unit of {', '.join(self.units)}, got {unit}.")
        facts = {
            **self._common_facts(),
            **by.facts(2.0**self.encoding.scale_bits),
            # A record within a party: the party's bound, under the record's own relation.
            "unit": str(own.unit),
            "neighbouring": str(own.neighbouring),
            "grid_inflation": self.inflation,
        }
        if by is self.primary:
            facts["lipschitz"] = self.lipschitz
            if self.tolerance is not None:
                facts["gradient_tolerance"] = self.tolerance / self.min_records
        if own is self.primary and len(self.guarantees) > 1:
            inner, outer = (
                "inner: DP-SGD in the party",
                "outer: noise on the sum of clipped updates",
            )
            facts["bound"] = inner if by is own else outer
        return facts

    def entries(self, dataset: str, *, party: str) -> tuple[Entry, ...]:
        """What the release charges: one entry a guarantee, to its unit's budget.

        Args:
            dataset: name of the data in the ledger.
            party: who charges it.

        Raises:
            ValueError: facts that no ledger would take.
        """
        return tuple(
            Entry(
                run_id=self.run_id,
                dataset=dataset if unit is self.primary.unit else dataset + PARTY_MARK,
                party=party,
                index=self.round_number,
                event=self.event(unit),
                facts=self.facts(unit),
            )
            for unit in self.units
        )

    def _common_facts(self) -> dict[str, Any]:
        return {
            "mechanism": self.algorithm,
            "norm": "L2",
            "accountant": "parley.privacy.accounting.events",
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
        }

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives the same plan back."""
        return {**asdict(self), "guarantees": [each.to_json() for each in self.guarantees]}

    @classmethod
    def from_json(cls, value: Any) -> ReleasePlan:
        """The inverse of `to_json`, for a plan that somebody proposes.

        Raises:
            DecodingError: a field is missing, unknown, of another type or out of its range.
        """
        if not isinstance(value, Mapping):
            raise DecodingError(f"Expected a plan as an object, got {type(value).__name__}.")
        guarantees = value.get("guarantees")
        if not isinstance(guarantees, list) or len(guarantees) > len(Unit):
            raise DecodingError(f"Expected a list of at most {len(Unit)} guarantees in a plan.")
        plan = facts_from(
            cls,
            {key: part for key, part in value.items() if key not in {"encoding", "guarantees"}},
            encoding=facts_from(FixedPoint, value.get("encoding")),
            guarantees=tuple(Guarantee.from_json(each) for each in guarantees),
        )
        if plan.round_number < 0 or min(plan.dimension, plan.parties, plan.min_records) < 1:
            raise DecodingError("Expected round >= 0, dimension, parties and min_records >= 1.")
        if not 1 <= plan.min_survivors <= plan.parties or plan.weights not in ("uniform", "size"):
            raise DecodingError("Expected min_survivors from 1 to m and known weights, got others.")
        if any(each.mechanism.dimension != plan.dimension for each in plan.guarantees):
            raise DecodingError("Expected mechanisms of the plan's dimension, got another.")
        if min(plan.lipschitz, plan.mean_records) <= 0 or plan.lambda_ < 0:
            raise DecodingError("Expected G and mean records > 0, λ >= 0.")
        return plan

    def digest(self) -> str:
        """SHA-256 over the canonical JSON of every field; two plans are the same iff it is."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()
