"""What a party answers a plan with, on its own state: its vector under all masks of the round.

    y_i = x_i + PRG(b_i) ± Σ_j PRG(k_ij)  mod 2^b, + where i < j          (Bonawitz et al. 2017)

Every check stands before the first change of the state: a plan that is refused costs nothing.
"""

from __future__ import annotations

import numpy as np

from parley.secure_agg.codec import decode, header
from parley.secure_agg.edges import EdgeWork
from parley.secure_agg.encoding import Ring, ring_dtype
from parley.secure_agg.flags import unpack_mask
from parley.secure_agg.interface import DropoutPolicy, LocalProtocolError, RemoteProtocolError
from parley.secure_agg.joining import check_company
from parley.secure_agg.mask_job import MaskJob, VectorBuffer
from parley.secure_agg.messages import Bytes, RoundStart, Vector
from parley.secure_agg.outcome import ENVELOPE_BYTES
from parley.secure_agg.parameters import Policy
from parley.secure_agg.preparing import ratchet
from parley.secure_agg.state import MaskingState, OpenRound, Phase
from parley.secure_agg.statements import plan_digest


def open_round(
    state: MaskingState, data: Bytes, vector: Ring, context: bytes, policy: Policy, work: EdgeWork
) -> MaskJob:
    """Opens the round of a plan; see `Party.on_plan`.

    Args:
        state: of a party that takes a plan.
        data: a RoundStart.
        vector: `[d]` ring elements.
        context: 32 bytes, what the caller agreed to release.
        policy: the party's.
        work: shared between parties of one process.
    """
    run = state.run
    if vector.dtype != ring_dtype(run.ring_bits) or vector.ndim != 1:
        raise LocalProtocolError(
            f"Expected a vector [d] of {ring_dtype(run.ring_bits)}, got {vector.dtype} of "
            f"shape {vector.shape}."
        )
    plan = decode(run, data, RoundStart)
    number = plan.round_number
    if number <= state.last_round:
        raise RemoteProtocolError(f"Expected a round above {state.last_round}, got {number}.")
    if plan.dimension != vector.size or plan.context != context:
        raise RemoteProtocolError(
            f"Expected dimension {vector.size} and the agreed context, got dimension "
            f"{plan.dimension} and {'that' if plan.context == context else 'another'}."
        )
    flags = unpack_mask(plan.participants, run.parties)
    members = np.flatnonzero(flags[state.near]).tolist() if state.near else []
    if not flags[state.index]:
        raise RemoteProtocolError(f"Expected party {state.index} among the participants.")
    check_company(run, policy, "participating", parties=int(flags.sum()), neighbours=len(members))
    for j in state.disputed:
        if flags[j]:  # no mask with it would cancel
            raise RemoteProtocolError(
                f"Expected a round without party {j}, whose ciphertext does not match, got one "
                "with it."
            )
    robust = run.dropouts is DropoutPolicy.ROBUST
    if len(plan.envelopes) != robust * ENVELOPE_BYTES * len(members):
        raise RemoteProtocolError(
            f"Expected {robust * len(members)} envelopes, got "
            f"{len(plan.envelopes) // ENVELOPE_BYTES}."
        )
    if robust and number not in state.prepared:
        raise RemoteProtocolError(f"Expected a round that was prepared, got {number}.")
    prepared = state.prepared.pop(number) if robust else ratchet(state, number, work)
    for stale in [n for n in state.prepared if n < number]:
        del state.prepared[stale]
    agreed = plan_digest(run, plan)
    pair_keys = [work.mask_key(prepared.pair_keys[n], agreed) for n in members]
    halves = b"".join(prepared.halves[n] for n in members) if prepared.halves else b""
    head = header(run, Vector.kind, state.index, number)
    job = MaskJob(VectorBuffer(head, vector, halves), prepared.seed)
    for n, key in zip(members, pair_keys, strict=True):
        (job.plus if state.index < state.near[n] else job.minus).append(key)
    state.last_round, state.kem_seed = number, b""  # from here nothing can be proved
    state.current = None
    state.phase = Phase.IDLE
    if robust:
        state.phase = Phase.MASKED
        state.current = OpenRound(
            number=number,
            plan_digest=agreed,
            participants=plan.participants,
            seed=prepared.seed,
            members=members,
            pair_keys=pair_keys,
            envelope_keys=[prepared.envelope_keys[n] for n in members],
            envelopes=plan.envelopes,
        )
    return job
