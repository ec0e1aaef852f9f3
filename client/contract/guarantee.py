"""`Guarantee`: what a release guarantees, one per privacy unit.

See privacy.md, section 4, for what may be charged if two bounds are proved.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from functools import cached_property, lru_cache
from typing import Any

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import PrivacyEvent
from parley.privacy.accounting.threat_model import Adversary, Neighbouring, NoisePoint, Unit
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.noise_shares import Shares


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What the noise of one mechanism hides of a release, and against which adversary.

    If parties clip their updates to S and train by DP-SGD, a release has two guarantees. The noise
    inside a party protects a record. The server's noise on the sum protects a party. Replacing all
    of one party's data moves the sum by at most 2S, whatever the others drew. A mixture over their
    draws is no easier to tell apart (McMahan et al. 2018, arXiv:1710.06963).

    A record is within one party, so the party's bound also holds for a record, under the record's
    own relation. Only the noisy sum is released, and it has both proofs: the one of the steps
    inside the party, of which it is post-processing, and this one. `charges` lists the units that
    are charged by this mechanism's event.

    Attributes:
        sensitivity: L2 sensitivity of the sum of contributions, before the grid.
        mechanism: the noise on the sum in grid units. Its sensitivity includes the grid's share.
        delta: the δ at which its ε is stated, including the sampler's statistical distance.
        clip_norm: L2 norm to which a record's gradient or a party's update is clipped. None: the
            bound needs no clipping.
        shares: how the parties add the noise of a sum. The mechanism is then that of the k honest
            parties, in fine units. Each party adds a part, or all of it (k = 1), as the noise point
            defines. None: whoever unmasks the sum adds the noise, or the training inside a party
            does.
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
    shares: Shares | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.delta < 1 or self.sensitivity <= 0:
            got = f"{self.delta}, {self.sensitivity}"
            raise ValueError(f"Expected δ in [0, 1) and sensitivity > 0, got {got}.")
        if self.against is not self.noise_point.adversary:
            expected = f"noise at {self.noise_point} to hold against {self.noise_point.adversary}"
            raise ValueError(f"Expected {expected}, got {self.against}.")
        trained = self.noise_point.is_locally_private and self.mechanism.is_in_contributions
        if (self.shares is None) != (trained or not self.noise_point.in_contributions):
            expected = "Expected shares if, and only if, the parties add the noise of a sum"
            raise ValueError(f"{expected}, got noise point {self.noise_point}.")
        if self.shares is not None:
            self.shares.check(self.mechanism)
            if self.noise_point.is_locally_private and self.shares.min_contributions != 1:
                raise ValueError(
                    "Expected every share to be all of the noise (k = 1, c = 0) with noise point "
                    f"{self.noise_point}, got k = {self.shares.honest}, c = "
                    f"{self.shares.colluders}."
                )
        sampled = self.mechanism.sampled
        if sampled is not None and self.unit is Unit.PARTY and not sampled.hidden:
            if sampled.sampling_rate != 1:
                raise ValueError(
                    "Expected unit party to be charged at rate 1, or at the rate of a "
                    f"hidden coin for the whole party, got {sampled.sampling_rate:g}: coins "
                    "for its records do not hide a party."
                )
        elif sampled is not None and sampled.hidden and self.unit is not Unit.PARTY:
            expected = "Expected unit party with a party's hidden coin"
            why = "a sum may show whether the record's party is in it"
            raise ValueError(f"{expected}, got {self.unit}: {why}.")
        # Noise that hides a whole party also hides each record in it. The converse does not hold.
        smaller = {Unit.RECORD} if self.unit is Unit.PARTY else set()
        if not set(self.charges) <= {self.unit} | smaller:
            expected = f"a guarantee of unit {self.unit} to be charged to it or to a unit within it"
            raise ValueError(f"Expected {expected}, got {', '.join(self.charges)}.")

    @property
    def in_training(self) -> bool:
        """Whether all its noise is inside a party's training and none is on the sum."""
        return self.noise_point.is_locally_private and self.shares is None

    @property
    def party_sampling_rate(self) -> float:
        """p, the probability that a party's coin includes it in a sum; 1: it is in every sum."""
        noise = self.mechanism.sampled or self.mechanism.training
        return 1.0 if noise is None else noise.attendance

    @cached_property
    def event(self) -> PrivacyEvent:
        """The privacy event of one release by this mechanism, against the adversary `against`."""
        if self.shares is not None:
            return self.shares.build_event(self.mechanism)
        return self.mechanism.event()

    def compute_event_against(
        self, adversary: Adversary, *, survivors: int | None = None
    ) -> PrivacyEvent | None:
        """Return the privacy event of one release against an adversary; None if nothing is proved.

        Args:
            survivors: number of contributions in the sum, if known; None: those of all parties.
        """
        if self.shares is None:
            weaker = list(Adversary).index(adversary) <= list(Adversary).index(self.against)
            return self.event if weaker else None
        if adversary is self.against:
            return self.event
        if adversary is not Adversary.READERS:
            return self.shares.build_partial_event(self.mechanism, 1)
        count = self.shares.parties if survivors is None else survivors
        return self.shares.build_partial_event(self.mechanism, count)

    @property
    def noise_growth(self) -> float:
        """Ratio of the noise in a sum of all parties to the noise that is charged."""
        return 1.0 if self.shares is None else self.shares.noise_ratio

    def compute_unit_scale(self, scale: float) -> float:
        """Return the mechanism's units per unit of the values, on a ring grid of 1/`scale`."""
        return scale if self.shares is None else scale * self.shares.ring_unit

    def compute_drawn_tail(self, probability: float) -> float:
        """Return a bound that the noise exceeds with at most this probability, in its own units.

        For shares it is a bound on their sum in ring units, rounding included.
        """
        if self.shares is not None:
            return self.shares.compute_tail(self.mechanism, probability)
        return self.mechanism.noise_tail(probability)

    def compute_noise_tail(self, probability: float) -> float:
        """Return the ring units that the noise on a sum exceeds with at most this probability."""
        if self.in_training:
            return 0.0
        rounding = 0.0 if self.shares is not None else 0.5
        return self.compute_drawn_tail(probability) + rounding

    def compute_inflation(self, scale: float) -> float:
        """Return the sensitivity's relative growth by rounding, on a ring grid of 1/`scale`."""
        if self.in_training:
            return 0.0  # Rounding comes after the noise, so it is post-processing.
        exact = self.compute_unit_scale(scale) * self.sensitivity
        return self.mechanism.sensitivity / exact - 1.0

    def to_ledger_facts(self, scale: float) -> dict[str, Any]:
        """Return the facts that the ledger stores about it, on a grid of 1/`scale`."""
        facts: dict[str, Any] = {
            "unit": str(self.unit),
            "neighbouring": str(self.neighbouring),
            "sensitivity": self.sensitivity,
            "noise_law": self.mechanism.law,
            "noise_parameter": self.mechanism.scale / self.compute_unit_scale(scale),
            "noise_point": str(self.noise_point),
            "calibration": self.calibration,
        }
        if self.clip_norm is not None:
            facts["clip_norm"] = self.clip_norm
        if self.shares is not None:
            facts |= {
                "honest_shares": self.shares.honest,
                "colluders": self.shares.colluders,
                "summed_shares": self.shares.min_contributions,
                "share_parameter": self.shares.scale / self.compute_unit_scale(scale),
                "accounts": [dict(each) for each in self._accounts],
            }
        facts |= self.mechanism.build_facts()
        return facts

    @cached_property
    def _accounts(self) -> tuple[dict[str, Any], ...]:
        """ε of one release against each adversary, the weakest first; None if none is proved."""
        accounts = []
        for adversary in Adversary:
            epsilon = _compute_epsilon(self.compute_event_against(adversary), self.delta)
            charged = {"adversary": str(adversary), "charged": adversary is self.against}
            accounts.append({**charged, "epsilon": epsilon, "delta": self.delta})
        return tuple(accounts)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values. `plan_decoding.decode_guarantee` is the inverse."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        words = ("unit", "neighbouring", "noise_point", "against")
        return {
            **plain,
            **{name: str(plain[name]) for name in words},
            "charges": [str(unit) for unit in self.charges],
            "mechanism": encode_mechanism(self.mechanism),
            "shares": None if self.shares is None else asdict(self.shares),
        }


@lru_cache(maxsize=256)
def _compute_epsilon(event: PrivacyEvent | None, delta: float) -> float | None:
    if event is None:
        return None
    _, epsilon = Composition.from_events([event]).compute_lowest_epsilon(delta)
    return epsilon if math.isfinite(epsilon) else None


def encode_mechanism(mechanism: Mechanism) -> dict[str, Any]:
    """Return a noise distribution's name and numbers."""
    plain: Any = mechanism
    return {"law": mechanism.law, **asdict(plain)}
