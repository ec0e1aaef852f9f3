"""Estimate a simulation's memory, and its seconds on this machine.

No data are read. Seconds are measured: a few parties with made-up records compute one round, and
their time is multiplied by the number of parties.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.party_sampling import EVERYONE
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.party_block import PartyBlock
from parley.client.data.threaded_chunks import PIECE_BYTES
from parley.privacy.sampling.random_stream import Randomness
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job import Job
from parley.server.records.plan_summary_parts import PlannedSimulation
from parley.simulations.data.memory_check import check_memory_limit, get_memory_limit_mib

_MIB = 1 << 20
_PROCESS_MIB = {"linear": 150, "nothing": 150, "network": 350}
"""MiB of the interpreter and libraries, by model type. torch is a large one."""
_PARTY_BYTES = 1100
"""Bytes per party in addition to its records, measured between 20,000 and 100,000 parties."""
_MAX_WORK = 10**8
"""Maximum work of the timed parties: records times parameters times steps, about a second."""


def estimate_simulation(
    job: Job, algorithm: FederatedAlgorithm, release: ReleasePlan, federation: Federation
) -> PlannedSimulation | None:
    """Estimate memory and seconds. Return None if the parties are other processes.

    Raises:
        JobError: the job states less memory than the records take.
    """
    if not job.run.in_process:
        return None
    item = 4 if job.model.feature_map else 8
    records = federation.total_records * (algorithm.model.features * item + 8)
    if job.run.memory != "auto":  # by itself it follows the machine, and a run may be elsewhere
        check_memory_limit(
            job,
            record_bytes=item * algorithm.model.features,
            largest_party=federation.max_records,
            total=federation.total_records,
        )
    limit = get_memory_limit_mib(job)
    mapped = records > limit * _MIB
    # Rows lie twice in memory while they are prepared, in the run that writes the file, too.
    held = (0 if mapped else 2 * records) + federation.parties * _PARTY_BYTES
    # Contributions are added up piece by piece; the masked protocol has all of them at once.
    each = algorithm.dimension * (8 + release.encoding.ring_bits // 8)
    every = federation.parties * each + records
    whole = job.secure_aggregation.backend == "masked"
    held += every if whole else min(every, max(PIECE_BYTES, every // federation.parties))
    return PlannedSimulation(
        data_mib=records / _MIB,
        limit_mib=limit,
        mapped=mapped,
        memory_mib=_PROCESS_MIB[job.model.learns] + held / _MIB,
        # Most of a masked round is the protocol's, of which nothing is timed. No app is called.
        seconds_a_round=None
        if whole or job.algorithm.data_reading
        else _measure_seconds(algorithm, release, federation),
    )


def _measure_seconds(
    algorithm: FederatedAlgorithm, release: ReleasePlan, federation: Federation
) -> float | None:
    """Measure a few parties' contributions and encoding; return the seconds of all parties."""
    known: Any = algorithm
    records, width = federation.min_records, algorithm.model.features
    attendance = getattr(known, "attendance", EVERYONE)
    if not attendance.includes_everyone:  # those who are in a round alone compute
        known = replace(known, attendance=EVERYONE)
    steps = known.training.steps if hasattr(known, "training") else 1
    work = records * max(algorithm.dimension, width) * steps
    most = min(_MAX_WORK // work, PIECE_BYTES // (8 * records * width))
    few = int(min(most, max(2, federation.parties * attendance.fraction)))
    if few < 2:
        return None  # one party is more than is worth making up
    rows = np.full((few * records, width), 1 / np.sqrt(width))
    block = PartyBlock(
        features=rows,
        labels=np.ones(len(rows), dtype=np.int64 if algorithm.model.classes else np.float64),
        offsets=np.arange(few + 1) * records,
    )
    state, randomness = known.init(), Randomness.from_entropy()

    def seconds() -> float:
        began = time.perf_counter()
        own = known.local(state, block, release, randomness)
        release.encoding.encode(own.values).sum(axis=0)
        return time.perf_counter() - began

    seconds()  # libraries warm up
    taken = min(seconds(), seconds())
    return float(taken * federation.parties * attendance.fraction / few)
