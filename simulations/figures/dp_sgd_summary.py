"""What DP-SGD came to, party by party: the part of `summary.json` under `dp_sgd`.

Parties are disjoint, so a record's account is that of its party's steps alone; the run's is
the largest of the parties', or that of the noise on the sum where it is lower
(`parley.server.records.guarantees`). How many gradients were clipped is a separate release: it is
made where a share of the steps' privacy pays for it (`parley.server.records.clipped_fraction`),
and nowhere else.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.composition import Composition
from parley.server.records.summary import DpSgd, PartyAccount


def dp_sgd_facts(
    plan: ReleasePlan,
    *,
    answered: NDArray[np.int64],
    records: NDArray[np.int64],
    before: Composition,
    precision: str,
    device: str,
) -> DpSgd | None:
    """Rate, noise, clip, steps and ε by RDP and PLD of every party; None for another mechanism.

    Args:
        answered: `[B]` releases that each party computed for and is charged.
        records: `[B]` its number of records, known to a simulation alone.
        before: what every party was charged before the first round.
        precision, device: in which, and where, the parties trained.
    """
    mechanism = plan.primary.mechanism.training
    if mechanism is None:
        return None
    accounts = {
        int(count): before.add(mechanism.event(), count=int(count)).epsilons(plan.primary.delta)
        for count in np.unique(answered)
    }
    return DpSgd(
        sampling_rate=mechanism.sampling_rate,
        noise_multiplier=mechanism.noise_multiplier,
        gradient_multiplier=mechanism.gradient_multiplier,
        clipped_share=mechanism.clipped_share,
        clip_norm=mechanism.clip_norm,
        steps_per_round=mechanism.steps,
        parties_by_releases={str(n): k for n, k in sorted(Counter(answered.tolist()).items())},
        largest=accounts[int(answered.max())],
        parties=tuple(
            PartyAccount(
                party=party,
                records=int(records[party]),
                releases=int(count),
                steps=int(count) * mechanism.steps,
                epsilon=accounts[int(count)],
            )
            for party, count in enumerate(answered)
        ),
        precision=precision,
        device=device,
    )
