"""Summarise a run that has not ended: its job, its rounds so far and its ledger's entries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parley.privacy.accounting.threat_model import Adversary, find_noise_point
from parley.privacy.ledger.ledger import Ledger
from parley.safe_io.file_reading import read_text
from parley.server.jobs.job import Job
from parley.server.jobs.privacy_section import UnitBudget
from parley.server.records.guarantee_facts import AdversaryAccount
from parley.server.records.round_line import RoundAccount, RoundLine
from parley.server.records.run_summary import RunSummary
from parley.server.records.summary_builder import build_job_fields

_FIGURES = ("loss", "accuracy")


def build_partial_summary(folder: Path, job: Job, lines: Sequence[RoundLine]) -> RunSummary:
    """Return the summary up to the last round, with status `interrupted`.

    Raises:
        LedgerError: the run's ledger cannot be read.
    """
    last, run_id = lines[-1], _read_run_id(folder)
    noise_of = _load_entry_facts(folder, job, run_id)
    shown = {name: value for line in lines for name, value in line.simulation_only.items()}
    drawn = noise_of.get(str(job.budgets[0].unit), {})
    grid = drawn.get("grid_scale")
    least = job.parties.min_records
    facts: dict[str, Any] = {
        "format": 2,
        **build_job_fields(job),
        "run_dir": str(folder),
        "run_id": run_id,
        "created": "",
        "parley_version": "",
        "engine": job.run.engine,
        "status": "interrupted",
        "min_records": drawn.get("public_n") if least == "auto" else least,
        "rounds_done": last.round,
        "guarantees": [
            _build_guarantee(job, asked, account, noise_of)
            for asked, account in zip(job.budgets, last.guarantees, strict=False)
        ],
        "secure_aggregation": {
            "bytes_up": sum(line.bytes_up for line in lines),
            "bytes_down": sum(line.bytes_down for line in lines),
            "ring_bits": None,
            "scale_bits": None if grid is None else round(math.log2(grid)),
            "inflation": drawn.get("grid_inflation"),
            "min_survivors": drawn.get("min_survivors"),
            "backend": job.secure_aggregation.backend,
        },
        # The baseline is computed only when a run ends.
        **{name: shown.get(name) for name in _FIGURES},
        "seconds": sum(line.seconds for line in lines),
        "simulation_only": _FIGURES,
    }
    return RunSummary.model_validate(facts)


def _read_run_id(folder: Path) -> str:
    path = folder / "run-id"
    return read_text(path).strip() if path.exists() else folder.resolve().name


def _load_entry_facts(folder: Path, job: Job, run_id: str) -> dict[str, Mapping[str, Any]]:
    """Return unit → facts of the run's last entry; empty if its ledger is not a file here."""
    path = Path(job.privacy.ledger) if job.privacy.ledger else folder / "ledger.sqlite"
    if not (path.is_file() and job.is_resolved):
        return {}
    with Ledger.open(path, read_only=True) as ledger:
        entries = [recorded.entry for recorded in ledger.list_entries(run_id)]
    # Releases before or after the rounds have their own noise.
    rounds = range(1, job.rounds + 1)
    return {str(each.facts["unit"]): each.facts for each in entries if each.index in rounds}


def _build_guarantee(
    job: Job,
    budget: UnitBudget,
    account: RoundAccount,
    entry_facts: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the cost of one guarantee."""
    drawn = entry_facts.get(str(budget.unit), {})
    point, scale = drawn.get("noise_point", ""), drawn.get("noise_parameter")
    alone = find_noise_point(point).is_locally_private
    return {
        "unit": str(budget.unit),
        "neighbouring": drawn.get("neighbouring", job.privacy.neighbouring),
        "epsilon": account.epsilon_charged,
        "delta": account.delta,
        "epsilon_budget": budget.total,
        "delta_budget": budget.delta,
        "rho": account.rho,
        "epsilon_by_conversion": account.epsilon,
        "conversion": account.conversion,
        # The weakest adversary, because the releases ahead of the rounds are not known here.
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
