"""`MaskedSum`: the whole protocol among all parties of one process, with each message as bytes.

It has the same bits, survivors, refusals and byte counts as `ideal_sum.IdealSum` with the same
parameters. A party drops at the stage that the caller names.

    >>> import numpy as np
    >>> from parley.secure_agg.ideal_sum import build_simulated_parameters
    >>> masked = MaskedSum(build_simulated_parameters(parties=3, min_survivors=2))
    >>> vectors = np.array([[1, 2], [3, 4], [5, 2**32 - 1]], dtype=np.uint32)
    >>> masked.sum(vectors, round_number=1, dropped={}).total.tolist()
    [9, 5]
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import ClassVar, Literal

from parley.secure_agg.encoding import Ring
from parley.secure_agg.ideal_sum import build_simulated_nonces, check_vectors
from parley.secure_agg.interface import DropStage, SumResult
from parley.secure_agg.mask_graph import compute_nonce_commitment
from parley.secure_agg.pair_keys import CachedPairKeyComputer, PairKeyComputer
from parley.secure_agg.pairwise_party import MaskingParty
from parley.secure_agg.pairwise_protocol import (
    LocalPartyGroup,
    TrafficCounter,
    join,
    run_secure_sum,
)
from parley.secure_agg.pairwise_server import MaskingServer
from parley.secure_agg.predicted_outcome import check_dropped
from parley.secure_agg.primitives import KEY_BYTES, derive_signing_public_key, digest, expand_seed
from parley.secure_agg.protocol_parameters import ProtocolRequirements, RunParameters


class MaskedSum:
    """`SecureSum` that runs the full protocol in one process.

    Set-up (keys, roster, pair secrets) happens once, in the first round.
    """

    name: ClassVar[Literal["masked"]] = "masked"

    def __init__(
        self,
        parameters: RunParameters,
        *,
        entropy_seed: bytes | None = None,
        shared: bool = True,
        shared_bytes: int = 1 << 27,
    ) -> None:
        """Create a sum for one run.

        Args:
            entropy_seed: None: secrets come from the operating system. Bytes: secrets are a
                deterministic expansion of them, so that a simulation repeats to the bit; `seeded`
                is then True. The sums repeat. The ciphertexts, and so the masked vectors, do not:
                encapsulation takes no seed.
            shared: False: parties share no work, as if each ran on its own machine.
            shared_bytes: largest size of the vectors, in bytes, with which an edge's mask is
                expanded only once.
        """
        if parameters.parties < 2:
            raise ValueError(f"Expected at least 2 parties, got {parameters.parties}.")
        self.parameters = parameters
        self.seeded = entropy_seed is not None
        self._entropy = os.urandom if entropy_seed is None else expand_seed(entropy_seed)
        self._shared, self._shared_bytes = shared, shared_bytes if shared else 0
        self._last_round = self._wire_round = 0
        self._endpoints: tuple[MaskingServer, LocalPartyGroup] | None = None
        self.setup_traffic = TrafficCounter()
        """Bytes of the set-up; zero before the first round."""
        self.last_traffic = TrafficCounter()
        """Bytes of the last round."""

    def __repr__(self) -> str:
        return f"<MaskedSum: {self.parameters.parties} parties, round {self._last_round}>"

    def sum(
        self, vectors: Ring, *, round_number: int, dropped: Mapping[int, DropStage]
    ) -> SumResult:
        """Return the sum over the survivors; see `interface.SecureSum.sum`."""
        run = self.parameters
        check_vectors(run, vectors, round_number, self._last_round)
        check_dropped(run, dropped)
        self._last_round, self.last_traffic = round_number, TrafficCounter()
        server, block = self._endpoints = self._endpoints or self._join_parties()
        rows = dict(enumerate(vectors))
        context = digest(b"parley/simulated round", round_number.to_bytes(4, "big"))

        self._wire_round += 1
        return run_secure_sum(
            server,
            block,
            rows,
            dimension=vectors.shape[1],
            round_number=self._wire_round,
            context=context,
            dropped=dropped,
            traffic=self.last_traffic,
            setup_traffic=self.setup_traffic,
        )

    def _join_parties(self) -> tuple[MaskingServer, LocalPartyGroup]:
        run, nonces = self.parameters, build_simulated_nonces(self.parameters)
        private = {i: self._entropy(KEY_BYTES) for i in range(run.parties)}
        identities = tuple(derive_signing_public_key(key) for key in private.values())
        policy = ProtocolRequirements(
            identities=identities, min_survivors=run.min_survivors, corrupt=run.corrupt
        )
        work = CachedPairKeyComputer() if self._shared else PairKeyComputer()
        parties = {
            i: MaskingParty(
                run=run.without_beacon,
                policy=policy,
                index=i,
                identity=identity,
                entropy=self._entropy,
                nonce=nonces.get(i, b""),
                work=work,
            )
            for i, identity in private.items()
        }
        block = LocalPartyGroup(parties=parties, work=work, shared_bytes=self._shared_bytes)
        given = {i: compute_nonce_commitment(i, nonce) for i, nonce in nonces.items()}
        server = MaskingServer(run=run, identities=identities, commitments=given)
        join(server, block, self.setup_traffic)
        return server, block
