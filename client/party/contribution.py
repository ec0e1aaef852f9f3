"""A party's contribution to a round: charged before it is computed, the same ever after.

The party's own ledger reserves the charge; the integers are computed, kept and committed to, and a
repeated round gets the very same ones. They are opened in one sum only
(`parley.client.party.openings`): if a contribution were revealed for one list of survivors and then
for another, the difference of the two sums would be the contributions of a few.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from parley.client.contract.protocol import Frame, Reason
from parley.client.party import charging
from parley.client.party.acceptance import Accepted
from parley.client.party.block_session import Answer, PartyPolicy, PartySession
from parley.client.party.consent import Consent, Declined
from parley.client.party.storage import Keeper
from parley.privacy.accounting.guarantee import NoisePoint
from parley.secure_agg.encoding import Ring

__all__ = ["ComputationFailed", "Contribution", "contribution"]


class ComputationFailed(Exception):
    """Nothing was computed that may be released. Its charge stands: that it failed is seen."""


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """What a party gives to one round.

    Attributes:
        encoded: `[d]` ring elements.
        keys: what the memory of openings knows it by; none where noise that this party added, in
            this very release, is all that was charged for: that covers any number of sums.
    """

    encoded: Ring
    keys: tuple[bytes, ...]


def contribution(
    keeper: Keeper, consent: Consent, *, party: str, accepted: Accepted
) -> Contribution:
    """What a party gives to one round.

    Args:
        keeper: where it is kept.
        consent: the policy.
        party: the party's name in its ledger.
        accepted: the agreement for this round, and what follows from it.

    Raises:
        Declined: plan-changed, budget-exhausted, protocol (a round that is over).
        ComputationFailed: now, or when this release was first asked for.
    """
    agreement, ledger = accepted.agreement, keeper.ledger
    plan, name, release = agreement.plan, agreement.dataset, agreement.content()
    dataset = consent.dataset(name)
    charging.register(ledger, dataset, name=name, holding=accepted.holding)
    charge = charging.reserve(ledger, dataset, plan, name=name, party=party, release=release)
    if charge.answered is False:
        raise ComputationFailed("this release was tried before, and gave nothing")
    kept = keeper.contribution(agreement.run_id, name)
    is_of = {"release": release.hex(), "round": plan.round_number}
    if kept is not None and is_of.items() <= kept.head.items():
        given = Contribution(
            encoded=np.frombuffer(kept.blobs[0], plan.encoding.dtype),
            keys=tuple(bytes.fromhex(key) for key in kept.head["keys"]),
        )
    elif charge.answered:
        raise Declined(Reason.PROTOCOL, f"Round {plan.round_number} was answered and is over.")
    else:
        answer = _computed(keeper, consent, accepted, charge)
        given = Contribution(encoded=answer.encoded[0], keys=_keys(accepted, answer))
        content = Frame(
            kind="round",
            head={**is_of, "keys": [key.hex() for key in given.keys]},
            blobs=(given.encoded.tobytes(),),
        )
        keeper.keep_contribution(agreement.run_id, name, content, most=consent.max_sessions)
    if charge.answered is None:
        charging.settle(ledger, charge, answered=True, release=release)
    return given


def _keys(accepted: Accepted, answer: Answer) -> tuple[bytes, ...]:
    """What the contribution is known by in another round or run: its values, and what gave them.

    The values alone would miss a computation that draws (batches) or rounds a little otherwise;
    what gave them would miss another noise, another grid or another name for the same thing. Where
    the party adds noise of its own, what gave them gives others next time.
    """
    plan = accepted.agreement.plan
    if plan.primary.noise_point is not NoisePoint.PARTY:
        return answer.digests[0], accepted.agreement.content()
    return (answer.digests[0],) if plan.on_sum else ()


def _computed(
    keeper: Keeper, consent: Consent, accepted: Accepted, charge: charging.Charge
) -> Answer:
    agreement, ledger = accepted.agreement, keeper.ledger
    release, dataset = agreement.content(), consent.dataset(agreement.dataset)
    try:
        session = PartySession(
            block=accepted.holding.block(accepted.algorithm),
            algorithm=accepted.algorithm,
            policy=PartyPolicy(
                # The ledger has charged it already.
                budgets=dict.fromkeys(dataset.totals, (math.inf, dataset.delta)),
                min_survivors=consent.min_survivors,
                neighbouring=frozenset({dataset.neighbouring}),
            ),
            digesting=True,
        )
        given = session.answer(agreement.plan, accepted.state)
    except Exception as error:
        # That it failed may depend on a record, and will be seen: the charge stands.
        charging.settle(ledger, charge, answered=False, release=release)
        raise ComputationFailed(type(error).__name__) from error
    if given.refused:
        charging.void(ledger, charge, "refused before anything was computed")
        raise Declined(Reason.ERROR, f"Expected consent, got {given.refused[0]}.")
    if given.failed:
        charging.settle(ledger, charge, answered=False, release=release)
        raise ComputationFailed("the computation gave nothing that may be released")
    return given
