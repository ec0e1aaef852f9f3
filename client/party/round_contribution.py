"""A party's contribution to a round: charged before it is computed, the same ever after.

The party's own ledger reserves the charge; the integers are computed, kept under the release's
name (`Agreement.release`) and committed to, and a repeated round gets the very same ones. A release
of another name is charged, computed and given its share of the noise anew.

**Once it is charged, there is a contribution.** Whether a computation fails may depend on records,
and a failure that is seen is a bit that no noise covers. So what is not certified is sent as it
came out, and where nothing came out zeros are, with this party's share of the noise. What went
wrong is kept beside the contribution, in as many bytes as nothing is, for the owner alone:
`parley party DIR --check` shows it.
"""

from __future__ import annotations

import math
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from parley.client.algorithms.registry import assumptions_of
from parley.client.contract.party_protocol import Declined, Frame, Reason
from parley.client.contract.release_plan import ReleasePlan
from parley.client.party import job_limits, release_charge
from parley.client.party.accepted_run import Accepted
from parley.client.party.owner_policy import Consent
from parley.client.party.party_folder import Keeper, contribution_head
from parley.client.party.party_session import PartySession
from parley.client.party.plan_policy import PartyPolicy
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.sampling.random_stream import Randomness
from parley.secure_agg.encoding import Ring
from parley.secure_agg.primitives import digest

_NOTE = 200
"""Bytes of what went wrong, or of nothing."""


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """What a party gives to one round."""

    encoded: Ring
    receipt: release_charge.Receipt


def contribution(
    keeper: Keeper,
    ledger: Ledger,
    consent: Consent,
    *,
    party: str,
    index: int,
    accepted: Accepted,
) -> Contribution:
    """What a party gives to one round."""
    agreement = accepted.agreement
    plan, name, content = agreement.plan, agreement.dataset, agreement.content()
    # A block of sums is charged once, for all of them: what it is for is named without a model.
    charged = content if plan.steps == 1 else replace(agreement, state=b"").content()
    # And with its roster: two that share a ledger share no charge.
    charged = digest(b"parley/charged", charged, *agreement.identities)
    dataset = consent.dataset(name)
    account = dataset.account or name
    holding = accepted.holding
    kept, records = keeper.contribution(agreement.run_id, name), holding.contents
    if keeper.ledger_head() is not None:  # without it the owner took an older copy for all
        for known_head in (*contribution_head(kept), keeper.openings.marked()):
            ledger.check_contains(known_head)
    is_of = {"release": agreement.release().hex(), "content": content.hex()}
    again = kept is not None and is_of.items() <= kept.head.items()
    if kept is not None and not again and kept.head.get("records", records) != records:
        raise Declined(
            Reason.DATA_UNREADABLE,
            f"Expected the records that run {agreement.run_id!r} was given before, got others: a "
            "run learns from one state of them. Begin another run; a query whose rows stay while "
            "the table grows (WHERE admitted < '2026-01-01') lets this one be resumed.",
        )
    release_charge.register(ledger, dataset, name=account, holding=holding, plan=plan)
    known = release_charge.charged(ledger, plan.run_id, account)
    job_limits.check_round(dataset, plan, known=known)
    assumed = assumptions_of(accepted.algorithm, agreement.features.get("name", ""))
    charge = release_charge.reserve(
        ledger,
        plan,
        name=account,
        party=party,
        known=known,
        release=charged,
        rounds=agreement.rounds,
        assumed=assumed,
    )
    encoded: Ring
    if kept is not None and again:
        encoded = np.frombuffer(kept.blobs[-1], plan.encoding.dtype)
    elif charge.answered and not _before(kept, plan):
        raise Declined(Reason.PROTOCOL, f"Round {plan.round_number} was answered and is over.")
    else:
        # The plan alone says whether a seed may be used, and the seed is this party's own.
        seed = consent.seed if plan.seeded else None
        encoded, wrong = _computed(consent, accepted, Randomness(seed=seed, party=index))
        head = {
            **is_of,
            "round": plan.round_number,
            "step": plan.step,
            "records": records,
            "ledger": ledger.head().to_json(),
        }
        note = wrong.encode("ascii", "replace")[:_NOTE].ljust(_NOTE)
        own = Frame(kind="round", head=head, blobs=(note, encoded.tobytes()))
        keeper.keep_contribution(agreement.run_id, name, own, most=consent.max_sessions)
    receipt = release_charge.settle(ledger, charge)
    # Before the answer leaves: an older ledger is then known as one at the next request.
    keeper.keep_ledger_head(ledger.head())
    return Contribution(encoded=encoded, receipt=receipt)


def _before(kept: Frame | None, plan: ReleasePlan) -> bool:
    """Whether what was contributed last is an earlier sum of the same release.

    Each of its sums is contributed to once, in order, and paid for with the first.
    """
    if kept is None or kept.head["round"] != plan.round_number:
        return False
    return bool(kept.head.get("step", 1) < plan.step)


def _computed(consent: Consent, accepted: Accepted, randomness: Randomness) -> tuple[Ring, str]:
    """`[d]`, and what went wrong; nothing that is wrong with records, or with them, is raised."""
    plan = accepted.agreement.plan
    dataset = consent.dataset(accepted.agreement.dataset)
    try:
        session = PartySession(
            block=accepted.holding.block(accepted.algorithm),
            algorithm=accepted.algorithm,
            policy=PartyPolicy(
                # The ledger has charged it already.
                budgets={unit: (math.inf, total.delta) for unit, total in dataset.totals.items()},
                min_survivors=consent.min_survivors,
                neighbouring=frozenset({dataset.neighbouring}),
            ),
            randomness=randomness,
        )
        given = session.answer(plan, accepted.state)
        if not given.refused:  # of a plan that was accepted, none is
            return given.encoded[0], "not certified" if given.failed else ""
        wrong = given.refused[0]
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        wrong = f"{type(error).__name__} at {Path(at.filename).name}:{at.lineno}"
    zeros = np.zeros((1, plan.dimension))
    if plan.shared is None:
        return plan.encoding.encode(zeros)[0], wrong
    return plan.encode(zeros, [randomness.share(plan.round_number, step=plan.step)])[0], wrong
