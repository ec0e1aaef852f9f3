"""What a release guarantees: one `Guarantee` a unit of privacy, and mechanisms as JSON.

See privacy.md, section 4, for what may be charged where two bounds are proved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from parley.client.contract.decoding import DecodingError, facts_from
from parley.privacy.accounting.events import Event
from parley.privacy.accounting.guarantee import Adversary, Neighbouring, NoisePoint, Unit
from parley.privacy.mechanisms.dp_sgd import PartySteps
from parley.privacy.mechanisms.table import MECHANISMS, Mechanism

__all__ = ["Guarantee", "mechanism_from_json", "mechanism_to_json"]

_LAWS: dict[str, type[Mechanism]] = {**MECHANISMS, PartySteps.law: PartySteps}


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What the noise of one mechanism hides of a release, and from whom.

    A release whose parties clip their updates to S and train by DP-SGD has two: of a record, by
    the noise inside its party; and of a party, by the server's noise on the sum. Replacing
    everything that one party holds moves the sum by at most 2S, whatever the others drew: a
    mixture over their draws is no easier to tell apart (McMahan et al. 2018, arXiv:1710.06963).

    A record lies within one party, so the party's bound holds for a record too, under the record's
    own relation. What is released is the noisy sum alone, which has both proofs: the steps' inside
    the party, of which it is post-processing, and this one. `charges` says which units are charged
    by this mechanism's event.

    Attributes:
        unit: what one neighbour differs by.
        neighbouring: in which way.
        sensitivity: L2, of the sum of contributions, before the grid.
        mechanism: the noise; on the sum in grid units, its sensitivity with the grid's share.
        noise_point: where it is added.
        against: whom the guarantee holds against.
        delta: the δ that its ε is stated at, the sampler's distance included.
        calibration: how the noise was scaled to the unit's budget.
        clip_norm: L2 norm that a record's gradient, or a party's update, is clipped to; None
            where the bound needs no clipping.
        charges: the units that this mechanism's event is charged to.

    Raises:
        ValueError: values outside their ranges, or that contradict each other.
    """

    unit: Unit
    neighbouring: Neighbouring
    sensitivity: float
    mechanism: Mechanism
    noise_point: NoisePoint
    against: Adversary
    delta: float
    calibration: str
    clip_norm: float | None
    charges: tuple[Unit, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.delta < 1 or self.sensitivity <= 0:
            raise ValueError(
                f"Expected δ in [0, 1) and sensitivity > 0, got {self.delta}, {self.sensitivity}."
            )
        if (self.noise_point is NoisePoint.SERVER) != (self.against is Adversary.ANALYST):
            raise ValueError(
                "Expected the server's noise to hold against analysts, and the parties' against "
                f"the server too, got noise point {self.noise_point} against {self.against}."
            )
        # What hides all of a party hides each record in it, and never the other way round.
        smaller = {Unit.RECORD} if self.unit is Unit.PARTY else set()
        if not set(self.charges) <= {self.unit} | smaller:
            raise ValueError(
                f"Expected a guarantee of unit {self.unit} to be charged to it or to what lies "
                f"within it, got {', '.join(self.charges)}."
            )

    @property
    def event(self) -> Event:
        """What one release costs by this mechanism."""
        return self.mechanism.event()

    def inflation(self, scale: float) -> float:
        """Relative growth of the sensitivity by rounding to a grid of 1/`scale`."""
        if self.noise_point is NoisePoint.PARTY:
            return 0.0  # Rounding follows the noise: post-processing.
        return self.mechanism.sensitivity / (scale * self.sensitivity) - 1.0

    def facts(self, scale: float) -> dict[str, Any]:
        """What the ledger keeps of it, on a grid of 1/`scale`."""
        facts: dict[str, Any] = {
            "unit": str(self.unit),
            "neighbouring": str(self.neighbouring),
            "sensitivity": self.sensitivity,
            "noise_law": self.mechanism.law,
            "noise_parameter": self.mechanism.scale / scale,
            "noise_point": str(self.noise_point),
            "calibration": self.calibration,
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
        return facts

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives the same back."""
        plain = asdict(self)
        words = ("unit", "neighbouring", "noise_point", "against")
        return {
            **plain,
            **{name: str(plain[name]) for name in words},
            "charges": [str(unit) for unit in self.charges],
            "mechanism": mechanism_to_json(self.mechanism),
        }

    @classmethod
    def from_json(cls, value: Any) -> Guarantee:
        """The inverse of `to_json`.

        Raises:
            DecodingError: not such values.
        """
        if not isinstance(value, Mapping):
            raise DecodingError(f"Expected a guarantee as an object, got {type(value).__name__}.")
        rest = {key: part for key, part in value.items() if key != "mechanism"}
        return facts_from(cls, rest, mechanism=mechanism_from_json(value.get("mechanism")))


def _dp_accounting_version() -> str:
    return version("dp-accounting")


def mechanism_to_json(mechanism: Mechanism) -> dict[str, Any]:
    """A noise law and its numbers."""
    plain: Any = mechanism
    return {"law": mechanism.law, **asdict(plain)}


def mechanism_from_json(value: Any) -> Mechanism:
    """The inverse of `mechanism_to_json`.

    Raises:
        DecodingError: an unknown law, or numbers that it refuses.
    """
    if not isinstance(value, Mapping):
        raise DecodingError("Expected a mechanism as an object, got another.")
    law = value.get("law")
    if not isinstance(law, str) or law not in _LAWS:
        raise DecodingError(f"Expected a noise law of {', '.join(_LAWS)}, got another.")
    return facts_from(_LAWS[law], {key: part for key, part in value.items() if key != "law"})
