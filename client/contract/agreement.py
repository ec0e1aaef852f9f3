"""The agreement: everything that decides what a party contributes to a round, in one frozen object.

A party computes from an `Agreement` and its own records, and from nothing else that came over the
network; the masks of the round are keyed by `compute_binding()`, a digest of every field. Where
a server sends parties different agreements, in whatever field, their masks do not cancel: it gets
noise, not the sum. A field that is added here is bound by being added
(`parley.client.contract.canonical_encoding`).

`compute_content_digest()` leaves out what only names a round: a party answers it again for the same
content alone. `compute_proposal_digest()` is what an owner says yes to
(`parley.client.party.owner_approval`). `compute_release_digest()` is the name of what it answers
with, which is charged and drawn once, and opened in one sum only
(`parley.client.party.unmasking_log`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from parley.client.contract.canonical_encoding import encode_canonical
from parley.client.contract.feature_map import parse_feature_map
from parley.client.contract.party_protocol import Declined, Reason
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.strict_decoding import DecodingError, format_received
from parley.privacy.ledger.budget import check_name
from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.mask_graph import NO_BEACON
from parley.secure_agg.primitives import digest
from parley.secure_agg.protocol_parameters import RunParameters

MAX_ROUNDS = 1_000_000
"""Most releases of one run."""
MAX_ATTEMPTS = 8
"""Most rounds of the protocol for one release: bounds how far a round number can run ahead."""

_SESSION_PATTERN = re.compile(r"[0-9a-f]{32}")

_IDENTIFYING_FIELDS: Final = frozenset(
    {"run_id", "identities", "parameters", "present", "rounds", "serial", "plan"}
)
"""Fields that decide no coordinate of a contribution; of the plan, its own names alone do not."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """What server and party have agreed to for one round of one run; before a round, for the run.

    Attributes:
        dataset: which of the parties' data sets, by the name they serve it under.
        schema: digest of what columns and label mean (`Holding.schema`), one for all parties.
        features: name, settings and digest of the public map of every record
            (`parley.client.contract.feature_map`); empty: rows are learned from as they are.
        identities: Ed25519 public keys of the roster, by index; every party has its own copy.
        parameters: of secure aggregation, for this session.
        present: bit mask of the parties that joined, as the session's roster has it; empty before.
        task: what the party computes, as `parley.client.algorithms.registry` describes it.
        rounds: T, how many releases the run is meant to make.
        components: safetensors of what rows are projected on; empty for none.
        serial: the session's own count of exchanges: every attempt at a round has another.
        state: safetensors of the model that the round starts from.
    """

    run_id: str
    dataset: str
    label: str
    intercept: bool
    schema: str
    identities: tuple[bytes, ...]
    parameters: RunParameters
    present: bytes = b""
    task: Mapping[str, Any]
    rounds: int
    plan: ReleasePlan
    features: Mapping[str, Any] = field(default_factory=dict)
    components: bytes = field(default=b"", repr=False)
    serial: int = 0
    state: bytes = field(default=b"", repr=False)

    @property
    def session(self) -> str:
        """32 hex digits that requests name the run's keys by."""
        return self.parameters.run_id.hex()

    def compute_binding(self) -> bytes:
        """32 bytes over every field: the context that a round's masks are keyed by."""
        return digest(b"parley/agreement", encode_canonical(self))

    def compute_content_digest(self) -> bytes:
        """32 bytes over what decides the contribution's values, whichever round it is for."""
        decides = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name not in _IDENTIFYING_FIELDS
        }
        plan = self.plan.with_run_id("").with_round(0)
        return digest(b"parley/content", encode_canonical({**decides, "plan": plan}))

    def compute_proposal_digest(self) -> bytes:
        """32 bytes over what an owner says yes to: one run, all its releases under this plan.

        All but what one session or round is named by, and what post-processing gave: the model
        that a round starts from, and components, which matter to no guarantee.
        """
        run = replace(self.parameters, run_id=bytes(16), commitments=NO_BEACON, beacon=NO_BEACON)
        asked = replace(self, parameters=run, present=b"", components=b"", serial=0, state=b"")
        return digest(b"parley/proposal", encode_canonical(asked))

    def compute_release_digest(self) -> bytes:
        """32 bytes that name one secure sum of one release: its place in a party's ledger."""
        plan = self.plan
        name = (self.run_id, self.dataset, plan.round_number, plan.step)
        return digest(b"parley/release", encode_canonical(name))

    def build_head(self) -> dict[str, Any]:
        """The fields that a join request carries in its head; components travel as its blob."""
        return {
            "run": self.run_id,
            "session": self.session,
            "parameters": self.parameters.to_bytes().hex(),
            "dataset": self.dataset,
            "label": self.label,
            "intercept": self.intercept,
            "schema": self.schema,
            "features": self.features,
            "task": self.task,
            "plan": self.plan.to_json(),
            "rounds": self.rounds,
        }

    @classmethod
    def from_head(
        cls, head: Mapping[str, Any], *, components: bytes, identities: tuple[bytes, ...]
    ) -> Agreement:
        """The run that a join request proposes; the inverse of `head`.

        Raises:
            Declined: protocol (malformed), or wrong-run (parameters of another session).
        """
        session = get_session(head)
        try:
            run_id = check_name(head["run"], "run")
            parameters = RunParameters.from_bytes(bytes.fromhex(head["parameters"]))
        except (ValueError, TypeError, RemoteProtocolError) as error:
            raise Declined(Reason.PROTOCOL, f"Bad run or parameters: {error}") from error
        if parameters.run_id.hex() != session:
            raise Declined(Reason.WRONG_RUN, "Expected parameters of this session, got others.")
        task, rounds = head["task"], head["rounds"]
        if not isinstance(task, Mapping):
            raise Declined(Reason.PROTOCOL, f"Expected a task, got {format_received(task)}.")
        if not 1 <= rounds <= MAX_ROUNDS:
            raise Declined(Reason.PROTOCOL, f"Expected rounds from 1 to {MAX_ROUNDS}.")
        plan = parse_plan(head["plan"])
        if parameters.rounds > MAX_ATTEMPTS * (rounds * plan.steps + 1):
            raise Declined(
                Reason.PROTOCOL, f"Expected at most {MAX_ATTEMPTS} attempts at each of the sums."
            )
        features = parse_feature_map(head["features"], agreed=True)
        return cls(
            run_id=run_id,
            dataset=head["dataset"],
            label=head["label"],
            intercept=head["intercept"],
            schema=head["schema"],
            identities=identities,
            parameters=parameters,
            task=task,
            rounds=rounds,
            plan=plan,
            features=features,
            components=components,
        )

    def to_received_form(self) -> Agreement:
        """The same as its receivers decode it, for a sender's digest to be theirs."""
        head = json.loads(json.dumps(self.build_head(), allow_nan=False))
        return Agreement.from_head(head, components=self.components, identities=self.identities)


def get_session(head: Mapping[str, Any]) -> str:
    """The session that a request names."""
    session = head["session"]
    if not isinstance(session, str) or not _SESSION_PATTERN.fullmatch(session):
        raise Declined(
            Reason.PROTOCOL, f"Expected a session of 32 hex digits, got {format_received(session)}."
        )
    return session


def parse_plan(value: Any) -> ReleasePlan:
    """The plan that a request proposes."""
    try:
        return ReleasePlan.from_json(value)
    except DecodingError as error:
        raise Declined(Reason.PROTOCOL, str(error)) from error
