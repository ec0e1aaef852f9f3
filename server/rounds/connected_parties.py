"""Define the real parties of a run: inspect them, get approvals, and join them to releases."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.task_codec import describe_task
from parley.client.contract.agreement import Agreement
from parley.client.contract.canonical_encoding import encode_canonical
from parley.client.contract.message_frames import WIRE_VERSION, MessageFrame, Status
from parley.client.contract.model_state_encoding import State
from parley.client.contract.refusals import Reason
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.roster import Deployment
from parley.client.contract.strict_decoding import DecodingError, decode_dataclass
from parley.secure_agg.pairwise_server import MaskingServer
from parley.secure_agg.protocol_parameters import RunParameters
from parley.server.jobs.section_base import JobError
from parley.server.rounds.approval_wait import ReachedParties, wait_for_approvals
from parley.server.rounds.cohort import RoundSum
from parley.server.rounds.party_facts import PartyFacts
from parley.server.rounds.party_requests import (
    Reply,
    compute_max_reply,
    exchange_frames,
)
from parley.server.rounds.party_status import PartyStatus
from parley.server.rounds.remote_cohort import PartyCohort
from parley.server.rounds.round_release import MAX_ATTEMPTS, NotApproved

RAW_COLUMNS = "columns"
"""Value of a request's label if no label is read."""

if TYPE_CHECKING:
    from parley.client.algorithms.query_release import QueryRelease

_POLL_S = 1.0


@dataclass(frozen=True, kw_only=True)
class ConnectedParties(ReachedParties):
    """The parties of a deployment that are online, with what they reported.

    Attributes:
        data_head: which data requests are about, and how they are read: dataset, label, intercept,
            features and blocks.
        declined: reasons of the parties that take no part.
    """

    deployment: Deployment
    data_head: Mapping[str, Any]
    declined: Mapping[int, Reason] = field(default_factory=dict)

    def find(self, *, run_id: str, sizes: bool, min_records: int = 1) -> Self:
        """Find the parties that are online: wait for all, then continue if there are enough.

        Args:
            sizes: whether their numbers of records are public.
            min_records: a party that reports fewer records takes no part.

        Raises:
            JobError: too few of them, or their columns differ.
        """
        facts, declined = self._inspect_parties(
            {"version": WIRE_VERSION, "run": run_id, **self.data_head, "sizes": sizes}
        )
        for index, own in list(facts.items()):
            if own.records is not None and own.records < min_records:
                del facts[index]
                declined[index] = Reason.TOO_FEW_RECORDS
                self.party_states.set_party(index, PartyStatus.DECLINED, str(declined[index]))
        if len(facts) < self.needed:
            raise JobError(self._format_too_few(facts, declined))
        for said, shown, expected in _EQUAL_FACTS:
            if len({said(own) for own in facts.values()}) > 1:
                listed = [
                    f"{self.deployment.parties[i].name}: {said(own)[:shown]}"
                    for i, own in sorted(facts.items())
                ]
                raise JobError(expected.format("; ".join(listed)))
        return replace(self, facts=facts, declined=declined)

    def _inspect_parties(
        self, head: Mapping[str, Any]
    ) -> tuple[dict[int, PartyFacts], dict[int, Reason]]:
        """Return the facts of every party that answers in time, and the others' reasons."""
        everyone = set(range(len(self.deployment.parties)))
        self.party_states.set_stage("inspect", round_number=0)
        until = time.monotonic() + self.timeout_s
        facts: dict[int, PartyFacts] = {}
        declined: dict[int, Reason] = {}
        frame = MessageFrame(kind="inspect", head={**head, "clock": int(time.time())})
        while (waiting := everyone - set(facts) - set(declined)) and time.monotonic() < until:
            there = waiting & set(self.transport.online())
            if not there:
                time.sleep(_POLL_S)
                continue
            for reply in exchange_frames(
                self.transport,
                dict.fromkeys(there, frame),
                needed=there,
                timeout_s=max(until - time.monotonic(), 1.0),
                traffic=self.setup,
                largest=compute_max_reply(parties=len(everyone), dimension=0),
            ):
                party = reply.party
                try:
                    facts[party] = _decode_facts(reply)
                    self.party_states.set_party(party, PartyStatus.ONLINE)
                except DecodingError:
                    declined[party] = reply.reason or Reason.PROTOCOL
                    self.party_states.set_party(party, PartyStatus.DECLINED, str(declined[party]))
        return facts, declined

    def _format_too_few(
        self, facts: Mapping[int, PartyFacts], declined: Mapping[int, Reason]
    ) -> str:
        names = [party.name for party in self.deployment.parties]
        missing = [name for index, name in enumerate(names) if index not in {*facts, *declined}]
        said = [f"{names[index]} declines ({reason})" for index, reason in sorted(declined.items())]
        if missing:
            said.append(f"offline: {', '.join(missing[:20])}{' …' if len(missing) > 20 else ''}")
        return (
            f"Expected at least {self.needed} of {len(names)} parties to take part, got "
            f"{len(facts)}: {'; '.join(said)}."
        )

    @property
    def first(self) -> PartyFacts:
        """Facts of the first party."""
        return next(iter(self.facts.values()))

    @property
    def features(self) -> dict[str, Any]:
        """The agreed public feature map, with the digest that all parties reported; empty: none."""
        named = self.data_head["features"]
        return {**named, "digest": self.first.map} if named else {}

    @property
    def protocol(self) -> dict[str, Any]:
        """Fields of a summary about the protocol, without its rounds."""
        return {
            "backend": "masked",
            "masked_check": "",
            "setup_bytes_up": self.setup.up,
            "setup_bytes_down": self.setup.down,
            "setup_stage_seconds": self.setup.seconds,
        }

    @contextmanager
    def join(self, agreed: Agreement, *, has_rounds: bool = True) -> Iterator[PartyCohort]:
        """Join the parties to releases under one plan; notify them of the end however the block
        ends.

        Args:
            has_rounds: whether rounds are left, for which they join.
        """
        there = self
        if has_rounds and self.requiring_approval:
            there = self.wait_for_approvals([agreed])
        deployment = self.deployment
        cohort = PartyCohort(
            transport=self.transport,
            server=MaskingServer(
                run=agreed.parameters,
                identities=deployment.identities,
                deployment=bytes.fromhex(deployment.id),
            ),
            party_states=self.party_states,
            timeout_s=self.timeout_s,
            weights=_compute_weights(agreed.plan, there.facts),
            agreement=agreed,
            declined=dict(there.declined),
            setup=self.setup,
        )
        try:
            if has_rounds:
                cohort.join(sorted(there.facts))
            yield cohort
        finally:
            cohort.finish()

    def build_agreement(
        self,
        plan: ReleasePlan,
        algorithm: FederatedAlgorithm,
        *,
        rounds: int,
        components: bytes = b"",
        corrupt: int,
    ) -> Agreement:
        """Build what the parties are asked to join, in a new session.

        Args:
            components: what they project their rows on; empty if they do not.
            corrupt: parties that may collude with the server.
        """
        try:
            run = RunParameters.choose(
                parties=plan.parties,
                min_survivors=plan.min_survivors,
                run_id=secrets.token_bytes(16),
                # The shares of one more round travel with the last.
                rounds=MAX_ATTEMPTS * rounds * plan.steps + 1,
                ring_bits=plan.encoding.ring_bits,
                corrupt=corrupt,
            )
        except ValueError as error:
            raise JobError(f"Secure aggregation: {error}") from error
        return Agreement(
            run_id=plan.run_id,
            dataset=self.data_head["dataset"],
            label=self.data_head["label"],
            intercept=self.data_head["intercept"],
            schema=self.first.schema,
            features=self.features,
            identities=self.deployment.identities,
            parameters=run,
            task=describe_task(algorithm),
            rounds=rounds,
            plan=plan,
            components=components,
        )

    def wait_for_approvals(self, proposals: Sequence[Agreement]) -> Self:
        """Wait for owners; return the parties whose owners approved everything, or need not.

        Raises:
            NotApproved: too few.
        """
        lost = wait_for_approvals(self, proposals)
        facts = {index: own for index, own in self.facts.items() if index not in lost}
        declined = {**self.declined, **lost}
        if len(facts) < self.needed:
            raise NotApproved(self._format_too_few(facts, declined))
        return replace(self, facts=facts, declined=declined)


