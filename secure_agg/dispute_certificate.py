"""Check the certificate that lets a party prove a dispute: a list of survivors that many signed.

`parley.secure_agg.pairwise_party.MaskingParty.prove` explains why such a list is enough.
"""

from __future__ import annotations

from collections.abc import Sequence

from parley.secure_agg.confirmation_threshold import count_signers_near, count_signers_needed
from parley.secure_agg.interface import TooFewSurvivors
from parley.secure_agg.messages import Bytes, Confirmations, RoundStart, Survivors, decode
from parley.secure_agg.pair_keys import PairKeyComputer
from parley.secure_agg.protocol_digests import compute_plan_digest
from parley.secure_agg.protocol_parameters import RunParameters
from parley.secure_agg.survivor_confirmation import find_true_signers


def check_certificate(
    run: RunParameters,
    neighbours: Sequence[int],
    certificate: tuple[Bytes, Bytes, Bytes],
    identities: tuple[bytes, ...],
    work: PairKeyComputer,
) -> None:
    """Check that enough parties signed a list of this run to let a party prove a dispute.

    The certificate is a RoundStart, its Survivors and the Confirmations of that list.

    Raises:
        TooFewSurvivors: too few of them are neighbours of this party's neighbours.
    """
    plan, survivors, confirmations = certificate
    agreed = compute_plan_digest(run, decode(run, plan, RoundStart))
    listed = decode(run, survivors, Survivors).survivors
    message = decode(run, confirmations, Confirmations)
    signers = find_true_signers(run, agreed, listed, message, identities, work)
    got, least = count_signers_near(run, neighbours, signers), count_signers_needed(run)
    if got < least:
        raise TooFewSurvivors(
            f"Expected >= {least} neighbours of each neighbour to sign a list before a key is "
            f"revealed, got {got}."
        )
