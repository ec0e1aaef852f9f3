"""The second guarantee of a release that protects records and parties both, and mechanisms as JSON.

See privacy.md, section 4, for what may be charged where two bounds are proved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from parley.client.contract.decoding import DecodingError, facts_from
from parley.privacy.accounting.events import Event
from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.privacy.mechanisms.dp_sgd import PartySteps
from parley.privacy.mechanisms.table import MECHANISMS, Mechanism

__all__ = ["PartyLevel", "mechanism_from_json", "mechanism_to_json"]

_LAWS: dict[str, type[Mechanism]] = {**MECHANISMS, PartySteps.law: PartySteps}


@dataclass(frozen=True, kw_only=True)
class PartyLevel:
    """The second guarantee of a release that protects records and parties both.

    Every party's update, from DP-SGD or not, is clipped to S in L2, and the server adds noise to
    the sum. Replacing everything that one party holds moves the sum by at most 2S, whatever the
    others drew: a mixture over their draws is no easier to tell apart (McMahan et al. 2018,
    arXiv:1710.06963).

    A record lies within one party, so the same bound holds for a record. What is released is the
    noisy sum alone, which has both proofs: the steps' inside the party, of which it is
    post-processing, and this one. `covers_records` says that this one is lower, and charged.

    Attributes:
        clip_norm: S.
        sensitivity: 2S, of the sum, before the grid.
        mechanism: noise on the encoded sum, in grid units, its sensitivity with the grid's share.
        delta: the δ that the party's ε is stated at.
        calibration: how the noise was scaled to the parties' budget.
        covers_records: whether records are charged by this noise, not by their DP-SGD steps.
    """

    unit: ClassVar[Unit] = Unit.PARTY
    neighbouring: ClassVar[Neighbouring] = Neighbouring.REPLACE_ONE

    clip_norm: float
    sensitivity: float
    mechanism: Mechanism
    delta: float
    calibration: str
    covers_records: bool

    @property
    def event(self) -> Event:
        """What one release charges the party."""
        return self.mechanism.event()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives the same back."""
        return {**asdict(self), "mechanism": mechanism_to_json(self.mechanism)}

    @classmethod
    def from_json(cls, value: Any) -> PartyLevel:
        """The inverse of `to_json`.

        Raises:
            DecodingError: not such values, or noise of which the server adds none.
        """
        if not isinstance(value, Mapping):
            raise DecodingError(f"Expected a guarantee as an object, got {type(value).__name__}.")
        rest = {key: part for key, part in value.items() if key != "mechanism"}
        level = facts_from(cls, rest, mechanism=mechanism_from_json(value.get("mechanism")))
        if isinstance(level.mechanism, PartySteps) or not 0 <= level.delta < 1:
            raise DecodingError("Expected noise on the sum and δ in [0, 1), got another.")
        if min(level.clip_norm, level.sensitivity) <= 0:
            raise DecodingError("Expected clip_norm and sensitivity > 0, got others.")
        return level


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
