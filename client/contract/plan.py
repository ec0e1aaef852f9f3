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
from parley.client.contract.guarantee import PartyLevel, mechanism_from_json, mechanism_to_json
from parley.privacy.accounting.events import Event
from parley.privacy.accounting.guarantee import Neighbouring, NoisePoint, Unit
from parley.privacy.ledger.budget import PARTY_MARK
from parley.privacy.ledger.entry import Entry
from parley.privacy.mechanisms.dp_sgd import PartySteps
from parley.privacy.mechanisms.table import Mechanism
from parley.privacy.sampling.stream import NoiseStream
from parley.secure_agg.encoding import FixedPoint

__all__ = ["ACCOUNTANT_VERSION", "PartyLevel", "ReleasePlan"]

ACCOUNTANT_VERSION = "1"
"""Raised when the same events would be charged differently."""


def _dp_accounting_version() -> str:
    from importlib.metadata import version

    return version("dp-accounting")


@dataclass(frozen=True, kw_only=True)
class ReleasePlan:
    """What round `round_number` of a run would release.

    The contribution of party j is `weight_j · v_j`, rounded to the grid of `encoding`; the release
    is the ring sum over the survivors plus `mechanism`'s integer noise. Two data sets are
    neighbours as `neighbouring` says for one `unit`.

    Attributes:
        dimension: d of a contribution.
        lipschitz: G: no record's gradient is longer (by the loss, or by clipping).
        clip_norm: clip every record's gradient to this L2 norm; None where G needs no clipping.
        min_records: public n₍₁₎; a party with fewer records refuses.
        weights: uniform (weight 1) or size (weight n_j / n̄, n̄ = `mean_records`).
        sensitivity: L2 sensitivity of the *sum* of contributions, before the grid.
        tolerance: certified gradient norm τ·n of a local optimum (κG), output perturbation only.
        mechanism: noise on the encoded sum, in grid units, its sensitivity with the grid's share.
        delta: the δ that ε is stated at, the sampler's distance included.
        min_survivors: least number of contributions whose sum may be opened.
        parties: m.
        calibration: how the noise was scaled to the budget.
        seeded: the noise is a simulation's, reproducible from a seed, and protects nobody.
        party_level: the second guarantee, of unit party, beside this one of unit record; its
            noise is added to the same sum.
    """

    run_id: str
    round_number: int
    algorithm: str
    dimension: int
    lipschitz: float
    clip_norm: float | None
    min_records: int
    weights: str
    mean_records: float
    lambda_: float
    tolerance: float | None
    sensitivity: float
    encoding: FixedPoint
    mechanism: Mechanism
    delta: float
    noise_point: NoisePoint
    unit: Unit
    neighbouring: Neighbouring
    min_survivors: int
    parties: int
    calibration: str
    seeded: bool
    party_level: PartyLevel | None = None

    @property
    def parameters(self) -> int:
        """The model's: d, without the fraction of clipped gradients."""
        if isinstance(self.mechanism, PartySteps):
            return self.mechanism.parameters
        return self.dimension

    @property
    def event(self) -> Event:
        """What one release under this plan charges one `unit`.

        With a party-level guarantee beside it, the lower of the two bounds that are proved for a
        record: privacy.md section 4, "a local DP-SGD release that only the aggregate reveals may
        be charged by whichever bound is lower". No update is ever shown but in the noisy sum.
        """
        if self.party_level is not None and self.party_level.covers_records:
            return self.party_level.event
        return self.mechanism.event()

    def draw(self, stream: NoiseStream) -> NDArray[np.int64]:
        """`[d]` the server's noise on the sum, in grid units; zeros where parties add it all."""
        noise = self.mechanism.draw(stream)
        if self.party_level is None:
            return noise
        return noise + self.party_level.mechanism.draw(stream)

    @property
    def inflation(self) -> float:
        """Relative growth of the sensitivity by rounding to the grid."""
        if self.party_level is not None:
            scale = 2.0**self.encoding.scale_bits
            return (
                self.party_level.mechanism.sensitivity / (scale * self.party_level.sensitivity)
                - 1.0
            )
        if self.noise_point is NoisePoint.PARTY:
            return 0.0  # Rounding follows the noise: post-processing.
        scale = 2.0**self.encoding.scale_bits
        return self.mechanism.sensitivity / (scale * self.sensitivity) - 1.0

    def at_round(self, round_number: int) -> ReleasePlan:
        """The same release, one round further."""
        return replace(self, round_number=round_number)

    def for_run(self, run_id: str) -> ReleasePlan:
        """The same release under a run's name."""
        return replace(self, run_id=run_id)

    def facts(self) -> dict[str, Any]:
        """What the ledger keeps of a release, under the keys of `ledger.entry.FACTS`."""
        facts = {
            **self._common_facts(),
            "unit": str(self.unit),
            "neighbouring": str(self.neighbouring),
            "sensitivity": self.sensitivity,
            "noise_law": self.mechanism.law,
            "noise_parameter": self.mechanism.scale / 2.0**self.encoding.scale_bits,
            "noise_point": str(self.noise_point),
            "calibration": self.calibration,
            "lipschitz": self.lipschitz,
            "grid_inflation": self.inflation,
        }
        if self.clip_norm is not None:
            facts["clip_norm"] = self.clip_norm
        if isinstance(self.mechanism, PartySteps):
            facts |= {
                "noise_parameter": self.mechanism.scale,
                "sampling_rate": self.mechanism.sampling_rate,
                "sampler": f"Poisson, {self.mechanism.steps} steps a release",
                "accountant": "dp-accounting",
                "accountant_version": _dp_accounting_version(),
            }
            if self.mechanism.clipped_share:
                facts["clipped_share"] = self.mechanism.clipped_share
        if self.tolerance is not None:
            facts["gradient_tolerance"] = self.tolerance / self.min_records
        if self.party_level is None:
            return facts
        if self.party_level.covers_records:
            # A record within a party: the party's bound, under the record's own relation.
            own = {"unit": str(self.unit), "neighbouring": str(self.neighbouring)}
            return {
                **self._party_facts(self.party_level),
                **own,
                "bound": "outer: noise on the sum of clipped updates",
            }
        return {**facts, "bound": "inner: DP-SGD in the party"}

    def entries(self, dataset: str, *, party: str) -> tuple[Entry, ...]:
        """What the release charges: the budget of its own unit, and the parties' where it has two.

        Args:
            dataset: name of the data in the ledger.
            party: who charges it.

        Raises:
            ValueError: facts that no ledger would take.
        """
        own = Entry(
            run_id=self.run_id,
            dataset=dataset,
            party=party,
            index=self.round_number,
            event=self.event,
            facts=self.facts(),
        )
        if self.party_level is None:
            return (own,)
        second = replace(
            own,
            dataset=dataset + PARTY_MARK,
            event=self.party_level.event,
            facts=self.party_facts(),
        )
        return (own, second)

    def party_facts(self) -> dict[str, Any]:
        """What the ledger keeps of the same release in the parties' own budget.

        Raises:
            ValueError: the release has no party-level guarantee.
        """
        if self.party_level is None:
            raise ValueError("Expected a plan with a party-level guarantee, got one without.")
        return self._party_facts(self.party_level)

    def _party_facts(self, party: PartyLevel) -> dict[str, Any]:
        return {
            **self._common_facts(),
            "unit": str(party.unit),
            "neighbouring": str(party.neighbouring),
            "sensitivity": party.sensitivity,
            "noise_law": party.mechanism.law,
            "noise_parameter": party.mechanism.scale / 2.0**self.encoding.scale_bits,
            "noise_point": str(NoisePoint.SERVER),
            "calibration": party.calibration,
            "clip_norm": party.clip_norm,
            "grid_inflation": self.inflation,
        }

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
        plain = asdict(self)
        party = None if self.party_level is None else self.party_level.to_json()
        enums = {name: str(plain[name]) for name in ("noise_point", "unit", "neighbouring")}
        return {
            **plain,
            **enums,
            "mechanism": mechanism_to_json(self.mechanism),
            "party_level": party,
        }

    @classmethod
    def from_json(cls, value: Any) -> ReleasePlan:
        """The inverse of `to_json`, for a plan that somebody proposes.

        Raises:
            DecodingError: a field is missing, unknown, of another type or out of its range.
        """
        if not isinstance(value, Mapping):
            raise DecodingError(f"Expected a plan as an object, got {type(value).__name__}.")
        rest = dict(value)
        if "party_level" not in rest:
            raise DecodingError("Expected a party_level, or null, in a plan, got none.")
        party = rest.pop("party_level")
        plan = facts_from(
            cls,
            {key: field for key, field in rest.items() if key not in {"encoding", "mechanism"}},
            mechanism=mechanism_from_json(rest.get("mechanism")),
            encoding=facts_from(FixedPoint, rest.get("encoding")),
            party_level=None if party is None else PartyLevel.from_json(party),
        )
        if plan.round_number < 0 or min(plan.dimension, plan.parties, plan.min_records) < 1:
            raise DecodingError("Expected round >= 0, dimension, parties and min_records >= 1.")
        if not 1 <= plan.min_survivors <= plan.parties or plan.weights not in ("uniform", "size"):
            raise DecodingError("Expected min_survivors from 1 to m and known weights, got others.")
        level = plan.party_level
        if level is not None and level.mechanism.dimension != plan.dimension:
            raise DecodingError("Expected noise of the plan's dimension on the sum, got another.")
        if plan.mechanism.dimension != plan.dimension or not 0 <= plan.delta < 1:
            raise DecodingError("Expected a mechanism of the plan's dimension and δ in [0, 1).")
        if min(plan.sensitivity, plan.lipschitz, plan.mean_records) <= 0 or plan.lambda_ < 0:
            raise DecodingError("Expected sensitivity, G and mean records > 0, λ >= 0.")
        return plan

    def digest(self) -> str:
        """SHA-256 over the canonical JSON of every field; two plans are the same iff it is."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()
