"""The summary so far of a run that was interrupted: from its job, its rounds and its ledger.

A run writes `summary.json` when it ends. Before that its rounds say what has been spent, its job
what was planned, and its ledger's entries which noise was drawn; what none of them says is None.
The ledger may hold one charge more than the rounds: a round that was reserved and never logged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parley.client.contract.file_reading import text_of
from parley.privacy.accounting.guarantee import Adversary
from parley.privacy.accounting.noise_points import point_named
from parley.privacy.ledger.ledger import Ledger
from parley.server.jobs.job import Job
from parley.server.jobs.privacy import UnitBudget
from parley.server.records.guarantee_facts import AdversaryAccount
from parley.server.records.round_line import Account, RoundLine
from parley.server.records.summarising import facts_of_job, facts_of_rounds
from parley.server.records.summary import RunSummary

_FIGURES = ("loss", "accuracy")


def summary_so_far(folder: Path, job: Job, lines: Sequence[RoundLine]) -> RunSummary:
    """What a run came to by its last round, with status `interrupted`.

    Raises:
        LedgerError: the run's ledger can't be read.
    """
    last, run_id = lines[-1], _run_id(folder)
    noise_of = _drawn(folder, job, run_id)
    shown = {name: value for line in lines for name, value in line.simulation_only.items()}
    drawn = noise_of.get(str(job.budgets[0].unit), {})
    grid = drawn.get("grid_scale")
    least = job.parties.min_records
    facts: dict[str, Any] = {
        "format": 2,
        **facts_of_job(job),
        "run_dir": str(folder),
        "run_id": run_id,
        "created": "",
        "parley_version": "",
        "engine": job.run.engine,
        "status": "interrupted",
        "min_records": drawn.get("public_n") if least == "auto" else least,
        "rounds_done": last.round,
        "guarantees": [
            _guarantee(job, asked, account, noise_of)
            for asked, account in zip(job.budgets, last.guarantees, strict=False)
        ],
        "secure_aggregation": {
            **facts_of_rounds(lines),
            "ring_bits": None,
            "scale_bits": None if grid is None else round(math.log2(grid)),
            "inflation": drawn.get("grid_inflation"),
            "min_survivors": drawn.get("min_survivors"),
            "backend": job.secure_aggregation.backend,
        },
        # The baseline is computed when a run ends.
        **{name: shown.get(name) for name in _FIGURES},
        "seconds": sum(line.seconds for line in lines),
        "simulation_only": _FIGURES,
    }
    return RunSummary.model_validate(facts)


def _run_id(folder: Path) -> str:
    path = folder / "run-id"
    return text_of(path).strip() if path.exists() else folder.resolve().name


def _drawn(folder: Path, job: Job, run_id: str) -> dict[str, Mapping[str, Any]]:
    """Unit → facts of the run's last entry; empty where its ledger is not a file here."""
    path = Path(job.privacy.ledger) if job.privacy.ledger else folder / "ledger.sqlite"
    if not (path.is_file() and job.is_settled):
        return {}
    with Ledger.open(path, read_only=True) as ledger:
        entries = [recorded.entry for recorded in ledger.entries(run_id)]
    # What is ahead of the rounds, or after them, has its own noise.
    rounds = range(1, job.rounds + 1)
    return {str(each.facts["unit"]): each.facts for each in entries if each.index in rounds}


def _guarantee(
    job: Job, asked: UnitBudget, account: Account, noise_of: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """What one guarantee came to."""
    drawn = noise_of.get(str(asked.unit), {})
    point, scale = drawn.get("noise_point", ""), drawn.get("noise_parameter")
    alone = point_named(point).private_alone
    return {
        "unit": str(asked.unit),
        "neighbouring": drawn.get("neighbouring", job.privacy.neighbouring),
        "epsilon": account.epsilon_charged,
        "delta": account.delta,
        "epsilon_budget": asked.total,
        "delta_budget": asked.delta,
        "rho": account.rho,
        "epsilon_by_conversion": account.epsilon,
        "conversion": account.conversion,
        # Against the weakest adversary: which releases were ahead of the rounds isn't known here.
        "accounts": (
            AdversaryAccount(
                adversary=Adversary.READERS,
                charged=True,
                epsilon=account.epsilon_charged,
                delta=account.delta,
            ),
        ),
        "calibration": drawn.get("calibration", job.privacy.calibration),
        "clip_norm": drawn.get("clip_norm"),
        "noise": {
            "law": drawn.get("noise_law", ""),
            "scale": scale / job.parties.count if scale and not alone else scale,
            "scale_of_sum": scale,
            "expected_norm": None,
            "sensitivity": None,
            "point": point,
            "seeded": job.seed is not None,
        },
    }
