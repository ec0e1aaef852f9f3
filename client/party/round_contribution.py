"""Compute a party's contribution to a round once; return the same bytes if it is repeated.

`compute_contribution` is called by `PartyService`. It reserves the charge in the party's ledger,
computes the integers, stores them under the release's name (`Agreement.compute_release_digest`) and
commits the charge. A repeated round returns the stored integers. A release with another name is
charged and computed again, with a fresh noise share.

**A charged round always has a contribution.** Whether a computation fails may depend on records,
and a visible failure would leak one bit that no noise covers. An uncertified result is therefore
sent unchanged. If there is no result, the party sends zeros plus its noise share. A note on the
failure is stored next to the contribution, padded to a fixed length, so that file sizes do not
reveal it. Only the owner sees it, with `parley party DIR --check`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from parley.client.algorithms.registry import list_release_assumptions
from parley.client.contract.message_frames import MessageFrame
from parley.client.contract.refusals import Declined, Reason
from parley.client.contract.release_plan import ReleasePlan
from parley.client.own_code.own_code_errors import list_code_failures
from parley.client.own_code.own_code_loading import locate_failure
from parley.client.party import budget_checks, release_charge
from parley.client.party.accepted_run import AcceptedRun
from parley.client.party.owner_policy import OwnerPolicy
from parley.client.party.party_folder import PartyFolder, get_contribution_head
from parley.client.party.party_session import PartySession
from parley.client.party.refusal_rules import RefusalRules
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.sampling.random_stream import Randomness
from parley.secure_agg.encoding import Ring
from parley.secure_agg.primitives import digest

_NOTE_BYTES = 200
"""Bytes of a failure's note, also if nothing failed."""


@dataclass(frozen=True, kw_only=True)
class RoundContribution:
    """A party's contribution to one round, with the receipt of its charge."""

    encoded: Ring
    receipt: release_charge.Receipt


def compute_contribution(
    party_folder: PartyFolder,
    ledger: Ledger,
    policy: OwnerPolicy,
    accepted: AcceptedRun,
    party: str,
    index: int,
) -> RoundContribution:
    """Return the party's contribution to a round, charged and stored, or raise Declined."""
    agreement = accepted.agreement
    plan = agreement.plan
    dataset_name = agreement.dataset
    content = agreement.compute_content_digest()
    # All sums of a release are charged once. Their models differ, so the charge's name has no
    # model.
    without_model = replace(agreement, state=b"").compute_content_digest()
    charge_name = content if plan.steps == 1 else without_model
    # The name contains the roster: two deployments on one ledger must not share a charge.
    charge_name = digest(b"parley/charged", charge_name, *agreement.identities)
    dataset = policy.get_dataset(dataset_name)
    account = dataset.account or dataset_name
    data = accepted.data
    stored, records = party_folder.load_contribution(agreement.run_id, dataset_name), data.contents
    # Without a stored head the owner has accepted an older copy of the ledger.
    if party_folder.load_ledger_head() is not None:
        unmasked_head = party_folder.unmasking_log.load_ledger_head()
        for known_head in (*get_contribution_head(stored), unmasked_head):
            ledger.check_contains(known_head)
    identity = {"release": agreement.compute_release_digest().hex(), "content": content.hex()}
    is_repeat = stored is not None and identity.items() <= stored.head.items()
    if stored is not None and not is_repeat:
        _check_same_records(stored.head.get("records", records), records, agreement.run_id)
    release_charge.register_dataset(ledger, dataset, account=account, data=data, plan=plan)
    budget_checks.check_round(ledger, dataset, plan, account=account)
    assumptions = list_release_assumptions(accepted.algorithm, agreement.features.get("name", ""))
    charge = release_charge.reserve_charge(
        ledger,
        plan,
        account=account,
        party=party,
        release=charge_name,
        rounds=agreement.rounds,
        assumptions=assumptions,
    )
    encoded: Ring
    if stored is not None and is_repeat:
        encoded = np.frombuffer(stored.blobs[-1], plan.encoding.dtype)
    elif charge.answered and not _is_earlier_sum(stored, plan):
        raise Declined(Reason.PROTOCOL, f"Round {plan.round_number} was answered and is over.")
    else:
        # Only the plan decides whether a seed may be used, and the seed is this party's own.
        seed = policy.seed if plan.seeded else None
        encoded, failure = _compute_encoded(policy, accepted, Randomness(seed=seed, party=index))
        head = {
            **identity,
            "round": plan.round_number,
            "step": plan.step,
            "records": records,
            "ledger": ledger.get_head().to_json(),
        }
        note = failure.encode("ascii", "replace")[:_NOTE_BYTES].ljust(_NOTE_BYTES)
        frame = MessageFrame(kind="round", head=head, blobs=(note, encoded.tobytes()))
        run_id, max_files = agreement.run_id, policy.max_sessions
        party_folder.save_contribution(run_id, dataset_name, frame, max_files=max_files)
    receipt = release_charge.commit_charge(ledger, charge)
    # Save the head before the answer leaves, so that the next request detects an older ledger.
    party_folder.save_ledger_head(ledger.get_head())
    return RoundContribution(encoded=encoded, receipt=receipt)


def _check_same_records(before: str, records: str, run_id: str) -> None:
    """Decline if the records changed since the run's last release."""
    if before != records:
        raise Declined(
            Reason.DATA_UNREADABLE,
            f"Expected the same records as before in run {run_id!r}, got others: a run learns "
            "from one state of them. Start another run. To resume runs while a table grows, use "
            "a query whose rows stay the same (WHERE admitted < '2026-01-01').",
        )


def _is_earlier_sum(stored: MessageFrame | None, plan: ReleasePlan) -> bool:
    """Return whether the last contribution was to an earlier sum of the same release.

    The party contributes to each of its sums once, in order. All are paid for with the first.
    """
    if stored is None or stored.head["round"] != plan.round_number:
        return False
    return bool(stored.head.get("step", 1) < plan.step)


def _compute_encoded(
    policy: OwnerPolicy, accepted: AcceptedRun, randomness: Randomness
) -> tuple[Ring, str]:
    """Return `[d]` the encoded result, and what went wrong.

    No fault of the records, or of the computation on them, is raised.
    """
    plan = accepted.agreement.plan
    dataset = policy.get_dataset(accepted.agreement.dataset)
    try:
        session = PartySession(
            block=accepted.data.to_block(accepted.algorithm),
            algorithm=accepted.algorithm,
            rules=RefusalRules(
                units=frozenset(dataset.totals),
                min_survivors=policy.min_survivors,
                neighbouring=frozenset({dataset.neighbouring}),
            ),
            randomness=randomness,
        )
        answer = session.answer(plan, accepted.state)
        if not answer.refused:  # an accepted plan has no refusal
            return answer.encoded[0], "not certified" if answer.failed else ""
        failure = answer.refused[0]
    except list_code_failures() as error:
        cause = error.__cause__ or error  # of an app's own code: no text of it
        failure = f"{type(cause).__name__} at {locate_failure(cause)}"
    zeros = np.zeros((1, plan.dimension))
    if plan.shared_guarantee is None:
        return plan.encoding.encode(zeros)[0], failure
    stream = randomness.open_noise_share(plan.round_number, step=plan.step)
    return plan.encode(zeros, [stream])[0], failure
