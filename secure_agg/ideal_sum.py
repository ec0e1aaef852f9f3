"""`IdealSum`: a round's result without the protocol that hides the vectors, for simulations.

Keys, shares and masks cancel exactly. What remains to compute is the sum over the survivors mod
2^b, the thresholds and the byte accounting. Use it only in simulations: the caller sees each
vector.

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
from parley.secure_agg.interface import DropStage, LocalProtocolError, SumResult
from parley.secure_agg.mask_graph import digest_nonces
from parley.secure_agg.predicted_outcome import compute_outcome
from parley.secure_agg.primitives import digest
from parley.secure_agg.protocol_parameters import STAGES, RunParameters


def build_simulated_parameters(*, seed: bytes = b"", **options: Any) -> RunParameters:
    """Build the parameters of a run in one process; its identity and nonces follow publicly from
    `seed`.

    The options are those of `RunParameters.choose`.
    """
    run_id = digest(b"parley/simulated run", seed)[:16]
    return with_simulated_beacon(RunParameters.choose(run_id=run_id, **options))


def build_simulated_nonces(run: RunParameters) -> dict[int, bytes]:
    """Return the nonces that simulated parties commit to: public, so that runs repeat."""
    if not run.sparse:
        return {}
    return {
        i: digest(b"parley/simulated nonce", run.run_id, i.to_bytes(4, "big"))
        for i in range(run.parties)
    }


def with_simulated_beacon(run: RunParameters) -> RunParameters:
    """Return the parameters after a set-up with `build_simulated_nonces`, as `MaskedSum` obtains
    them.
    """
    nonces = build_simulated_nonces(run)
    if not nonces:
        return run
    return replace(run, commitments=digest_nonces(nonces)).with_beacon(nonces)


def check_vectors(run: RunParameters, vectors: Ring, round_number: int, last_round: int) -> None:
    """Check the vectors and the round number of a sum.

    Raises:
        LocalProtocolError: wrong dtype or shape, or a round number that is not above the last one.
    """
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
    """`SecureSum` that adds unmasked vectors, with the protocol's thresholds and byte counts."""

    name: ClassVar[Literal["ideal"]] = "ideal"

    def __init__(self, parameters: RunParameters) -> None:
        """Create a sum for one run."""
        self.parameters = parameters
        self._last_round = self._wire_round = 0

    def sum(
        self, vectors: Ring, *, round_number: int, dropped: Mapping[int, DropStage]
    ) -> SumResult:
        """Return the sum over the survivors; see `interface.SecureSum.sum`."""
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
        """Return what `sum` returns for vectors of `dimension` d, but with an empty total.

        For a simulation that adds the survivors' vectors itself, piece by piece.
        """
        run = self.parameters
        _check_round(round_number, self._last_round)
        self._last_round = round_number
        self._wire_round += 1
        survivors, up, down = compute_outcome(run, dimension, dropped, number=self._wire_round)
        empty: Ring = np.empty(0, dtype=get_ring_dtype(run.ring_bits))
        traffic = {"bytes_up": up, "bytes_down": down}
        return SumResult(total=empty, survivors=survivors, **traffic, stages=STAGES)

    def build_full_result(self, total: Ring, *, round_number: int) -> SumResult:
        """Return what `sum` returns if no party drops and the vectors add up to `total` `[d]`.

        For a simulation that has the sum already.
        """
        known = self.simulate_round(total.size, round_number=round_number, dropped={})
        return replace(known, total=total)
