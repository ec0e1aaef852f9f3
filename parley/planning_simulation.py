"""What a plan says of the simulation itself: memory, and seconds on this machine.

Nothing is read. Seconds are measured: a few parties with made-up records go through one round's
computation, and their time is taken times the number of parties.
"""

from __future__ import annotations

import time

import numpy as np

from parley.client.algorithms.base import FederatedAlgorithm, InPieces
from parley.client.contract.plan import ReleasePlan
from parley.client.data.block import PartyBlock
from parley.client.data.chunks import PIECE_BYTES
from parley.privacy.sampling.randomness import Randomness
from parley.server.jobs.job import Job
from parley.server.planning.federation import Federation
from parley.server.records.outlook import SimulationOutlook
from parley.simulations.data.keeping import memory_mib

__all__ = ["simulation_ahead"]

_MIB = 1 << 20
_PROCESS = 150
"""MiB of the interpreter and libraries, without torch."""
_A_PARTY = 1100
"""Bytes of a party that a run takes beside its records: between 20,000 and 100,000 of them."""


def simulation_ahead(
    job: Job, algorithm: FederatedAlgorithm, release: ReleasePlan, federation: Federation
) -> SimulationOutlook | None:
    """Memory and seconds; None where the parties are other processes."""
    if not job.run.in_process:
        return None
    item = 4 if job.model.feature_map else 8
    data = federation.total_records * (algorithm.model.features * item + 8)
    limit = memory_mib(job)
    mapped = data > limit * _MIB
    # Rows lie twice in memory while they are prepared, in the run that writes the file, too.
    held = (0 if mapped else 2 * data) + federation.parties * _A_PARTY
    streamed = isinstance(algorithm, InPieces)
    each = algorithm.dimension * (8 + release.encoding.ring_bits // 8)
    held += 4 * PIECE_BYTES if streamed else federation.parties * each
    return SimulationOutlook(
        data_mib=data / _MIB,
        limit_mib=limit,
        mapped=mapped,
        memory_mib=_PROCESS + held / _MIB,
        seconds_a_round=_measured(algorithm, release, federation) if streamed else None,
    )


def _measured(
    algorithm: FederatedAlgorithm, release: ReleasePlan, federation: Federation
) -> float | None:
    """Seconds of all parties' gradients and their encoding, by those of a few."""
    records, width = federation.min_records, algorithm.model.features
    few = max(2, min(federation.parties, PIECE_BYTES // (2 * records * width * 8)))
    if few * records * width > PIECE_BYTES // 8:
        return None  # one party is more than is worth making up
    rows = np.full((few * records, width), 1 / np.sqrt(width))
    block = PartyBlock(
        features=rows,
        labels=np.ones(len(rows), dtype=np.int64 if algorithm.model.classes else np.float64),
        offsets=np.arange(few + 1) * records,
    )
    state, randomness = algorithm.init(), Randomness.from_entropy()

    def work() -> float:
        began = time.perf_counter()
        own = algorithm.local(state, block, release, randomness)
        release.encoding.encode(own.values).sum(axis=0)
        return time.perf_counter() - began

    work()  # libraries warm up
    return float(min(work(), work()) * federation.parties / few)
