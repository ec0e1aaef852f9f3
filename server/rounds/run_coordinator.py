"""Run a job among real parties: find parties, plan, agree on keys, run the rounds, save the model.

The order is that of `parley.simulations.engine.fast_engine`, with the parties behind messages. No
party computes on a record before the ledger has reserved the release, and the server has no data.
What a party reports about itself beforehand (columns, classes, number of records under replace-one)
is public.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.contract.agreement import Agreement
from parley.client.contract.feature_map_reference import compute_prepared_schema
from parley.client.contract.model_state_encoding import State, save_state, select_components
from parley.client.contract.roster import Deployment
from parley.client.data.schema import Schema
from parley.module_loading.plugin_table import load_attribute
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.planning.budget_check import build_budgets
from parley.server.planning.job_planner import build_model
from parley.server.planning.run_stages import (
    PlanInputs,
    RunStage,
    get_rounds_stage,
    simulate_stages,
)
from parley.server.planning.stage_planner import check_cost, plan_stages
from parley.server.records.run_folder import RunFolder
from parley.server.records.run_summary import RunSummary
from parley.server.records.summary_builder import build_run_summary
from parley.server.rounds.connected_parties import ConnectedParties
from parley.server.rounds.party_facts import (
    build_data_head,
    build_federation,
    compute_min_present,
    get_dataset_name,
)
from parley.server.rounds.party_requests import Transport
from parley.server.rounds.party_status import PartyStates
from parley.server.rounds.run_execution import execute_run, save_results
from parley.server.rounds.run_observer import Observer

_COMPONENTS = "parley.server.planning.principal_components"
"""Imported only for a network on principal components."""


def coordinate(
    job: Job,
    *,
    transport: Transport,
    deployment: Deployment,
    folder: RunFolder,
    observer: Observer | None = None,
    version: str = "",
    fingerprint: str = "",
    components: NDArray[np.float64] | None = None,
    schema: str = "",
) -> RunSummary:
    """Run a job among the parties of a deployment, or resume it; return its summary.

    Args:
        job: with as many parties as the roster.
        fingerprint: name of the data in the ledger; empty: this deployment's data of that name.
        components: `[p, k]` public principal components; None: those of `model.pca-file`.
        schema: digest that the parties' schema must have; empty: any, if all parties have the same.

    Raises:
        JobError, CalibrationError, RingTooSmall: the job does not fit the parties; nothing was
            spent.
        RunFolderError: the run began with another roster.
        BudgetExceeded: the ledger has no room for all the rounds; nothing was spent.
        TooFewSurvivors: too few parties joined, or too few owners approved; nothing was spent.
    """
    began = time.perf_counter()
    _check_deployment(job, deployment)
    folder.check_roster(deployment.id)
    job, parties = _inspect_parties(job, transport, deployment, folder, schema)
    first = parties.first
    if components is None and job.model.component_count is not None:
        load_public_components = load_attribute(f"{_COMPONENTS}:load_public_components")
        components = load_public_components(job, features=first.features)
    federation = _build_federation(job, parties, folder)
    model = build_model(job, features=first.features, classes=first.classes)
    inputs = PlanInputs(
        model=model,
        federation=federation,
        features=first.features,
        components=components,
        run_id=folder.run_id,
    )
    _, stages = plan_stages(job, inputs)
    parties = _wait_for_approvals(parties, stages, job, folder)
    data = fingerprint or f"deployment:{deployment.consortium}:{get_dataset_name(job)}"
    budgets = build_budgets(job, get_rounds_stage(stages).plan, data)
    check_cost(job, stages, budgets, inputs)
    finished = execute_run(
        stages,
        job=job,
        build_cohort=lambda stage, algorithm, start: parties.join(
            _build_agreement(parties, job, stage, algorithm, start.state),
            has_rounds=start.done < stage.rounds,
        ),
        budgets=budgets,
        folder=folder,
        observer=observer,
        roster=deployment.id,
    )
    summary = build_run_summary(
        finished,
        job=job,
        folder=folder,
        secure_sum=parties.protocol,
        began=began,
        engine="deployment" if job.run.in_process else job.run.engine,
        version=version,
        deployment=deployment.id,
        labels=_get_label_names(job, folder, first.classes),
    )
    summary, _ = save_results(
        finished, job=job, folder=folder, summary=summary, features=parties.features
    )
    return summary


def _wait_for_approvals(
    parties: ConnectedParties, stages: Sequence[RunStage], job: Job, folder: RunFolder
) -> ConnectedParties:
    """Return the parties whose owners approved all stages, or need not; nothing is charged yet."""
    if not parties.requiring_approval:
        return parties
    folder.save_proposed_id()  # A resumed run needs the same name to use the approvals it has.
    proposals = [_build_agreement(parties, job, *each) for each in simulate_stages(stages)]
    return parties.wait_for_approvals(proposals)


def _build_agreement(
    parties: ConnectedParties,
    job: Job,
    stage: RunStage,
    algorithm: FederatedAlgorithm,
    state: State,
) -> Agreement:
    """Build what the parties are asked to join for a stage that begins with this state."""
    kept = select_components(state)  # on which the parties project rows
    return parties.build_agreement(
        stage.plan,
        algorithm,
        rounds=stage.rounds,
        components=save_state(kept) if kept else b"",
        corrupt=job.corrupt,
    )


def _get_label_names(job: Job, folder: RunFolder, classes: int) -> tuple[str, ...]:
    """Return label names from the server's copy of the schema; empty without a copy."""
    if not folder.schema:
        return ()
    return Schema.from_toml(folder.schema).label.list_names(job.label_kind(classes))


