"""Check that each key of a job has an effect together with the others.

A changed key without effect is refused, with what it needs. An algorithm's form names the keys that
it does not use (`parley.server.jobs.algorithm_base`). This module checks keys that depend on other
keys of a job. Two kinds of keys are not refused: keys of a deployment (`run.stage-timeout`,
`privacy.dataset`), and keys that a comparison runs both ways (steps of an algorithm that makes
none, `masked-check` and `noise-shares` with the masked protocol).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from parley.privacy.mechanisms.registry import MECHANISMS
from parley.server.jobs.section_base import check_unchanged

if TYPE_CHECKING:
    from parley.server.jobs.job import Job

Condition = Callable[["Job"], bool]


def _is_scaled_by_sigma(job: Job) -> bool:
    law = MECHANISMS.get(job.noise)
    return law is None or bool(law.calibrations)


_NEEDED_SETTINGS: tuple[tuple[str, str, Condition, str], ...] = (
    ("data", "partition_column", lambda job: job.data.partition == "column",
     "data.partition = 'column'"),
    ("data", "dirichlet_alpha", lambda job: job.data.partition == "dirichlet",
     "data.partition = 'dirichlet'"),
    ("data", "sizes", lambda job: job.data.partition == "sizes", "data.partition = 'sizes'"),
    ("data", "partition", lambda job: not job.data.has_several_files,
     "one table: here each party has its own file"),
    ("data", "records", lambda job: not job.data.has_several_files,
     "one table: here each party has its own file"),
    ("data", "query_timeout", lambda job: bool(job.data.query), "data.query"),
    ("dp_sgd", "sampling_rate", lambda job: job.dp_sgd.batch_size == "auto",
     "dp-sgd.batch-size = 'auto'"),
    ("dp_sgd", "local_epochs", lambda job: job.dp_sgd.local_steps == "auto",
     "dp-sgd.local-steps = 'auto'"),
    ("dp_sgd", "momentum", lambda job: job.dp_sgd.optimiser == "sgd" or job.dp_sgd.momentum == 0,
     "dp-sgd.optimiser = 'sgd'"),
    ("dp_sgd", "server_momentum", lambda job: job.dp_sgd.server_optimiser != "averaging",
     "dp-sgd.server-optimiser = 'momentum' or 'adam'"),
    ("privacy", "record_bound", lambda job: job.privacy.unit == "both", "privacy.unit = 'both'"),
    ("privacy", "calibration", _is_scaled_by_sigma, "Gaussian noise"),
    ("run", "evaluate_every", lambda job: job.run.in_process, "run.engine = 'fast' or 'ray'"),
    ("run", "faults", lambda job: job.run.in_process, "run.engine = 'fast' or 'ray'"),
    ("run", "ray_address", lambda job: job.run.engine == "ray", "run.engine = 'ray'"),
    ("run", "workers", lambda job: job.run.engine == "ray", "run.engine = 'ray'"),
)  # fmt: skip
"""Section, key, the condition under which it has an effect, and what it needs in words."""


def check_unused_keys(job: Job) -> None:
    """Raise ValueError for a key that was changed and has no effect with the job's others."""
    for section, key, holds, needs in _NEEDED_SETTINGS:
        if not holds(job):
            check_unchanged(job, section, (key,), needs)
