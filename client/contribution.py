"""A party's contribution to a round: charged before it is computed, the same ever after.

The party's own ledger reserves the charge; the integers are computed, kept and committed to, and a
repeated round gets the very same ones. They are opened in one sum only: if a contribution were
revealed for one list of survivors and then for another, the difference of the two sums would be
the contributions of a few.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from client import charging
from client.algorithms import FederatedAlgorithm, State
from client.consent import Consent, Declined
from client.examination import Proposal
from client.holdings import Holding
from client.joined import Joined
from client.keeper import Keeper
from client.party import PartyPolicy, PartySession
from client.wire import Frame, Reason
from privacy.guarantee import NoisePoint
from secure_agg.encoding import Ring
from secure_agg.interface import RemoteProtocolError

__all__ = ["ComputationFailed", "check_opening", "contribution", "keep_opening"]


class ComputationFailed(Exception):
    """Nothing was computed that may be released. Its charge stands: that it failed is seen."""


def contribution(
    keeper: Keeper,
    consent: Consent,
    *,
    party: str,
    proposal: Proposal,
    algorithm: FederatedAlgorithm,
    holding: Holding,
    state: State,
    release: bytes,
) -> Ring:
    """`[d]` ring elements of one round.

    Args:
        keeper: where they are kept.
        consent: the policy.
        party: the party's name in its ledger.
        proposal: examined and accepted.
        algorithm: its task's.
        holding: the data set.
        state: what the round starts from.
        release: digest of plan and state.

    Raises:
        Declined: plan-changed, budget-exhausted, protocol (a round that is over).
        ComputationFailed: now, or when this release was first asked for.
    """
    plan, name, ledger = proposal.plan, proposal.dataset, keeper.ledger
    dataset = consent.dataset(name)
    charging.register(ledger, dataset, name=name, fingerprint=holding.fingerprint)
    charge = charging.reserve(ledger, dataset, plan, name=name, party=party, release=release)
    if charge.answered is False:
        raise ComputationFailed("this release was tried before, and gave nothing")
    kept = keeper.contribution(proposal.run_id, name)
    if kept is not None and kept.head["release"] == release.hex():
        encoded: Ring = np.frombuffer(kept.blobs[0], plan.encoding.dtype)
    elif charge.answered:
        raise Declined(Reason.PROTOCOL, f"Round {plan.round_number} was answered and is over.")
    else:
        encoded = _computed(consent, proposal, algorithm, holding, state, charge, ledger, release)
        content = Frame(
            kind="round",
            head={"release": release.hex(), "opened": None},
            blobs=(encoded.tobytes(),),
        )
        keeper.keep_contribution(proposal.run_id, name, content, most=consent.max_sessions)
    if charge.answered is None:
        charging.settle(ledger, charge, answered=True, release=release)
    return encoded


def _computed(
    consent: Consent,
    proposal: Proposal,
    algorithm: FederatedAlgorithm,
    holding: Holding,
    state: State,
    charge: charging.Charge,
    ledger: Path,
    release: bytes,
) -> Ring:
    dataset = consent.dataset(proposal.dataset)
    try:
        session = PartySession(
            block=holding.block(algorithm),
            algorithm=algorithm,
            policy=PartyPolicy(
                epsilon=math.inf,  # the ledger has charged it already
                delta=dataset.delta,
                min_survivors=consent.min_survivors,
                units=frozenset({dataset.unit}),
                neighbouring=frozenset({dataset.neighbouring}),
                party_epsilon=math.inf,
            ),
        )
        given = session.answer(proposal.plan, state)
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
    encoded: Ring = given.encoded[0]
    return encoded


def check_opening(keeper: Keeper, joined: Joined, survivors: bytes) -> None:
    """Refuses a second list of survivors for a contribution that was revealed for a first one.

    Noise that is in the contribution itself covers even that, where it is all that was charged
    for; and who does not ask for confirmed
    lists does not expect a server that lies about who dropped out.

    Raises:
        RemoteProtocolError: another list.
    """
    proposal, plan = joined.proposal, joined.proposal.plan
    covered = plan.noise_point is NoisePoint.PARTY and plan.party_level is None
    if not proposal.parameters.active or covered:
        return
    kept = keeper.contribution(proposal.run_id, proposal.dataset)
    before = None if kept is None else kept.head["opened"]
    if before not in (None, survivors.hex()):
        raise RemoteProtocolError("Expected the survivors that this round was opened for.")


def keep_opening(keeper: Keeper, consent: Consent, joined: Joined, survivors: bytes) -> None:
    """Remembers the list that a contribution was revealed for; before the reveal is sent."""
    proposal = joined.proposal
    kept = keeper.contribution(proposal.run_id, proposal.dataset)
    if kept is None or kept.head["release"] != joined.release.hex():
        return
    head = {**kept.head, "opened": survivors.hex()}
    opened = Frame(kind=kept.kind, head=head, blobs=kept.blobs)
    keeper.keep_contribution(proposal.run_id, proposal.dataset, opened, most=consent.max_sessions)
