"""A party's contribution to a round: charged before it is computed, the same ever after.

The party's own ledger reserves the charge; the integers are computed, kept under the release's
name (`Agreement.release`) and committed to, and a repeated round gets the very same ones. They are
opened in one sum only (`parley.client.party.openings`). A release of another name is charged,
computed and given its share of the noise anew, whatever it has in common with one before.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from parley.client.contract.plan import ReleasePlan
from parley.client.contract.protocol import Declined, Frame, Reason
from parley.client.party import charging
from parley.client.party.acceptance import Accepted
from parley.client.party.block_session import Answer, PartyPolicy, PartySession
from parley.client.party.consent import Consent
from parley.client.party.storage import Keeper
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.sampling.randomness import Randomness
from parley.secure_agg.encoding import Ring

__all__ = ["ComputationFailed", "contribution"]


class ComputationFailed(Exception):
    """Nothing was computed that may be released. The charge stands: the server sees the failure."""


def contribution(
    keeper: Keeper,
    ledger: Ledger,
    consent: Consent,
    *,
    party: str,
    index: int,
    accepted: Accepted,
) -> Ring:
    """`[d]` what a party gives to one round.

    Args:
        keeper: where it is kept.
        ledger: the party's own.
        consent: the policy.
        party: the party's name in its ledger.
        index: its own among all parties.
        accepted: the agreement for this round, and what follows from it.

    Raises:
        Declined: plan-changed, budget-exhausted, protocol (a round that is over).
        ComputationFailed: now, or when this release was first asked for.
    """
    agreement = accepted.agreement
    plan, name, content = agreement.plan, agreement.dataset, agreement.content()
    # A block of sums is charged once, for all of them: what it is for is named without a model.
    charged = content if plan.steps == 1 else replace(agreement, state=b"").content()
    dataset = consent.dataset(name)
    charging.register(ledger, dataset, name=name, holding=accepted.holding)
    charge = charging.reserve(ledger, dataset, plan, name=name, party=party, release=charged)
    if charge.answered is False:
        raise ComputationFailed("this release was tried before, and gave nothing")
    kept = keeper.contribution(agreement.run_id, name)
    is_of = {"release": agreement.release().hex(), "content": content.hex()}
    given: Ring
    if kept is not None and is_of.items() <= kept.head.items():
        given = np.frombuffer(kept.blobs[0], plan.encoding.dtype)
    elif charge.answered and not _before(kept, plan):
        raise Declined(Reason.PROTOCOL, f"Round {plan.round_number} was answered and is over.")
    else:
        given = _computed(ledger, consent, accepted, charge, index=index).encoded[0]
        head = {**is_of, "round": plan.round_number, "step": plan.step}
        own = Frame(kind="round", head=head, blobs=(given.tobytes(),))
        keeper.keep_contribution(agreement.run_id, name, own, most=consent.max_sessions)
    if charge.answered is None:
        charging.settle(ledger, charge, answered=True)
    return given


def _before(kept: Frame | None, plan: ReleasePlan) -> bool:
    """Whether what was contributed last is an earlier sum of the same release.

    Each of its sums is contributed to once, in order, and paid for with the first.
    """
    if kept is None or kept.head["round"] != plan.round_number:
        return False
    return bool(kept.head.get("step", 1) < plan.step)


def _computed(
    ledger: Ledger,
    consent: Consent,
    accepted: Accepted,
    charge: charging.Charge,
    *,
    index: int,
) -> Answer:
    agreement = accepted.agreement
    dataset = consent.dataset(agreement.dataset)
    first = charge.answered is None  # else an earlier sum of the release settled the charge
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
            # The plan alone says whether a seed may be used, and the seed is this party's own.
            randomness=Randomness(
                seed=consent.seed if agreement.plan.seeded else None, party=index
            ),
        )
        given = session.answer(agreement.plan, accepted.state)
    except Exception as error:
        # A failure may depend on a record, and the server sees it: the charge stands.
        if first:
            charging.settle(ledger, charge, answered=False)
        raise ComputationFailed(type(error).__name__) from error
    if given.refused:
        if first:
            charging.void(ledger, charge, "refused before anything was computed")
        raise Declined(Reason.ERROR, f"Expected consent, got {given.refused[0]}.")
    if given.failed:
        if first:
            charging.settle(ledger, charge, answered=False)
        raise ComputationFailed("the computation gave nothing that may be released")
    return given
