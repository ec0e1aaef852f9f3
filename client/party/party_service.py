"""`PartyService`: one request in, one answer out, all state on the party's own disk.

Every request is answered by a frame: ok, or refused with one reason class. Every answer leaves
through `parley.client.party.party_responses`: it is public, or a contribution with its receipt. A
round request passes these checks, and the first that fails ends it:

1. the session is known, and the plan is the one that was joined
   (`parley.client.party.joined_session`) and that the owner approved if policy asks
   (`parley.client.party.owner_approval`);
2. policy, task, sensitivity and model are valid (`parley.client.party.accepted_run`);
3. the protocol would accept the message. This is tried on a copy, so that a bad message costs
   nothing;
4. the party's own ledger reserves the charge (`parley.client.party.release_charge`), once per
   round;
5. the contribution is computed, stored and committed;
6. the protocol masks it, under keys bound to everything it was computed from
   (`parley.client.contract.agreement`). Its secrets are written before the answer is returned.

All state is in the folder, so another process may serve the next message. This module does not
depend on how messages travel.
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

from parley.client.contract.agreement import Agreement, get_session, parse_plan
from parley.client.contract.message_frames import MessageFrame, parse_request
from parley.client.contract.refusals import Declined, Reason, decline_errors
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.roster import Deployment, load_deployment
from parley.client.own_code.own_code_errors import list_code_failures
from parley.client.party import accepted_run, budget_checks, open_session_limit
from parley.client.party.accepted_run import AcceptedRun, accept_run
from parley.client.party.joined_session import JoinedSession, hash_request
from parley.client.party.last_write_times import Uptime, read_uptime
from parley.client.party.ledger_cache import LedgerCache
from parley.client.party.owner_approval import OwnerApprovals
from parley.client.party.owner_policy import OwnerPolicy, load_policy
from parley.client.party.party_folder import PartyFolder, PartyFolderError
from parley.client.party.party_responses import PublicResponse, ReleaseResponse, ResponseSender
from parley.client.party.record_cache import RecordCache
from parley.client.party.request_lock import hold_request_lock
from parley.client.party.round_contribution import compute_contribution
from parley.client.party.run_validation import check_run
from parley.client.party.unmasking_log import OtherSurvivorsUnmasked, UnmaskingLog, hash_survivors
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import LedgerError
from parley.safe_io.os_errors import describe_error
from parley.secure_agg.interface import ProtocolError, TooFewSurvivors
from parley.secure_agg.mask_graph import compute_nonce_commitment
from parley.secure_agg.messages import Survivors, decode
from parley.secure_agg.pairwise_party import MaskingParty
from parley.secure_agg.primitives import (
    AlgorithmMissing,
    Entropy,
    derive,
    derive_signing_public_key,
)
from parley.secure_agg.protocol_parameters import ProtocolRequirements
from parley.secure_agg.state_encoding import decode_state, encode_state


def derive_records_secret(identity: bytes) -> bytes:
    """Return the secret by which a party names and chooses records.

    It is uniform, and only this party has it, as with the identity it is derived from.
    """
    return derive(identity, b"parley/records")


class PartyService:
    """One party. `open` creates it from its folder."""

    def __init__(
        self,
        *,
        party_folder: PartyFolder,
        policy: OwnerPolicy,
        deployment: Deployment,
        identity: bytes,
        entropy: Entropy,
        clock: Callable[[], float],
    ) -> None:
        """Create a party from its checked folder.

        Raises:
            PartyFolderError: the identity is not one of the deployment's.
        """
        public = derive_signing_public_key(identity)
        if public not in deployment.identities:
            raise PartyFolderError(
                f"Expected the identity in {party_folder.path} to be a party of deployment "
                f"{deployment.id}, its public key {public.hex()} is not in the roster: "
                "deployment.toml or identity.key belongs to another deployment."
            )
        self.index = deployment.identities.index(public)
        names = [party.name for party in deployment.parties]
        self.name = names[self.index]
        self._sender = ResponseSender(party_folder=party_folder, name=self.name, party_names=names)
        self._party_folder, self._policy, self._deployment = party_folder, policy, deployment
        self._identity, self._entropy, self._clock = identity, entropy, clock
        self._ledger = LedgerCache(party_folder.ledger_path)
        secret, sessions = derive_records_secret(identity), party_folder.list_sessions
        self._records = RecordCache(policy, party_folder.path, secret=secret, sessions=sessions)

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
        """Open the party in `folder`.

        Raises:
            PartyFolderError, PolicyError, RosterError: a folder or file that its owner must repair.
        """
        party_folder = PartyFolder.open(folder, uptime=uptime)
        return cls(
            party_folder=party_folder,
            policy=load_policy(folder / "party.toml"),
            deployment=load_deployment(folder / "deployment.toml"),
            identity=party_folder.load_identity(),
            entropy=entropy,
            clock=clock,
        )

    def close(self) -> None:
        """Close the party's ledger. The next request opens it again."""
        self._ledger.close()

    def handle(self, request: bytes) -> bytes:
        """Return the answer to a request: an `answer` frame for any input."""
        kind = "?"
        response: PublicResponse | ReleaseResponse
        try:
            frame = parse_request(request)
            kind = frame.kind
            # Library warnings may depend on a record and would be printed where the log goes, so
            # they are ignored.
            with warnings.catch_warnings(action="ignore"), self._lock_folder():
                response = getattr(self, f"_handle_{kind}")(frame)  # a key of `REQUESTS`
        except Declined as declined:
            response = PublicResponse.build_refusal(declined)
        except (LedgerError, PartyFolderError, OSError) as error:
            response = PublicResponse.build_error(describe_error(error))
        except list_code_failures() as error:
            # A bug, perhaps in the request: code that computes with records raises none. Neither
            # its text nor its trace leaves the machine, and the log has no text either.
            position = traceback.extract_tb(error.__traceback__)[-1]
            response = PublicResponse.build_error(
                f"{type(error).__name__} at {Path(position.filename).name}:{position.lineno}"
            )
        return self._sender.send(kind, response)

    @contextmanager
    def _lock_folder(self) -> Iterator[None]:
        with hold_request_lock(self._party_folder.path, wait_s=self._policy.lock_wait_s):
            self._party_folder.remove_stale_files()
            yield

    # Facts about the data of a run.

    def _handle_inspect(self, frame: MessageFrame) -> PublicResponse:
        clock, load = self._clock(), self._records.load
        described = accepted_run.describe_data(frame.head, self._policy, clock, load)
        return PublicResponse.build_ok({"party": self.index, **described})

    # The messages of a run.

    def _handle_propose(self, frame: MessageFrame) -> PublicResponse:
        joined = JoinedSession.from_request(frame, identities=self._deployment.identities)
        self._check_admission(joined)
        return PublicResponse.build_ok()

    def _handle_commit(self, frame: MessageFrame) -> PublicResponse:
        get_session(frame.head)
        commitment = compute_nonce_commitment(self.index, self._derive_next_nonce())
        return PublicResponse.build_ok(blobs=(commitment,))

    def _derive_next_nonce(self) -> bytes:
        folder, deployment = self._party_folder, self._deployment
        return open_session_limit.derive_setup_nonce(folder, self._identity, deployment)

    def _handle_join(self, frame: MessageFrame) -> PublicResponse:
        joined = JoinedSession.from_request(frame, identities=self._deployment.identities)
        agreement, requirements = joined.agreement, self._check_admission(joined)
        folder, limit = self._party_folder, self._policy.max_sessions
        open_session_limit.free_session_slot(folder, joined, limit, self._load_session)
        sparse = agreement.parameters.sparse
        party = MaskingParty(
            run=agreement.parameters,
            policy=requirements,
            index=self.index,
            identity=self._identity,
            entropy=self._entropy,
            nonce=self._derive_next_nonce() if sparse else b"",
        )
        with decline_errors(Reason.PROTOCOL, AlgorithmMissing):
            advertised = party.advertise()
        if sparse:  # before the nonce leaves, because it is for only this set-up
            self._party_folder.increment_setups(requirements.roster)
        self._save_session(joined, party)
        return PublicResponse.build_ok(blobs=(advertised,))

    def _check_admission(self, joined: JoinedSession) -> ProtocolRequirements:
        """Check policy, task, budget and the owner's approval, before the run has a key."""
        agreement = joined.agreement
        requirements = check_run(self._policy, self._deployment, agreement.parameters)
        accepted, ledger = self._accept_agreement(agreement), self._ledger.get_ledger()
        ledger.check(anchor=self._party_folder.find_newest_ledger_head())
        dataset = self._policy.get_dataset(agreement.dataset)
        budget_checks.check_budget(ledger, dataset, accepted, party=self.name)
        self._party_folder.save_ledger_head(ledger.get_head())
        self._require_approval(ledger, agreement)
        return requirements

    def _require_approval(self, ledger: Ledger, agreement: Agreement) -> None:
        folder, policy, clock = self._party_folder, self._policy, self._clock()
        approvals = OwnerApprovals(party_folder=folder, ledger=ledger, policy=policy, clock=clock)
        approvals.require(agreement)

    def _accept_agreement(self, agreement: Agreement) -> AcceptedRun:
        """Run check 2."""
        return accept_run(self._policy, agreement, self._records.load_for_agreement)

    def _load_session(self, session: str) -> JoinedSession:
        return JoinedSession.from_file(
            self._party_folder.load_session(session), identities=self._deployment.identities
        )

    def _open_session(self, frame: MessageFrame) -> tuple[JoinedSession, MaskingParty]:
        joined = self._load_session(get_session(frame.head))
        self._ledger.get_ledger().check_contains(self._party_folder.load_ledger_head())
        return joined, self._restore_protocol(joined)

    def _restore_protocol(self, joined: JoinedSession) -> MaskingParty:
        run = joined.agreement.parameters
        return MaskingParty(
            run=run,
            policy=check_run(self._policy, self._deployment, run),
            index=self.index,
            identity=self._identity,
            entropy=self._entropy,
            state=decode_state(joined.state),
        )

    def _save_session(self, joined: JoinedSession, party: MaskingParty) -> None:
        updated = replace(joined, state=encode_state(party.state))
        self._party_folder.save_session(joined.session, updated.to_file())

    def _run_step(
        self,
        frame: MessageFrame,
        step: Callable[[JoinedSession, MaskingParty], tuple[bytes, ...]],
        *,
        update_session: Callable[[JoinedSession], JoinedSession] = lambda joined: joined,
    ) -> PublicResponse:
        """Run one step of the protocol. Its state is saved whether it answered or refused.

        A repeated request gets the kept answer, and changes nothing.
        """
        (joined, party), request = self._open_session(frame), hash_request(frame)
        kept = joined.find_answer(request)
        if kept is not None:
            return PublicResponse.build_ok(blobs=kept)
        before, joined = joined, joined.with_answer(b"", ())
        try:
            blobs = step(before, party)
            joined = update_session(joined).with_answer(request, blobs)
        except TooFewSurvivors as error:
            raise Declined(Reason.COHORT_TOO_SMALL, str(error)) from error
        except ProtocolError as error:
            raise Declined(Reason.PROTOCOL, str(error)) from error
        finally:
            self._save_session(joined, party)
        return PublicResponse.build_ok(blobs=blobs)

    def _handle_roster(self, frame: MessageFrame) -> PublicResponse:
        number, message = frame.head["prepare"], frame.blobs[0]

        def step(_: JoinedSession, party: MaskingParty) -> tuple[bytes, ...]:
            return party.handle_roster(*frame.blobs), party.prepare(number)

        return self._run_step(frame, step, update_session=lambda old: old.with_roster(message))

    def _handle_prepare(self, frame: MessageFrame) -> PublicResponse:
        number = frame.head["prepare"]

        def step(joined: JoinedSession, party: MaskingParty) -> tuple[bytes, ...]:
            complaint = party.handle_ciphertexts(frame.blobs[0]) if frame.blobs[0] else b""
            if complaint:
                return (complaint,)
            # Shares that went with an answer that never arrived.
            return (joined.find_shares(party.state.run, number) or party.prepare(number),)

        return self._run_step(frame, step)

    def _handle_prove(self, frame: MessageFrame) -> PublicResponse:
        return self._run_step(frame, lambda _, party: (party.prove(*frame.blobs),))

    def _handle_finish(self, frame: MessageFrame) -> PublicResponse:
        session = get_session(frame.head)
        self._party_folder.load_session(session)
        ledger = self._ledger.get_ledger()
        ledger.check_contains(self._party_folder.find_newest_ledger_head())
        self._party_folder.erase_session(session)
        self._party_folder.save_ledger_head(ledger.get_head())
        # Between runs the ledger is one complete file that its owner may copy.
        self._ledger.close()
        return PublicResponse.build_ok()

    # The messages of a round.

    def _handle_round(self, frame: MessageFrame) -> PublicResponse | ReleaseResponse:
        (joined, party), request = self._open_session(frame), hash_request(frame)
        kept = joined.find_answer(request)
        number = frame.head["prepare"]
        message, blob, ciphertexts = frame.blobs
        with decline_errors(Reason.PROTOCOL, ProtocolError):
            if ciphertexts and kept is None:
                complaint = party.handle_ciphertexts(ciphertexts)
                if complaint:  # do not compute for a round whose masks would not cancel
                    self._save_session(joined, party)
                    return PublicResponse.build_ok(blobs=(complaint,))
                joined = replace(joined, state=encode_state(party.state))  # stored with the answer
            plan = parse_plan(frame.head["plan"])
            agreement = joined.build_agreement(plan, message=message, state=blob)
        accepted = self._accept_agreement(agreement)
        plan = agreement.plan
        context = agreement.compute_binding()
        if kept is None:
            self._try_round(joined, plan, message, number, context)
        ledger = self._ledger.get_ledger()
        # Check again: runs that began together add up, and the owner may have withdrawn an
        # approval.
        self._require_approval(ledger, joined.agreement)
        folder, policy = self._party_folder, self._policy
        contribution = compute_contribution(folder, ledger, policy, accepted, self.name, self.index)
        if kept is not None:  # the answer did not arrive: the same bytes again
            return ReleaseResponse(receipt=contribution.receipt, blobs=kept)
        masked = bytes(party.handle_plan(message, contribution.encoded, context=context))
        shares = party.prepare(number)
        name = agreement.compute_release_digest() if plan.sum_guarantees else b""
        answered = replace(joined, release=name).with_answer(request, (masked, shares))
        self._save_session(answered, party)
        return ReleaseResponse(receipt=contribution.receipt, blobs=answered.answer)

    def _try_round(
        self, joined: JoinedSession, plan: ReleasePlan, message: bytes, number: int, context: bytes
    ) -> None:
        """Run a round on a copy, so that what the protocol would refuse is refused before anything
        is charged.
        """
        copy = self._restore_protocol(joined)
        with decline_errors(Reason.PROTOCOL, ProtocolError):
            zeros = np.zeros(plan.dimension, plan.encoding.dtype)
            copy.start_round(message, zeros, context=context)
            copy.prepare(number)

    def _handle_survivors(self, frame: MessageFrame) -> PublicResponse:
        def step(joined: JoinedSession, party: MaskingParty) -> tuple[bytes, ...]:
            run = joined.agreement.parameters
            listed = decode(run, frame.blobs[0], Survivors).survivors
            self._check_unmasking(UnmaskingLog.check, joined, party, listed)
            return (party.handle_survivors(frame.blobs[0]),)

        return self._run_step(frame, step)

    def _handle_confirmations(self, frame: MessageFrame) -> PublicResponse:
        def step(joined: JoinedSession, party: MaskingParty) -> tuple[bytes, ...]:
            current = party.state.current
            listed = b"" if current is None else current.survivors
            reply = party.handle_confirmations(frame.blobs[0])
            # Check again: another session may have unmasked the same release since.
            self._check_unmasking(UnmaskingLog.record, joined, party, listed)
            return (reply,)

        return self._run_step(frame, step)

    def _check_unmasking(
        self,
        action: Callable[[UnmaskingLog, bytes, bytes], None],
        joined: JoinedSession,
        party: MaskingParty,
        survivors: bytes,
    ) -> None:
        if not joined.release:
            return
        parties = hash_survivors(self._deployment.identities, survivors)
        try:
            action(self._party_folder.unmasking_log, joined.release, parties)
        except OtherSurvivorsUnmasked as error:
            if self._policy.insist_on_one_list:
                party.abort_round()
                raise Declined(Reason.OTHER_SURVIVORS, str(error)) from error
