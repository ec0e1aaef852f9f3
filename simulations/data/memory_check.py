"""Measure a simulation's memory, and check that it holds the records that are processed at once."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from parley.client.data.party_block import PartyBlock
from parley.client.data.threaded_chunks import CHUNK_BYTES
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError

MIB = 1 << 20


def compute_data_mib(block: PartyBlock) -> float:
    """Return the MiB of the parties' records."""
    return (block.features.nbytes + block.labels.nbytes) / MIB


def get_peak_mib() -> float:
    """Return the maximum MiB that this process has held, including mapped files.

    On Linux, `ru_maxrss` includes what the parent process held; VmHWM counts only this process.
    """
    return _read_status_mib("VmHWM:")


def get_current_mib() -> float:
    """Return the MiB that this process holds now, or its maximum if the system reports no more."""
    return _read_status_mib("VmRSS:")


def _read_status_mib(key: str) -> float:
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(key):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def check_memory(job: Job, block: PartyBlock) -> None:
    """Check that a job's memory holds the records processed at once. Raises JobError."""
    largest, total = int(block.sizes.max()), len(block.features)
    check_memory_limit(job, record_bytes=block.record_bytes, largest_party=largest, total=total)


def get_memory_limit_mib(job: Job) -> int:
    """Return the MiB that a run's records may take: the job's limit, or half of this machine's
    memory.
    """
    if job.run.memory != "auto":
        return job.run.memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 // MIB


def check_memory_limit(job: Job, *, record_bytes: int, largest_party: int, total: int) -> None:
    """Check that a job's memory holds the records that are processed at once.

    These are the records of the largest party, or a core's share of all.

    Raises:
        JobError: it does not; the message names the memory that does.
    """
    least = max(largest_party * record_bytes, min(CHUNK_BYTES, total * record_bytes))
    needed, limit = -(-least // MIB), get_memory_limit_mib(job)
    if needed > limit:
        raise JobError(
            f"Expected run.memory of at least {needed} MiB, for the records that are processed "
            f"at once (the largest party holds {largest_party}), got {limit} MiB."
        )
