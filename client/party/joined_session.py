"""`JoinedSession`: a run that a party joined, with its agreement and the protocol's state.

Every later message, in any process, is checked against it. The state's bytes contain the secrets of
the run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256

from parley.client.contract.agreement import Agreement
from parley.client.contract.message_frames import MessageFrame, encode_frame
from parley.client.contract.refusals import Declined, Reason
from parley.client.contract.release_plan import ReleasePlan
from parley.secure_agg.messages import Roster, RoundShares, RoundStart, decode, read_kind
from parley.secure_agg.protocol_parameters import RunParameters


@dataclass(frozen=True, kw_only=True)
class JoinedSession:
    """One session of one run.

    Attributes:
        release: name of the open round's release, for the unmasking log. Empty if all of its noise
            is in this party's contribution, which covers any number of sums.
        state: bytes of the protocol's state, secret; empty before the run's key exists.
        request: digest of the last answered request; empty if the last one was refused.
        answer: blobs of its answer, kept until the next request. If the answer is lost on its way,
            a repeated request gets the same bytes, which reveal nothing new.
    """

    agreement: Agreement
    release: bytes = b""
    state: bytes = field(default=b"", repr=False)
    request: bytes = b""
    answer: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def session(self) -> str:
        """The session's 32 hex digits."""
        return self.agreement.session

    @classmethod
    def from_request(cls, frame: MessageFrame, *, identities: tuple[bytes, ...]) -> JoinedSession:
        """Return the session that a join request proposes; see `Agreement.from_head`."""
        components = frame.blobs[0]
        agreement = Agreement.from_head(frame.head, components=components, identities=identities)
        return cls(agreement=agreement)

    @classmethod
    def from_file(cls, frame: MessageFrame, *, identities: tuple[bytes, ...]) -> JoinedSession:
        """Return the session that `to_file` wrote."""
        joined = cls.from_request(frame, identities=identities)
        present = bytes.fromhex(frame.head["present"])
        return replace(
            joined,
            agreement=replace(joined.agreement, present=present),
            release=bytes.fromhex(frame.head["release"]),
            state=frame.blobs[1],
            request=bytes.fromhex(frame.head.get("request", "")),
            answer=frame.blobs[2:],
        )

    def to_file(self) -> MessageFrame:
        """Return the whole session as a frame, including secrets."""
        head = {
            **self.agreement.build_head(),
            "present": self.agreement.present.hex(),
            "release": self.release.hex(),
            "request": self.request.hex(),
        }
        blobs = (self.agreement.components, self.state, *self.answer)
        return MessageFrame(kind="join", head=head, blobs=blobs)

    def with_answer(self, request: bytes, answer: tuple[bytes, ...]) -> JoinedSession:
        """Return the session with the answer to a request, which replaces the previous one."""
        return replace(self, request=request, answer=answer)

    def find_answer(self, request: bytes) -> tuple[bytes, ...] | None:
        """Return the kept answer to exactly this request; None if there is none."""
        return self.answer if self.answer and request == self.request else None

    def find_shares(self, run: RunParameters, number: int) -> bytes:
        """Return the kept Shares of a round; empty if the last answer has none.

        They are repeated as they are: a second sharing of the round's secrets would seal other
        messages under the same keys.
        """
        if not self.answer or read_kind(self.answer[-1]) != RoundShares.kind:
            return b""
        shares = decode(run, self.answer[-1], RoundShares)
        return self.answer[-1] if shares.round_number == number else b""

    def with_roster(self, message: bytes) -> JoinedSession:
        """Return the session with the parties of a Roster message present."""
        present = decode(self.agreement.parameters, message, Roster).present
        return replace(self, agreement=replace(self.agreement, present=present))

    def build_agreement(self, plan: ReleasePlan, *, message: bytes, state: bytes) -> Agreement:
        """Return the agreement for one round.

        Raises:
            Declined: plan-changed, if the plan is not the one that was joined.
        """
        agreement = self.agreement
        if plan != agreement.plan.with_round(plan.round_number).with_step(plan.step):
            before, now = agreement.plan.to_json(), plan.to_json()
            changed = [name for name in now if before[name] != now[name]]
            others = " and ".join(name for name in changed if name not in {"round_number", "step"})
            raise Declined(
                Reason.PLAN_CHANGED, f"Expected the plan of the join, got another {others}."
            )
        serial = decode(agreement.parameters, message, RoundStart).round_number
        return replace(agreement, plan=plan, serial=serial, state=state)


def hash_request(frame: MessageFrame) -> bytes:
    """Return a digest of a whole request."""
    return sha256(encode_frame(frame)).digest()