def _inspect_parties(
    job: Job, transport: Transport, deployment: Deployment, folder: RunFolder, schema: str
) -> tuple[Job, ConnectedParties]:
    """Return the job with the rule's choices, saved for a resumed run, and its parties.

    If the rule chooses a feature map from the parties' facts, they are inspected again with that
    map.
    """
    asked, plain = job.resolve_auto(), {"features": "none"}
    if asked.model.is_feature_map_open:
        asked = asked.model_copy(update={"model": asked.model.model_copy(update=plain)})
    # One object for both requests: a late write for the first must not overwrite newer states.
    names = [party.name for party in deployment.parties]
    known = ConnectedParties(
        transport=transport,
        deployment=deployment,
        party_states=PartyStates(folder.path / "parties.json", names),
        data_head=build_data_head(asked),
        timeout_s=job.run.stage_timeout,
        needed=compute_min_present(len(names), survivors=job.min_survivors, corrupt=job.corrupt),
        approval_s=job.run.approval_timeout,
    )
    parties = _find_parties(known, asked, folder, schema)
    settled = job.resolve_auto(_build_federation(job, parties, folder), parties.first.classes)
    if settled != job:
        folder.save_job(settled)
    if (head := build_data_head(settled)) != parties.data_head:
        parties = _find_parties(replace(parties, data_head=head), settled, folder, schema)
    return settled, parties


def _build_federation(job: Job, parties: ConnectedParties, folder: RunFolder) -> Federation:
    """Build the public facts about the parties."""
    first, found = parties.first, build_federation(job, parties.deployment, parties.facts)
    prepared = first.schema == compute_prepared_schema(first.features, first.classes)
    known = Schema.from_toml(folder.schema) if folder.schema else None
    numbers = known.number_count if known else first.features
    return replace(
        found,
        schema=folder.schema,
        numbers=0 if prepared else numbers,
        columns=len(known.features) if known else first.features,
    )


def _find_parties(
    known: ConnectedParties, job: Job, folder: RunFolder, schema: str
) -> ConnectedParties:
    """Find the parties that a job is for, and inspect them."""
    least = job.parties.min_records
    parties = known.find(
        run_id=folder.run_id,
        sizes=not job.privacy.has_private_sizes,
        min_records=1 if least == "auto" else least,
    )
    theirs = parties.first.schema
    if schema and theirs != schema:
        raise JobError(
            "Expected data.schema (or data.test-schema) to mean the same as the parties' schema "
            f"(digest {theirs[:12]}), got {schema[:12]}. Give the server a copy of their file."
        )
    return parties


def _check_deployment(job: Job, deployment: Deployment) -> None:
    """Refuse what real parties cannot do, before any request to them."""
    count = len(deployment.parties)
    if job.parties.count != count:
        raise JobError(
            f"Expected parties.count = {count}, the number of parties of this deployment, got "
            f"{job.parties.count}. Use --set parties.count={count}."
        )
    if count < 2:
        raise JobError("Expected at least 2 parties to mask with each other, got 1.")
    if job.run.faults:
        raise JobError(
            "Expected no run.faults with real parties (only the fast engine simulates them), "
            f"got {job.run.faults!r}."
        )
    if job.privacy.has_private_sizes and job.parties.min_records == "auto":
        raise JobError(
            "Expected parties.min-records, a public number that stands for every party's records, "
            f"with privacy.unit = {job.privacy.unit!r} and {job.privacy.neighbouring} neighbours, "
            "got 'auto': the parties' own numbers are private, and the server never asks for them."
        )
