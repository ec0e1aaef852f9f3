"""The party's service: one request in, one answer out, everything else on its own disk.

Whatever comes is answered by a frame: ok, or refused with one reason class. What leaves, leaves by
the outlet (`parley.client.party.party_response`): it is public, or a contribution with its receipt.
What a
round asks for goes through these gates, and the first that is shut ends it:

1. the session is known, the plan is the one that was joined (`parley.client.party.joined_session`),
which
   the owner said yes to where policy asks (`parley.client.party.owner_approval`);
2. policy, task, sensitivity and model hold (`parley.client.party.accepted_run`);
3. the protocol would accept the message: rehearsed on a copy, so that a bad one costs nothing;
4. the party's own ledger reserves the charge (`parley.client.party.release_charge`), once a round;
5. the contribution is computed, kept, and committed to;
6. the protocol masks it, under keys bound to everything it was computed from
   (`parley.client.contract.agreement`), and its secrets are written before the answer is returned.

Everything lives in the folder: another process may serve the next message. Nothing here knows how
messages travel.
"""

from __future__ import annotations

import os
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from parley.client.contract.agreement import Agreement, plan_from, session_of
from parley.client.contract.party_protocol import Declined, Frame, Reason, request_from
from parley.client.contract.roster import Deployment, load_deployment
from parley.client.party import accepted_run, job_limits, owner_approval, session_limits
from parley.client.party.accepted_run import Accepted, accept
from parley.client.party.joined_session import Joined
from parley.client.party.last_uses import Uptime, read_uptime
from parley.client.party.ledger_cache import KeptLedger
from parley.client.party.owner_policy import Consent, load_consent
from parley.client.party.party_folder import Keeper, PartyFolderError
from parley.client.party.party_response import Outlet, Public, Released
from parley.client.party.record_cache import KeptRecords
from parley.client.party.request_lock import alone
from parley.client.party.round_contribution import contribution
from parley.client.party.run_validation import check_run
from parley.client.party.unmasking_log import OpenedOtherwise, Openings, listed_parties
from parley.privacy.ledger.ledger_errors import LedgerError
from parley.safe_io.os_errors import describe_error
from parley.secure_agg.interface import ProtocolError, TooFewSurvivors
from parley.secure_agg.mask_graph import commitment
from parley.secure_agg.messages import Survivors, decode
from parley.secure_agg.pairwise_party import Party
from parley.secure_agg.party_state import MaskingState
from parley.secure_agg.primitives import AlgorithmMissing, Entropy, derive, signing_public
from parley.secure_agg.protocol_parameters import Policy


def records_secret(identity: bytes) -> bytes:
    """By which a party names and chooses records: uniform, and nobody else's, as an identity is."""
    return derive(identity, b"parley/records")


