"""When a party may give its ML-KEM key away to prove what it said about a ciphertext.

The key opens what every neighbour h sealed to it in round 1, once X25519 is broken. So it is given
before this party sent any vector, after which it sends none, and only where those who can do the
same hold too few shares of any h: who signed a survivors' list has sent a vector and erased its
key, so that of h's k neighbours only those who did not sign can give theirs. With the corrupt ones

    k − |signers among N(h)| + min(c, 2t − k − 1) < t        for every neighbour h of this party.

More than 2t − k − 1 corrupt neighbours are excluded by the choice of k and t (`graph`), on a
complete graph as on any other. docs/protocol.md, Lemma 3.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.answers import true_signers
from parley.secure_agg.codec import decode
from parley.secure_agg.edges import EdgeWork
from parley.secure_agg.interface import RemoteProtocolError, TooFewSurvivors
from parley.secure_agg.messages import Bytes, Confirmations, RoundStart, Survivors
from parley.secure_agg.parameters import RunParameters
from parley.secure_agg.statements import plan_digest


def signers_needed(run: RunParameters) -> int:
    """How many of each neighbour's k neighbours must have signed a list of the run."""
    k, t = run.degree, run.threshold
    return k - t + min(run.corrupt, 2 * t - k - 1) + 1


def signers_near(run: RunParameters, near: Sequence[int], signers: NDArray[np.bool_]) -> int:
    """The fewest signers among the neighbours of any of the parties in `near`."""
    return int(signers[run.neighbours[list(near)]].sum(axis=1).min(initial=run.degree))


def check_certificate(
    run: RunParameters,
    near: Sequence[int],
    certificate: tuple[Bytes, Bytes, Bytes],
    identities: tuple[bytes, ...],
    work: EdgeWork,
) -> None:
    """Whether a list of this run that enough parties signed lets a party prove a dispute.

    The certificate is a RoundStart, its Survivors and the Confirmations of that list.
    """
    if not run.confirm_survivors:
        raise RemoteProtocolError(
            "Expected a run with confirmed lists to prove in, got one without confirmations."
        )
    plan, survivors, confirmations = certificate
    agreed = plan_digest(run, decode(run, plan, RoundStart))
    listed = decode(run, survivors, Survivors).survivors
    message = decode(run, confirmations, Confirmations)
    signers = true_signers(run, agreed, listed, message, identities, work)
    got, least = signers_near(run, near, signers), signers_needed(run)
    if got < least:
        raise TooFewSurvivors(
            f"Expected >= {least} neighbours of each neighbour to have signed a list before a key "
            f"is given away, got {got}."
        )
