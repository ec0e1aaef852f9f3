"""Run the masked protocol with real parties, over messages on any transport.

Set-up is two exchanges per run (join, roster), or three if the graph is not complete (commit before
them). Its last messages, the ciphertexts, travel with the first round. A round is three exchanges
(vectors, survivors, confirmations). Shares of the next round travel with this round's vectors. A
party that is late, silent, declines or breaks the protocol is not in the sum. The others continue
as long as the thresholds hold.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from parley.client.contract.agreement import Agreement
from parley.client.contract.message_frames import WIRE_VERSION, MessageFrame
from parley.client.contract.model_state_encoding import State, save_state
from parley.client.contract.refusals import Reason
from parley.client.contract.release_plan import ReleasePlan
from parley.secure_agg.interface import ProtocolError, TooFewSurvivors
from parley.secure_agg.messages import Complaint, Roster, decode, read_kind
from parley.secure_agg.pairwise_server import MaskingServer
from parley.secure_agg.server_key_setup import LazyMapping
from parley.server.rounds.cohort import RoundSum
from parley.server.rounds.last_unmasking_request import RequestedSum
from parley.server.rounds.party_requests import (
    PartyResponses,
    Reply,
    Traffic,
    Transport,
    compute_max_reply,
)
from parley.server.rounds.party_status import PartyStates, PartyStatus

_log = logging.getLogger("parley.server")

_MAX_SETUPS = 4
"""Maximum number of set-ups if one of the parties voids each."""


@dataclass(kw_only=True)
class PartyCohort:
    """The parties of a deployment in one run.

    Attributes:
        server: the protocol's server, before any message.
        agreement: what the run is, for the parties to check; rounds are bound to it.
    """

    transport: Transport
    server: MaskingServer
    party_states: PartyStates
    timeout_s: float
    weights: Mapping[int, float]
    agreement: Agreement
    declined: dict[int, Reason] = field(default_factory=dict)
    setup: Traffic = field(default_factory=Traffic)

    def __post_init__(self) -> None:
        self.agreement = self.agreement.to_received_form()
        self._responses = PartyResponses(
            transport=self.transport,
            party_states=self.party_states,
            timeout_s=self.timeout_s,
            largest=compute_max_reply(
                parties=self.server.run.parties, dimension=self.agreement.plan.dimension
            ),
            declined=self.declined,
        )
        self._requested = RequestedSum(self.party_states.folder / "requested-sum.json")
        self._joined: set[int] = set()
        self._prepared: dict[int, set[int]] = {}
        self._wire_round = 0

    @contextmanager
    def _name_parties(self) -> Iterator[None]:
        """Replace indices by party names in errors of the protocol."""
        try:
            yield
        except (ProtocolError, TooFewSurvivors) as error:
            error.args = (self.party_states.replace_indices(str(error)),)
            raise

    @property
    def session(self) -> str:
        """Name of the run's keys in a request."""
        return self.server.run.run_id.hex()

    def _build_frame(self, kind: str, blobs: tuple[bytes, ...] = (), **head: Any) -> MessageFrame:
        common = {"version": WIRE_VERSION, "session": self.session}
        return MessageFrame(kind=kind, head={**common, **head}, blobs=blobs)

    def join(self, parties: Collection[int]) -> None:
        """Run the set-up: signed keys, the roster, and shares of the first round.

        Raises:
            TooFewSurvivors: fewer joined than a sum needs.
        """
        with self._name_parties():
            self._join(set(parties))

    def _join(self, parties: set[int]) -> None:
        self._responses.begin()
        self.party_states.set_stage("join", round_number=0)
        self._request_adverts(parties)
        rosters, nonces = self.server.build_rosters(), self.server.adverts.encode_nonces()
        present = decode(self.server.run, next(iter(rosters.values())), Roster).present
        self.agreement = replace(self.agreement, present=present)
        self.party_states.set_stage("roster", round_number=0)
        frames = LazyMapping(
            rosters, lambda i: self._build_frame("roster", (rosters[i], nonces), prepare=1)
        )
        answered: set[int] = set()
        for reply in self._responses.request(frames, self.setup):
            if self._responses.accept(reply, self.server.handle_encapsulated, answered, blobs=2):
                self._accept_shares(reply, 1, blob=1, blobs=2)
        # A party without the roster has no pair secrets: it cannot return in this run.
        self._joined &= answered
        self.party_states.set_parties(self._joined, PartyStatus.ONLINE)

    def _request_adverts(self, parties: set[int]) -> None:
        """Request signed keys and, on an incomplete graph, commitments before them.

        A party that committed but does not advertise voids the set-up. It is repeated without that
        party.
        """
        for _ in range(_MAX_SETUPS):
            if self.server.run.sparse:
                parties = self._request_commitments(parties)
            self._joined = set()
            head, blobs = self.agreement.build_head(), (self.agreement.components,)
            frames = {index: self._build_frame("join", blobs, **head) for index in parties}
            for reply in self._responses.request(frames, self.setup):
                self._responses.accept(reply, self.server.handle_advertise, self._joined)
            if not self.server.adverts.unrevealed:
                return
            parties = parties - set(self.server.adverts.unrevealed)
        withheld = ", ".join(self.party_states.list_names(self.server.adverts.unrevealed))
        raise TooFewSurvivors(
            f"Expected every party that committed to a nonce to reveal it, got {_MAX_SETUPS} "
            f"set-ups in which one did not: {withheld}."
        )

    def _request_commitments(self, parties: set[int]) -> set[int]:
        given: dict[int, bytes] = {}
        for reply in self._responses.request(
            {i: self._build_frame("commit") for i in parties}, self.setup
        ):
            if [len(blob) for blob in reply.frame.blobs] == [32]:
                given[reply.party] = reply.frame.blobs[0]
        if len(given) < self.server.run.min_survivors:
            raise TooFewSurvivors(
                f"Expected >= {self.server.run.min_survivors} parties to commit to a nonce, "
                f"got {len(given)}."
            )
        self.server = self.server.with_commitments(given, run_id=secrets.token_bytes(16))
        self.agreement = replace(self.agreement, parameters=self.server.run)
        return set(given)

    def _accept_shares(self, reply: Reply, number: int, **place: int) -> None:
        """Hand shares to the protocol; it accepts only those of the requested round."""
        take = partial(self.server.handle_shares, number=number)
        self._responses.accept(reply, take, self._get_ready(number), **place)

    def _get_ready(self, number: int) -> set[int]:
        """Return the parties whose shares of a round have arrived."""
        for past in [n for n in self._prepared if n < number - 1]:
            del self._prepared[past]
        return self._prepared.setdefault(number, set())

    def aggregate(self, plan: ReleasePlan, state: State, *, attempt: int) -> RoundSum:
        """Return one release's sum; see `parley.server.rounds.cohort.Cohort`.

        Raises:
            TooFewSurvivors: fewer contributions than the protocol or the plan needs.
        """
        del attempt  # Every attempt asks all parties that are online.
        with self._name_parties():
            return self._aggregate(plan, state)

    def _aggregate(self, plan: ReleasePlan, state: State) -> RoundSum:
        traffic = Traffic()
        self._responses.begin()
        self._wire_round += 1
        number = self._wire_round
        for index in sorted(self.server.blamed - set(self.declined)):
            (name,) = self.party_states.list_names([index])
            _log.warning("%s is excluded from the run: it sent shares that unmask nothing.", name)
            self.declined[index] = Reason.PROTOCOL
        asked = (self._joined - set(self.declined)) & set(self.transport.online())
        self.party_states.set_stage("vectors", round_number=plan.round_number)
        for index in self._joined - asked - set(self.declined):
            self._responses.mark_silent(index)
        self._prepare_missing(asked, number, traffic)
        summed = self._request_vectors(plan, state, number, asked, traffic)
        return self._build_sum(self._unmask(plan, summed, traffic), summed, traffic)

    def _prepare_missing(self, parties: set[int], number: int, traffic: Traffic) -> None:
        """Request shares in a separate exchange if too few parties have them, as after a lost
        round.
        """
        ready = self._get_ready(number) & parties
        if len(ready) >= self.server.run.min_survivors:
            return
        frames = self._build_prepare_frames(parties - ready, number)
        for reply in self._responses.request(frames, traffic):
            if not self._accept_complaint(reply):
                self._accept_shares(reply, number)

    def _build_prepare_frames(
        self, parties: Collection[int], number: int | None
    ) -> Mapping[int, MessageFrame]:
        """Build requests for shares, with the neighbours' ciphertexts that a party lacks."""
        server, build = self.server, self._build_frame
        return LazyMapping(
            parties, lambda i: build("prepare", (server.get_ciphertexts(i),), prepare=number)
        )

    def _accept_complaint(self, reply: Reply) -> bool:
        """Return whether an answer is a complaint about ciphertexts, and handle it."""
        blobs = reply.frame.blobs
        if len(blobs) != 1 or read_kind(blobs[0]) != Complaint.kind:
            return False
        self._responses.accept(reply, self.server.handle_complaint, set())
        self._responses.mark_silent(reply.party)
        return True

    def _resolve_dispute(self, traffic: Traffic) -> None:
        """Find who lied about a ciphertext, with one more exchange, only in a dispute."""
        while self.server.to_prove:
            asked, heard = set(self.server.to_prove), set[int]()
            frames = dict.fromkeys(
                asked, self._build_frame("prove", self.server.delivery.certificate)
            )
            for reply in self._responses.request(frames, traffic, is_permanent=False):
                self._responses.accept(reply, self.server.handle_evidence, heard)
            for silent in asked - heard:
                self.server.delivery.mark_unproven(silent)

    def _request_vectors(
        self, plan: ReleasePlan, state: State, number: int, parties: set[int], traffic: Traffic
    ) -> tuple[int, ...]:
        blob = save_state({"theta": state["theta"]})
        proposed = self.agreement.plan.with_round(plan.round_number).with_step(plan.step)
        if plan != proposed:
            raise ValueError(f"Expected the plan that the parties joined, {proposed}, got {plan}.")
        agreed = replace(self.agreement, plan=proposed, serial=number, state=blob)
        earlier = self._requested.load(plan) if plan.sum_guarantees else frozenset[int]()
        plans = self.server.plan(
            number,
            dimension=plan.dimension,
            context=agreed.compute_binding(),
            # Parties unmask a release in one sum only: ask for that one if its parties are there.
            participants=earlier if earlier and earlier <= parties else parties,
        )
        following = number + 1
        # Parties outside this round can be in the next; the server does not wait for them.
        others = self._build_prepare_frames(parties - set(plans), following)
        said, server = {"plan": proposed.to_json(), "prepare": following}, self.server
        frames = LazyMapping(
            parties,
            lambda i: (
                self._build_frame("round", (plans[i], blob, server.get_ciphertexts(i)), **said)
                if i in plans
                else others[i]
            ),
        )
        self.party_states.set_parties(plans, PartyStatus.COMPUTING)
        arrived: set[int] = set()
        enough = partial(self.server.has_enough_vectors, plan.min_survivors)
        for reply in self._responses.request(frames, traffic, needed=set(plans), is_enough=enough):
            if self._accept_complaint(reply):
                continue
            if reply.party not in plans:
                self._accept_shares(reply, following)
            elif self._responses.accept(reply, self.server.handle_vector, arrived, blobs=2):
                self.party_states.set_party(reply.party, PartyStatus.MASKED)
                self._accept_shares(reply, following, blob=1, blobs=2)
        if plan.min_survivors > len(arrived):
            raise TooFewSurvivors(
                f"Expected >= {plan.min_survivors} survivors, got {len(arrived)} of {len(plans)} "
                "parties."
            )
        return self.server.survivors

    def _unmask(
        self, plan: ReleasePlan, survivors: tuple[int, ...], traffic: Traffic
    ) -> NDArray[Any]:
        listed = self.server.close()
        self.party_states.set_stage("survivors", round_number=self.party_states.round)
        # Parties that missed this round's vectors prepare the next one, if they are back.
        following = self._wire_round + 1
        back = (self._joined - set(self.declined)) & set(self.transport.online())
        back -= self._get_ready(following) | set(survivors)
        frames: dict[int, MessageFrame] = {
            **self._build_prepare_frames(back, following),
            **{i: self._build_frame("survivors", (listed,)) for i in survivors},
        }
        heard = set[int]()
        for reply in self._responses.request(
            frames,
            traffic,
            needed=survivors,
            is_permanent=False,
            is_enough=self.server.has_enough_confirmations,
        ):
            if reply.party in back:
                if not self._accept_complaint(reply):
                    self._accept_shares(reply, following)
                continue
            self._responses.accept(reply, self.server.handle_confirm, heard)
        self._check_one_sum(len(heard))
        confirmations = self.server.build_confirmations()
        if plan.sum_guarantees:
            self._requested.save(plan, survivors)
        self.party_states.set_stage("confirmations", round_number=self.party_states.round)
        frames = {
            i: self._build_frame("confirmations", (message,))
            for i, message in confirmations.items()
        }
        heard = set()
        for reply in self._responses.request(
            frames, traffic, is_permanent=False, is_enough=self.server.has_enough_reveals
        ):
            self._responses.accept(reply, self.server.handle_reveal, heard)
        self._resolve_dispute(traffic)
        self.party_states.set_parties(heard, PartyStatus.UNMASKED)
        return self.server.finish()

    def _check_one_sum(self, heard: int) -> None:
        """Raise the reason if parties refuse because they unmasked another sum of this release."""
        others = [i for i, why in self._responses.refused.items() if why is Reason.OTHER_SURVIVORS]
        if others and heard < self.server.run.min_survivors:
            raise TooFewSurvivors(
                f"Expected >= {self.server.run.min_survivors} parties to unmask the sum, got "
                f"{heard}: {len(others)} unmasked this round's release before, in a sum over "
                "other parties. The difference between the sums would be the contributions of a "
                "few. Resume the run when the same parties are online, or start the job as a "
                "new run: that is another release, which every party charges itself."
            )

    def _build_sum(
        self, total: NDArray[Any], survivors: tuple[int, ...], traffic: Traffic
    ) -> RoundSum:
        parties = self.server.run.parties
        declined = {**self.declined, **self._responses.refused}
        # Dropped: silent at some stage, never joined, or without shares of this round.
        answered = set(survivors) - self._responses.silent - set(declined)
        dropped = set(range(parties)) - answered - set(declined)
        return RoundSum(
            total=total,
            survivors=survivors,
            weight=float(sum(self.weights[i] for i in survivors)),
            asked=parties,
            answered=len(answered),
            declined=len(declined),
            dropped=len(dropped),
            absent=self.party_states.list_names(set(range(parties)) - set(survivors)),
            reasons=dict(Counter(str(reason) for reason in declined.values())),
            bytes_up=traffic.up,
            bytes_down=traffic.down,
            stages=len(traffic.seconds),
            stage_seconds=tuple(traffic.seconds),
        )

    def finish(self) -> None:
        """Notify the parties that the run is over, so that they erase its secrets."""
        self._responses.begin()
        self.party_states.set_stage("finished", round_number=self.party_states.round)
        online = set(self.transport.online())
        frames = {i: self._build_frame("finish") for i in self._joined & online}
        for _ in self._responses.request(frames, self.setup, is_enough=lambda: True):
            pass
        self.party_states.set_stage("finished", round_number=self.party_states.round)