class PartyService:
    """One party; `open` makes one from its folder."""

    def __init__(
        self,
        *,
        keeper: Keeper,
        consent: Consent,
        deployment: Deployment,
        identity: bytes,
        entropy: Entropy,
        clock: Callable[[], float],
    ) -> None:
        """A party whose folder was checked.

        Raises:
            PartyFolderError: the identity is none of the deployment's.
        """
        public = signing_public(identity)
        if public not in deployment.identities:
            raise PartyFolderError(
                f"Expected the identity in {keeper.folder} to be a party of deployment "
                f"{deployment.id}, its public key {public.hex()} is not in the roster: "
                "deployment.toml or identity.key belongs to another deployment."
            )
        self.index = deployment.identities.index(public)
        names = [party.name for party in deployment.parties]
        self.name = names[self.index]
        self._outlet = Outlet(keeper=keeper, name=self.name, names=names)
        self._keeper, self._consent, self._deployment = keeper, consent, deployment
        self._identity, self._entropy, self._clock = identity, entropy, clock
        self._ledger = KeptLedger(keeper.ledger)
        self._records = KeptRecords(
            consent,
            keeper.folder,
            secret=records_secret(identity),
            sessions=keeper.sessions,
        )

    def __repr__(self) -> str:
        return f"<PartyService {self.name}>"

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        entropy: Entropy = os.urandom,
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], Uptime] = read_uptime,
    ) -> PartyService:
        """The party in `folder`.

        Raises:
            PartyFolderError, ConsentError, RosterError: a folder or file that its owner must mend.
        """
        keeper = Keeper.open(folder, uptime=uptime)
        return cls(
            keeper=keeper,
            consent=load_consent(folder / "party.toml"),
            deployment=load_deployment(folder / "deployment.toml"),
            identity=keeper.identity(),
            entropy=entropy,
            clock=clock,
        )

    def close(self) -> None:
        """Closes the party's ledger; the next request opens it again."""
        self._ledger.close()

    def handle(self, request: bytes) -> bytes:
        """The answer to a request: an `answer` frame, whatever came."""
        kind = "?"
        leaving: Public | Released
        try:
            frame = request_from(request)
            kind = frame.kind
            # Warnings of libraries may depend on a record, and go where the log does.
            with warnings.catch_warnings(action="ignore"), self._alone():
                leaving = getattr(self, f"_{kind}")(frame)  # a key of `REQUESTS`
        except Declined as declined:
            leaving = Public.declined(declined)
        except (LedgerError, PartyFolderError, OSError) as error:
            leaving = Public.error(describe_error(error))
        except Exception as error:
            # A bug, perhaps in what was sent: what computes with records raises none. Neither its
            # text nor its trace leaves the machine; the log has no text either.
            at = traceback.extract_tb(error.__traceback__)[-1]
            leaving = Public.error(
                f"{type(error).__name__} at {Path(at.filename).name}:{at.lineno}"
            )
        return self._outlet.send(kind, leaving)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with alone(self._keeper.folder, wait_s=self._consent.lock_wait_s):
            self._keeper.tidy()
            yield

    # What a run would learn from.

    def _inspect(self, frame: Frame) -> Public:
        return Public.answer(
            {
                "party": self.index,
                **accepted_run.public_facts(
                    frame.head, self._consent, clock=self._clock(), holding_of=self._records.of
                ),
            }
        )

    # A run from its first message to its last.

    def _propose(self, frame: Frame) -> Public:
        self._admitted(Joined.from_request(frame, identities=self._deployment.identities))
        return Public.answer()

    def _commit(self, frame: Frame) -> Public:
        session_of(frame.head)
        return Public.answer(blobs=(commitment(self.index, self._next_nonce()),))

    def _next_nonce(self) -> bytes:
        return session_limits.nonce(self._keeper, self._identity, self._deployment)

    def _join(self, frame: Frame) -> Public:
        joined = Joined.from_request(frame, identities=self._deployment.identities)
        agreed, policy = joined.agreement, self._admitted(joined)
        session_limits.make_room(
            self._keeper, joined, most=self._consent.max_sessions, read=self._joined
        )
        sparse = agreed.parameters.sparse
        party = Party(
            run=agreed.parameters,
            policy=policy,
            index=self.index,
            identity=self._identity,
            entropy=self._entropy,
            nonce=self._next_nonce() if sparse else b"",
        )
        try:
            advertised = party.advertise()
        except AlgorithmMissing as error:
            raise Declined(Reason.PROTOCOL, str(error)) from error
        if sparse:  # before the nonce leaves: it is for this set-up alone
            self._keeper.count_setup(policy.roster)
        self._keep(joined, party)
        return Public.answer(blobs=(advertised,))

    def _admitted(self, joined: Joined) -> Policy:
        """What a run has to pass before there is a key: policy, task, budget, the owner's yes."""
        agreed = joined.agreement
        policy = check_run(self._consent, self._deployment, agreed.parameters)
        accepted, ledger = self._accepted(agreed), self._ledger.opened()
        ledger.check(anchor=self._keeper.newest_ledger_head())
        dataset = self._consent.dataset(agreed.dataset)
        job_limits.check_budget(ledger, dataset, accepted, party=self.name)
        self._keeper.keep_ledger_head(ledger.head())
        owner_approval.check(self._keeper, ledger, self._consent, agreed, clock=self._clock())
        return policy

    def _accepted(self, agreement: Agreement) -> Accepted:
        """Gate 2."""
        return accept(self._consent, agreement, holding_of=self._records.of_agreement)

    def _joined(self, session: str) -> Joined:
        return Joined.from_file(
            self._keeper.session(session), identities=self._deployment.identities
        )

    def _opened(self, frame: Frame) -> tuple[Joined, Party]:
        joined = self._joined(session_of(frame.head))
        self._ledger.opened().check_contains(self._keeper.ledger_head())
        return joined, self._party(joined)

    def _party(self, joined: Joined) -> Party:
        run = joined.agreement.parameters
        return Party(
            run=run,
            policy=check_run(self._consent, self._deployment, run),
            index=self.index,
            identity=self._identity,
            entropy=self._entropy,
            state=MaskingState.from_bytes(joined.state),
        )

    def _keep(self, joined: Joined, party: Party) -> None:
        kept = replace(joined, state=party.state.to_bytes())
        self._keeper.keep_session(joined.session, kept.to_file())

    def _stepped(
        self,
        frame: Frame,
        step: Callable[[Joined, Party], tuple[bytes, ...]],
        *,
        learned: Callable[[Joined], Joined] = lambda joined: joined,
    ) -> Public:
        """One step of the protocol; its state is kept whether it answered or refused."""
        joined, party = self._opened(frame)
        try:
            blobs = step(joined, party)
            joined = learned(joined)
        except TooFewSurvivors as error:
            raise Declined(Reason.COHORT_TOO_SMALL, str(error)) from error
        except ProtocolError as error:
            raise Declined(Reason.PROTOCOL, str(error)) from error
        finally:
            self._keep(joined, party)
        return Public.answer(blobs=blobs)

    def _roster(self, frame: Frame) -> Public:
        number, message = frame.head["prepare"], frame.blobs[0]

        def step(_: Joined, party: Party) -> tuple[bytes, ...]:
            return party.on_roster(*frame.blobs), party.prepare(number)

        return self._stepped(frame, step, learned=lambda joined: joined.with_roster(message))

    def _prepare(self, frame: Frame) -> Public:
        number = frame.head["prepare"]

        def step(_: Joined, party: Party) -> tuple[bytes, ...]:
            complaint = party.on_ciphertexts(frame.blobs[0]) if frame.blobs[0] else b""
            return (complaint,) if complaint else (party.prepare(number),)

        return self._stepped(frame, step)

    def _prove(self, frame: Frame) -> Public:
        return self._stepped(frame, lambda _, party: (party.prove(*frame.blobs),))

    def _finish(self, frame: Frame) -> Public:
        session = session_of(frame.head)
        self._keeper.session(session)
        ledger = self._ledger.opened()
        ledger.check_contains(self._keeper.newest_ledger_head())
        self._keeper.end_session(session)
        self._keeper.keep_ledger_head(ledger.head())
        # Between runs the ledger is one whole file, which its owner may copy.
        self._ledger.close()
        return Public.answer()

    # One round.

    def _round(self, frame: Frame) -> Public | Released:
        joined, party = self._opened(frame)
        number = frame.head["prepare"]
        message, blob, ciphertexts = frame.blobs
        try:
            if ciphertexts:
                complaint = party.on_ciphertexts(ciphertexts)
                if complaint:  # nothing is computed for a round whose masks would not cancel
                    self._keep(joined, party)
                    return Public.answer(blobs=(complaint,))
                joined = replace(joined, state=party.state.to_bytes())  # kept with the answer
            agreement = joined.at_round(plan_from(frame.head["plan"]), message=message, state=blob)
        except ProtocolError as error:
            raise Declined(Reason.PROTOCOL, str(error)) from error
        accepted, plan, context = self._accepted(agreement), agreement.plan, agreement.binding()
        try:
            # On a copy: what the protocol would refuse is refused before anything is charged.
            copy, nothing = self._party(joined), np.zeros(plan.dimension, plan.encoding.dtype)
            copy.start_round(message, nothing, context=context)
            copy.prepare(number)
        except ProtocolError as error:
            raise Declined(Reason.PROTOCOL, str(error)) from error
        ledger = self._ledger.opened()
        # Again: runs that began together add up, and a no may have followed a yes.
        owner_approval.check(
            self._keeper, ledger, self._consent, joined.agreement, clock=self._clock()
        )
        given = contribution(
            self._keeper,
            ledger,
            self._consent,
            party=self.name,
            index=self.index,
            accepted=accepted,
        )
        masked = bytes(party.on_plan(message, given.encoded, context=context))
        shares = party.prepare(number)
        name = agreement.release() if plan.on_sum else b""
        self._keep(replace(joined, release=name), party)
        return Released(receipt=given.receipt, blobs=(masked, shares))

    def _survivors(self, frame: Frame) -> Public:
        def step(joined: Joined, party: Party) -> tuple[bytes, ...]:
            run = joined.agreement.parameters
            listed = decode(run, frame.blobs[0], Survivors).survivors
            self._in_one_sum(Openings.check, joined, party, listed)
            return (party.on_survivors(frame.blobs[0]),)

        return self._stepped(frame, step)

    def _confirmations(self, frame: Frame) -> Public:
        def step(joined: Joined, party: Party) -> tuple[bytes, ...]:
            current = party.state.current
            listed = b"" if current is None else current.survivors
            reply = party.on_confirmations(frame.blobs[0])
            # Once more: another session may have opened the same release since.
            self._in_one_sum(Openings.keep, joined, party, listed)
            return (reply,)

        return self._stepped(frame, step)

    def _in_one_sum(
        self,
        remember: Callable[[Openings, bytes, bytes], None],
        joined: Joined,
        party: Party,
        listed: bytes,
    ) -> None:
        if not joined.release:
            return
        parties = listed_parties(self._deployment.identities, listed)
        try:
            remember(self._keeper.openings, joined.release, parties)
        except OpenedOtherwise as error:
            if self._consent.insist_on_one_list:
                party.abandon()
                raise Declined(Reason.OTHER_SURVIVORS, str(error)) from error
