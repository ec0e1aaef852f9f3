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

from client.decoding import DecodingError, facts_from
from privacy.events import Event
from privacy.guarantee import Neighbouring, NoisePoint, Unit
from privacy.mechanisms import MECHANISMS, Mechanism
from privacy.party_steps import PartySteps
from secure_agg.encoding import FixedPoint

__all__ = ["ACCOUNTANT_VERSION", "ReleasePlan"]

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
        dimension: d.
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

    @property
    def event(self) -> Event:
        """What one release under this plan charges."""
        return self.mechanism.event()

    @property
    def inflation(self) -> float:
        """Relative growth of the sensitivity by rounding to the grid."""
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
        """What the ledger keeps of a release, under the keys of `privacy.ledger_entry.FACTS`."""
        facts: dict[str, Any] = {
            "mechanism": self.algorithm,
            "unit": str(self.unit),
            "neighbouring": str(self.neighbouring),
            "norm": "L2",
            "sensitivity": self.sensitivity,
            "noise_law": self.mechanism.law,
            "noise_parameter": self.mechanism.scale / 2.0**self.encoding.scale_bits,
            "accountant": "privacy.events",
            "accountant_version": ACCOUNTANT_VERSION,
            "noise_point": str(self.noise_point),
            "seeded": self.seeded,
            "calibration": self.calibration,
            "dimension": self.dimension,
            "parties": self.parties,
            "public_n": self.min_records,
            "total_records": round(self.mean_records * self.parties),
            "weights": self.weights,
            "lipschitz": self.lipschitz,
            "lambda": self.lambda_,
            "lambda_convention": "(λ/2)‖θ‖²",
            "grid_scale": 2.0**self.encoding.scale_bits,
            "grid_inflation": self.inflation,
            "honest_threshold": self.min_survivors,
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
        if self.tolerance is not None:
            facts["gradient_tolerance"] = self.tolerance / self.min_records
        return facts

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives the same plan back."""
        plain = asdict(self)
        plain["mechanism"] = {"law": self.mechanism.law, **plain["mechanism"]}
        enums = {name: str(plain[name]) for name in ("noise_point", "unit", "neighbouring")}
        return {**plain, **enums}

    @classmethod
    def from_json(cls, value: Any) -> ReleasePlan:
        """The inverse of `to_json`, for a plan that somebody proposes.

        Raises:
            DecodingError: a field is missing, unknown, of another type or out of its range.
        """
        if not isinstance(value, Mapping):
            raise DecodingError(f"Expected a plan as an object, got {type(value).__name__}.")
        rest = dict(value)
        mechanism = rest.pop("mechanism", None)
        if not isinstance(mechanism, Mapping):
            raise DecodingError("Expected a plan's mechanism as an object, got another.")
        law = mechanism.get("law")
        laws: dict[str, type[Mechanism]] = {**MECHANISMS, PartySteps.law: PartySteps}
        if not isinstance(law, str) or law not in laws:
            raise DecodingError(f"Expected a noise law of {', '.join(laws)}, got another.")
        numbers = {key: number for key, number in mechanism.items() if key != "law"}
        plan = facts_from(
            cls,
            {key: field for key, field in rest.items() if key != "encoding"},
            mechanism=facts_from(laws[law], numbers),
            encoding=facts_from(FixedPoint, rest.get("encoding")),
        )
        if min(plan.round_number, plan.dimension, plan.parties, plan.min_records) < 1:
            raise DecodingError("Expected round, dimension, parties and min_records >= 1.")
        if not 1 <= plan.min_survivors <= plan.parties or plan.weights not in ("uniform", "size"):
            raise DecodingError("Expected min_survivors from 1 to m and known weights, got others.")
        if plan.mechanism.dimension != plan.dimension or not 0 <= plan.delta < 1:
            raise DecodingError("Expected a mechanism of the plan's dimension and δ in [0, 1).")
        if min(plan.sensitivity, plan.lipschitz, plan.mean_records) <= 0 or plan.lambda_ < 0:
            raise DecodingError("Expected sensitivity, G and mean records > 0, λ >= 0.")
        return plan

    def digest(self) -> str:
        """SHA-256 over the canonical JSON of every field; two plans are the same iff it is."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
