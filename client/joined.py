"""A run that a party joined: what its join request said, decoded, and the protocol's state.

It is kept as the request itself, so that every later message, in whatever process, is held against
what was agreed to at the start. The state's bytes hold the secrets of the run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client.algorithms import FederatedAlgorithm, State
from client.consent import Declined
from client.decoding import DecodingError
from client.examination import Proposal
from client.plan import ReleasePlan
from client.second_moments import check_components
from client.wire import Frame, Reason
from privacy.ledger_budget import checked_name
from secure_agg.interface import RemoteProtocolError
from secure_agg.parameters import RunParameters
from secure_agg.state import PartyState

__all__ = ["MOST_ROUNDS", "Joined", "plan_from", "session_of", "state_from"]

MOST_ROUNDS = 1_000_000
"""Most releases of one run."""

_SESSION = re.compile(r"[0-9a-f]{32}")
_HEADER = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Joined:
    """One session of one run.

    Attributes:
        session: 32 hex digits.
        label, intercept: how the data are read.
        components: safetensors of what rows are projected on, as they came (`components_matrix`
            checks them); empty for none.
        proposal: what was proposed, and accepted.
        release: digest of the release that was answered last, empty before the first.
        state: bytes of the protocol's state, secret; empty before the key of the run.
    """

    session: str
    label: str
    intercept: bool
    proposal: Proposal
    components: bytes = field(default=b"", repr=False)
    release: bytes = b""
    state: bytes = field(default=b"", repr=False)

    @classmethod
    def from_request(cls, frame: Frame) -> Joined:
        """What a join request asks for.

        Raises:
            Declined: protocol (malformed), or wrong-run (parameters of another session).
        """
        head, components = frame.head, frame.blobs[0]
        session = session_of(head)
        try:
            run_id = checked_name(head["run"], "run")
            parameters = RunParameters.from_bytes(bytes.fromhex(head["parameters"]))
        except (ValueError, TypeError, RemoteProtocolError) as error:
            raise Declined(Reason.PROTOCOL, f"Bad run or parameters: {error}") from error
        if parameters.run_id.hex() != session:
            raise Declined(Reason.WRONG_RUN, "Expected parameters of this session, got others.")
        task, rounds = head["task"], head["rounds"]
        if not isinstance(task, Mapping) or type(rounds) is not int:
            raise Declined(Reason.PROTOCOL, "Expected a task and a number of rounds.")
        if not 1 <= rounds <= MOST_ROUNDS:
            raise Declined(Reason.PROTOCOL, f"Expected rounds from 1 to {MOST_ROUNDS}.")
        if not isinstance(head["label"], str) or type(head["intercept"]) is not bool:
            raise Declined(Reason.PROTOCOL, "Expected a label's reading and an intercept flag.")
        return cls(
            session=session,
            components=components,
            label=head["label"],
            intercept=head["intercept"],
            proposal=Proposal(
                run_id=run_id,
                dataset=head["dataset"],
                parameters=parameters,
                task=task,
                plan=plan_from(head["plan"]),
                rounds=rounds,
            ),
        )

    @classmethod
    def from_file(cls, frame: Frame) -> Joined:
        """The session that `to_file` wrote."""
        joined = cls.from_request(frame)
        release = bytes.fromhex(frame.head["release"])
        return replace(joined, release=release, state=frame.blobs[1])

    def to_file(self) -> Frame:
        """Everything, secrets included."""
        proposal = self.proposal
        head = {
            "session": self.session,
            "run": proposal.run_id,
            "parameters": proposal.parameters.to_bytes().hex(),
            "dataset": proposal.dataset,
            "label": self.label,
            "intercept": self.intercept,
            "task": proposal.task,
            "plan": proposal.plan.to_json(),
            "rounds": proposal.rounds,
            "release": self.release.hex(),
        }
        return Frame(kind="join", head=head, blobs=(self.components, self.state))

    def components_matrix(self) -> NDArray[np.float64] | None:
        """`[p, k]` what rows are projected on, if they are.

        Raises:
            Declined: protocol: not one float64 matrix of finite entries, not too large.
        """
        if not self.components:
            return None
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            tensors = load(self.components)
            if set(tensors) != {"components"}:
                raise ValueError("Expected the tensor `components` alone, got others.")
            check_components(tensors["components"])
        except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Declined(Reason.PROTOCOL, f"No components: {type(error).__name__}.") from error
        return np.asarray(tensors["components"])

    def protocol_state(self) -> PartyState:
        """A fresh copy of the protocol's state."""
        return PartyState.from_bytes(self.state)

    def at_round(self, plan: ReleasePlan) -> Proposal:
        """The proposal for one round.

        Raises:
            Declined: plan-changed, where it is not the plan that was joined.
        """
        if plan != self.proposal.plan.at_round(plan.round_number):
            raise Declined(Reason.PLAN_CHANGED, "Expected the plan of the join, got another.")
        return replace(self.proposal, plan=plan)


def session_of(head: Mapping[str, Any]) -> str:
    """The session that a request names.

    Raises:
        Declined: protocol.
    """
    session = head["session"]
    if not isinstance(session, str) or not _SESSION.fullmatch(session):
        raise Declined(Reason.PROTOCOL, "Expected a session of 32 hex digits, got another.")
    return session


def plan_from(value: Any) -> ReleasePlan:
    """The plan that a request proposes.

    Raises:
        Declined: protocol.
    """
    try:
        return ReleasePlan.from_json(value)
    except DecodingError as error:
        raise Declined(Reason.PROTOCOL, str(error)) from error


def state_from(blob: bytes, algorithm: FederatedAlgorithm) -> State:
    """The model that a round starts from, as safetensors: `theta`, and what else the algorithm has.

    Raises:
        Declined: protocol: an unknown name, another shape, not float64, or not finite.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    expected = {name: array.shape for name, array in algorithm.init().items()}
    most = sum(8 * int(np.prod(shape)) for shape in expected.values()) + _HEADER
    if len(blob) > most:
        raise Declined(Reason.PROTOCOL, f"Expected a state of at most {most} bytes.")
    try:
        state = load(blob)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Declined(Reason.PROTOCOL, f"No safetensors: {type(error).__name__}.") from error
    if "theta" not in state or not set(state) <= set(expected):
        raise Declined(Reason.PROTOCOL, f"Expected theta among {sorted(expected)}, no others.")
    for name, array in state.items():
        if array.dtype != np.float64 or array.shape != expected[name]:
            raise Declined(Reason.PROTOCOL, f"Expected {name} as float64 {expected[name]}.")
        if not np.isfinite(array).all():
            raise Declined(Reason.PROTOCOL, f"Expected {name} to be finite.")
    return dict(state)
