"""The ideal sum: what changes a round's result, without the protocol that hides it.

Keys, shares and masks cancel exactly, so the sum over the survivors mod 2^b, the thresholds and the
byte accounting are all there is to compute. For simulation only: the caller sees every vector.

    >>> import numpy as np
    >>> ideal = IdealSum(build_simulated_parameters(parties=3, min_survivors=2))
    >>> vectors = np.array([[1, 2], [3, 4], [5, 2**32 - 1]], dtype=np.uint32)
    >>> ideal.sum(vectors, round_number=1, dropped={}).total.tolist()
    [9, 5]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from parley.secure_agg.encoding import Ring, get_ring_dtype
from parley.secure_agg.interface import (
    DropStage,
    LocalProtocolError,
    SumResult,
)
from parley.secure_agg.mask_graph import compute_commitments_digest, compute_nonce_commitment
from parley.secure_agg.primitives import digest
from parley.secure_agg.protocol_parameters import STAGES, RunParameters
from parley.secure_agg.round_outcome import compute_outcome


def build_simulated_parameters(*, seed: bytes = b"", **options: Any) -> RunParameters:
    """Parameters of a run in one process; its identity and nonces come from `seed`, publicly.

    The options are those of `RunParameters.choose`.
    """
    run_id = digest(b"parley/simulated run", seed)[:16]
    return with_simulated_beacon(RunParameters.choose(run_id=run_id, **options))


def build_simulated_nonces(run: RunParameters) -> dict[int, bytes]:
    """What the parties of one process commit to and reveal: public, so that runs repeat."""
    if not run.sparse:
        return {}
    return {
        i: digest(b"parley/simulated nonce", run.run_id, i.to_bytes(4, "big"))
        for i in range(run.parties)
    }


def with_simulated_beacon(run: RunParameters) -> RunParameters:
    """Parameters after the set-up of `build_simulated_nonces`: what `MaskedSum` comes to, too."""
    nonces = build_simulated_nonces(run)
    if not nonces:
        return run
    given = compute_commitments_digest(
        {i: compute_nonce_commitment(i, nonce) for i, nonce in nonces.items()}
    )
    return replace(run, commitments=given).with_beacon(nonces)


def check_vectors(run: RunParameters, vectors: Ring, round_number: int, last_round: int) -> None:
    """Refuse vectors or a round number that must not be summed."""
    if vectors.dtype != get_ring_dtype(run.ring_bits):
        raise LocalProtocolError(
            f"Expected vectors of {get_ring_dtype(run.ring_bits)}, got {vectors.dtype}."
        )
    if vectors.ndim != 2 or vectors.shape[0] != run.parties or not 0 < vectors.shape[1] < 2**32:
        raise LocalProtocolError(
            f"Expected vectors of shape [{run.parties}, d >= 1], got {vectors.shape}."
        )
    _check_round(round_number, last_round)


def _check_round(round_number: int, last_round: int) -> None:
    if not last_round < round_number < 2**32:
        raise LocalProtocolError(
            f"Expected a round number above {last_round} and below 2^32, got {round_number}."
        )


class IdealSum:
    """A `SecureSum` that adds in the open, with the protocol's thresholds and byte counts."""

    name: ClassVar[Literal["ideal"]] = "ideal"

    def __init__(self, parameters: RunParameters) -> None:
        """A sum for one run."""
        self.parameters = parameters
        self._last_round = self._wire_round = 0

    def sum(
        self, vectors: Ring, *, round_number: int, dropped: Mapping[int, DropStage]
    ) -> SumResult:
        """See `interface.SecureSum.sum`."""
        check_vectors(self.parameters, vectors, round_number, self._last_round)
        known = self.simulate_round(vectors.shape[1], round_number=round_number, dropped=dropped)
        total: Ring = np.add.reduce(vectors, axis=0, dtype=vectors.dtype)
        for j, stage in dropped.items():
            if stage is DropStage.BEFORE_VECTOR:
                total -= vectors[j]
        return replace(known, total=total)

    def simulate_round(
        self, dimension: int, *, round_number: int, dropped: Mapping[int, DropStage]
    ) -> SumResult:
        """What `sum` gives for vectors of `dimension` d, all but the total, which is empty.

        For a simulation that adds the survivors' vectors up by itself, piece by piece.
        """
        run = self.parameters
        _check_round(round_number, self._last_round)
        self._last_round = round_number
        self._wire_round += 1
        survivors, up, down = compute_outcome(run, dimension, dropped, number=self._wire_round)
        nothing: Ring = np.empty(0, dtype=get_ring_dtype(run.ring_bits))
        return SumResult(
            total=nothing, survivors=survivors, bytes_up=up, bytes_down=down, stages=STAGES
        )

    def build_full_result(self, total: Ring, *, round_number: int) -> SumResult:
        """What `sum` gives for vectors of all parties that add up to `total` `[d]`, none dropped.

        For a simulation that has the sum already.
        """
        return replace(
            self.simulate_round(total.size, round_number=round_number, dropped={}), total=total
        )