@dataclass(frozen=True, kw_only=True)
class QueryParties:
    """Real parties of one batch of queries. To them it is a run of one round, which they join.

    A party derives the queries' cost from its own schema, charges its own ledger and erases the
    keys. The run's name has the session's name, the number of the release and a digest of the
    queries. A repeated batch is therefore the same release to a party. A different batch after a
    failed release is another release, and is charged.
    """

    parties: ConnectedParties
    algorithm: QueryRelease
    corrupt: int

    def aggregate(self, plan: ReleasePlan, state: State, *, attempt: int) -> RoundSum:
        """Return one release's sum; see `parley.server.rounds.cohort.Cohort`.

        All parties that are online join again for each attempt.
        """
        question = [self.algorithm.batch.to_json(), self.algorithm.counting.to_json()]
        asked = hashlib.sha256(encode_canonical(question)).hexdigest()[:16]
        own = plan.with_run_id(f"{plan.run_id}/{plan.round_number}-{asked}").with_round(1)
        agreed = self.parties.build_agreement(own, self.algorithm, rounds=1, corrupt=self.corrupt)
        with self.parties.join(agreed) as cohort:
            return cohort.aggregate(own, state, attempt=0)


_EQUAL_FACTS: tuple[tuple[Callable[[PartyFacts], str], int, str], ...] = (
    (
        lambda own: f"{own.features} features, {own.classes} classes",
        50,
        "Expected the same columns at every party, got {}.",
    ),
    (
        lambda own: own.schema,
        12,
        "Expected the same schema at every party (names, ranges and categories of columns, and "
        "the label's meaning), got digests {}. Give every party the same schema file.",
    ),
    (
        lambda own: own.map,
        12,
        "Expected the same feature map at every party, got digests {}. Give every party the "
        "same version of Parley and, for a map of your own, the same code and weights.",
    ),
)
"""What must be equal at all parties, how many characters of it are shown, and the error."""


def _decode_facts(reply: Reply) -> PartyFacts:
    """Return the facts of the party that sent an answer.

    Raises:
        DecodingError: it has none, or another party's.
    """
    head = reply.frame.head
    if reply.status is not Status.OK or head.get("party") != reply.party:
        raise DecodingError(f"Expected the facts of party {reply.party}, got none.")
    said = {each.name: head.get(each.name) for each in fields(PartyFacts)}
    return decode_dataclass(PartyFacts, said)


def _compute_weights(plan: ReleasePlan, facts: Mapping[int, PartyFacts]) -> dict[int, float]:
    if plan.weights == "size":
        return {index: (own.records or 0) / plan.mean_records for index, own in facts.items()}
    return dict.fromkeys(facts, 1.0)
