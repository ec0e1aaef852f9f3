"""A run that a party joined: what was agreed to at its start, and the protocol's state.

Every later message, in whatever process, is held against it. The state's bytes hold the secrets of
the run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from parley.client.contract.agreement import Agreement
from parley.client.contract.party_protocol import Declined, Frame, Reason
from parley.client.contract.release_plan import ReleasePlan
from parley.secure_agg.messages import Roster, RoundStart, decode


@dataclass(frozen=True, kw_only=True)
class Joined:
    """One session of one run.

    Attributes:
        release: the name of the open round's, for the memory of openings; empty where all of its
            noise is in this party's contribution, which covers any number of sums.
        state: bytes of the protocol's state, secret; empty before the key of the run.
    """

    agreement: Agreement
    release: bytes = b""
    state: bytes = field(default=b"", repr=False)

    @property
    def session(self) -> str:
        """32 hex digits."""
        return self.agreement.session

    @classmethod
    def from_request(cls, frame: Frame, *, identities: tuple[bytes, ...]) -> Joined:
        """What a join request asks for; see `Agreement.proposed`."""
        components = frame.blobs[0]
        return cls(
            agreement=Agreement.proposed(frame.head, components=components, identities=identities)
        )

    @classmethod
    def from_file(cls, frame: Frame, *, identities: tuple[bytes, ...]) -> Joined:
        """The session that `to_file` wrote."""
        joined = cls.from_request(frame, identities=identities)
        present = bytes.fromhex(frame.head["present"])
        return replace(
            joined,
            agreement=replace(joined.agreement, present=present),
            release=bytes.fromhex(frame.head["release"]),
            state=frame.blobs[1],
        )

    def to_file(self) -> Frame:
        """Everything, secrets included."""
        head = {
            **self.agreement.head(),
            "present": self.agreement.present.hex(),
            "release": self.release.hex(),
        }
        return Frame(kind="join", head=head, blobs=(self.agreement.components, self.state))

    def with_roster(self, message: bytes) -> Joined:
        """The same with the parties of a Roster message present."""
        present = decode(self.agreement.parameters, message, Roster).present
        return replace(self, agreement=replace(self.agreement, present=present))

    def at_round(self, plan: ReleasePlan, *, message: bytes, state: bytes) -> Agreement:
        """What is agreed to for one round."""
        agreed = self.agreement
        if plan != agreed.plan.at_round(plan.round_number).at_step(plan.step):
            joined, asked = agreed.plan.to_json(), plan.to_json()
            parts = [
                name
                for name, value in asked.items()
                if name not in {"round_number", "step"} and joined[name] != value
            ]
            raise Declined(
                Reason.PLAN_CHANGED,
                f"Expected the plan of the join, got one with another {' and '.join(parts)}.",
            )
        serial = decode(agreed.parameters, message, RoundStart).round_number
        return replace(agreed, plan=plan, serial=serial, state=state)
