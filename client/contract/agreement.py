"""`Agreement`: one frozen object with everything that decides a party's contribution to a round.

A party computes only from an `Agreement` and its records. It uses no other network input. The
round's masks are keyed by `compute_binding()`, a digest of every field. If a server sends parties
agreements that differ in any field, their masks do not cancel, and the server gets noise instead of
the sum. A new field is bound as soon as it is added here
(`parley.client.contract.canonical_encoding`).

`compute_content_digest()` leaves out what only names a round. A party repeats a response only for
the same content. `compute_proposal_digest()` identifies what an owner approves
(`parley.client.party.owner_approval`). `compute_release_digest()` names the party's response. That
response is charged and drawn once, and it is unmasked in only one sum
(`parley.client.party.unmasking_log`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from parley.client.contract.canonical_encoding import encode_canonical
from parley.client.contract.feature_map_reference import parse_feature_map
from parley.client.contract.plan_decoding import decode_plan
from parley.client.contract.refusals import Declined, Reason, decline_errors
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.strict_decoding import DecodingError, format_received
from parley.privacy.ledger.budget import check_name
from parley.secure_agg.interface import RemoteProtocolError
from parley.secure_agg.mask_graph import NO_BEACON
from parley.secure_agg.primitives import digest
from parley.secure_agg.protocol_parameters import RunParameters

MAX_ROUNDS = 1_000_000
"""Maximum number of releases per run."""
MAX_ATTEMPTS = 8
"""Maximum number of protocol rounds per release. It bounds how far a round number can run ahead."""

_SESSION_PATTERN = re.compile(r"[0-9a-f]{32}")

_PLAIN_FIELDS = ("dataset", "label", "intercept", "schema", "features", "task", "rounds")
_IDENTIFYING_FIELDS: Final = frozenset(
    {"run_id", "identities", "parameters", "present", "rounds", "serial", "plan"}
)
"""Fields that decide no coordinate of a contribution. Of the plan, only its names decide none."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The agreement of server and party on one round of a run or, before any round, on the run.

    Attributes:
        dataset: name under which every party serves the data set.
        schema: digest of what columns and label mean (`LoadedDataset.schema`), the same for all
            parties.
        features: name, settings and digest of the public map of every record
            (`parley.client.contract.feature_map_reference`). Empty: rows are used without a map.
        identities: Ed25519 public keys of the roster, by index. Every party has its own copy.
        parameters: secure aggregation's parameters for this session.
        present: bit mask of the parties that joined, as in the session's roster. Empty before that.
        task: what the party computes, as `parley.client.algorithms.task_codec` describes it.
        rounds: T, the planned number of releases of the run.
        components: safetensors of the components that rows are projected on; empty for none.
        serial: the session's counter of exchanges. Every attempt at a round has its own.
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
        """The 32 hex digits by which requests name the session's keys."""
        return self.parameters.run_id.hex()

    def compute_binding(self) -> bytes:
        """Return a 32-byte digest of every field: the context that keys a round's masks."""
        return digest(b"parley/agreement", encode_canonical(self))

    def compute_content_digest(self) -> bytes:
        """Return a 32-byte digest of all that decides the contribution's values, for any round."""
        names = {each.name for each in fields(self)} - _IDENTIFYING_FIELDS
        decides = {name: getattr(self, name) for name in names}
        plan = self.plan.with_run_id("").with_round(0)
        return digest(b"parley/content", encode_canonical({**decides, "plan": plan}))

    def compute_proposal_digest(self) -> str:
        """Return a digest of what an owner approves, in hex: one run with all its releases.

        It leaves out the names of a session and of a round. It also leaves out the results of
        post-processing, which affect no guarantee: the model that a round starts from, and the
        components.
        """
        run = replace(self.parameters, run_id=bytes(16), commitments=NO_BEACON, beacon=NO_BEACON)
        asked = replace(self, parameters=run, present=b"", components=b"", serial=0, state=b"")
        return digest(b"parley/proposal", encode_canonical(asked)).hex()

    def compute_release_digest(self) -> bytes:
        """Return the 32-byte name of one secure sum of one release in a party's ledger."""
        plan = self.plan
        name = (self.run_id, self.dataset, plan.round_number, plan.step)
        return digest(b"parley/release", encode_canonical(name))

    def build_head(self) -> dict[str, Any]:
        """Return the fields of a join request's head. The components travel as its blob."""
        return {
            "run": self.run_id,
            "session": self.session,
            "parameters": self.parameters.to_bytes().hex(),
            **{name: getattr(self, name) for name in _PLAIN_FIELDS},
            "plan": self.plan.to_json(),
        }

    @classmethod
    def from_head(
        cls, head: Mapping[str, Any], *, components: bytes, identities: tuple[bytes, ...]
    ) -> Agreement:
        """Return the run that a join request proposes; the inverse of `build_head`.

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
            expected = f"Expected at most {MAX_ATTEMPTS} attempts at each sum."
            raise Declined(Reason.PROTOCOL, expected)
        return cls(
            **{name: head[name] for name in ("dataset", "label", "intercept", "schema")},
            run_id=run_id,
            identities=identities,
            parameters=parameters,
            task=task,
            rounds=rounds,
            plan=plan,
            features=parse_feature_map(head["features"], agreed=True),
            components=components,
        )

    def to_received_form(self) -> Agreement:
        """Return the agreement as receivers decode it, so that both sides have one digest."""
        head = json.loads(json.dumps(self.build_head(), allow_nan=False))
        return Agreement.from_head(head, components=self.components, identities=self.identities)


def get_session(head: Mapping[str, Any]) -> str:
    """Return the session that a request names.

    Raises:
        Declined: protocol, if it is not 32 hex digits.
    """
    session = head["session"]
    if not isinstance(session, str) or not _SESSION_PATTERN.fullmatch(session):
        got = format_received(session)
        raise Declined(Reason.PROTOCOL, f"Expected a session of 32 hex digits, got {got}.")
    return session


def parse_plan(value: Any) -> ReleasePlan:
    """Return the plan that a request proposes.

    Raises:
        Declined: protocol, if it is not a valid plan.
    """
    with decline_errors(Reason.PROTOCOL, DecodingError):
        return decode_plan(value)
