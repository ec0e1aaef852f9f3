"""Create a folder for every party of a job: records, policy, identity, and later a ledger.

It does on one machine what `parley deploy init` does for several. The job's data are read and split
as the fast engine splits them. Each party's prepared rows are written only to its folder. Its
policy accepts only this job.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from parley.client.contract.roster import Deployment, RosterParty, render_deployment
from parley.client.data.party_block import PartyBlock
from parley.client.party.dataset_config import APP_KNOWS, DatasetConfig
from parley.client.party.owner_policy import OwnerPolicy
from parley.client.party.policy_writing import format_policy
from parley.safe_io.file_writing import replace_file, write_file
from parley.secure_agg.primitives import KEY_BYTES, derive_signing_public_key
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.planning.budget_check import build_budgets
from parley.server.planning.run_stages import get_rounds_stage, list_extra_stages
from parley.server.records.run_folder import resolve_paths
from parley.server.rounds.party_facts import format_served_name
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.data.simulated_experiment import Experiment

FINGERPRINT = "fingerprint"
"""File next to the parties' folders: the data's name in the server's ledger."""

COMPONENTS = "components.safetensors"
"""File next to the parties' folders: public components that the launcher took from held-out rows.
"""


def prepare_parties(job: Job, folder: Path, *, experiment: Experiment | None = None) -> Deployment:
    """Create `folder/party-0`, `folder/party-1`, … and return their roster.

    Raises:
        JobError: what is wrong with the job for these data.
        DataError, SchemaError, PartitionError: what is wrong with the data.
    """
    if job.data.blocks:
        raise JobError(
            "Expected no data.blocks with parties that are created here, whose rows are "
            "prepared, got some. Use run.engine = 'fast', or real parties with a block-column."
        )
    experiment = experiment or load_experiment(job)
    job = job.resolve_auto(experiment.federation, experiment.data.classes)
    consent = _build_policy(job, experiment)
    folder.mkdir(parents=True, exist_ok=True)
    block, parties = experiment.block, []
    for index, home in enumerate(party_folders(folder, block.parties)):
        home.mkdir(mode=0o700)
        own = block.take(np.array([index]))
        if not job.algorithm.data_reading:
            _write_records(home / "records.npz", own)
        if job.evaluation.is_requested:
            _write_records(home / "held-out.npz", experiment.held_out.take(np.array([index])))
        write_file(home / "party.toml", format_policy(_name_app_data(consent, block, index)))
        key = os.urandom(KEY_BYTES)
        write_file(home / "identity.key", key.hex() + "\n", mode=0o600)
        parties.append(RosterParty(name=home.name, identity=derive_signing_public_key(key)))
    deployment = Deployment(server_address="", parties=tuple(parties))
    write_roster(deployment, folder)
    write_file(folder / FINGERPRINT, experiment.data.fingerprint + "\n")
    if experiment.components is not None:
        write_file(folder / COMPONENTS, save({"components": experiment.components}))
    return deployment


def _write_records(path: Path, block: PartyBlock) -> None:
    with replace_file(path, mode=0o600) as file:
        np.savez(file, features=block.features, labels=block.labels)


def party_folders(folder: Path, count: int) -> list[Path]:
    """Return the paths of the parties' folders, by index."""
    return [folder / f"party-{index}" for index in range(count)]


def write_roster(deployment: Deployment, folder: Path) -> None:
    """Write the roster next to the parties' folders and into each of them."""
    text = render_deployment(deployment)
    for home in (folder, *party_folders(folder, len(deployment.parties))):
        write_file(home / "deployment.toml", text)


def _name_app_data(consent: OwnerPolicy, block: PartyBlock, index: int) -> OwnerPolicy:
    """Return the policy with the file that the party's own app reads, if it was given one."""
    path = getattr(block, "paths", {}).get(index)
    if path is None:
        return consent
    data = {name: each.model_copy(update={"app_data": path}) for name, each in consent.data.items()}
    return consent.model_copy(update={"data": data})


def _build_policy(job: Job, experiment: Experiment) -> OwnerPolicy:
    """Build a policy that accepts exactly this job."""
    _, stages = experiment.plan_inputs.build(job)
    settings, plan = job.secure_aggregation, get_rounds_stage(stages).plan
    plans = [stage.plan for stage in stages]
    guarantees = [guarantee for each in plans for guarantee in each.guarantees]
    own, *others = build_budgets(job, plan, experiment.data.fingerprint)
    facts: dict[str, Any] = {
        **({"app-data": APP_KNOWS} if job.algorithm.data_reading else {"prepared": "records.npz"}),
        "held-out": "held-out.npz" if job.evaluation.is_requested else "",
        "classes": 0 if job.algorithm.data_reading else int(experiment.model.classes),
        "map": experiment.data.features.get("digest", ""),
        "epsilon": own.epsilon,
        "delta": own.delta,
        "unit": own.unit,
        "neighbouring": own.neighbouring,
        "certificate": str(own.certificate),
        "reserved-delta": own.reserved_delta,
    }
    for each in others:
        facts |= {f"{each.unit}-epsilon": each.epsilon, f"{each.unit}-delta": each.delta}
    dataset = DatasetConfig.model_validate(facts)
    return OwnerPolicy.model_validate(
        {
            "min-survivors": plan.min_survivors,
            "colluders-at-least": job.corrupt,
            "noise-points": sorted({str(each.noise_point) for each in guarantees}),
            "insist-on-inner": plan.get_charging_guarantee(plan.primary.unit) is plan.primary,
            # The owner of a grid that the job sets by hand is the parties' owner too.
            "insist-on-fine-grid": (settings.ring_bits, settings.scale_bits) == ("auto", "auto"),
            "laws": sorted({each.mechanism.law for each in guarantees}),
            "calibrations": sorted({each.calibration for each in guarantees}),
            "algorithms": [
                resolve_paths(job).algorithm.kind,
                *(each.plan.algorithm for each in list_extra_stages(stages)),
            ],
            "models": [job.model.kind],
            "largest-model": max(each.dimension for each in plans),
            "allow-seeded-noise": plan.seeded,
            "seed": job.seed,
            "device": job.run.device,
            "data": {format_served_name(job): dataset},
        }
    )
