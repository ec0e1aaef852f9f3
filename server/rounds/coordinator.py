"""A job among real parties: look who is there, plan, agree on keys, run the rounds, keep the model.

The order is `parley.simulations.engine.fast`'s, with the parties behind messages: nothing is asked
of a record before the ledger has reserved the release, and the server never has data of its own.
What a party says of itself beforehand (columns, classes, number of records under replace-one) is
public.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm, State
from parley.client.algorithms.registry import describe_task
from parley.client.contract.agreement import Agreement
from parley.client.contract.plan import ReleasePlan
from parley.client.contract.roster import Deployment
from parley.client.contract.state import save_state
from parley.secure_agg.interface import DropoutPolicy, KeyExchange
from parley.secure_agg.pairwise_server import Server
from parley.secure_agg.parameters import RunParameters
from parley.server.jobs.job import Job, JobError
from parley.server.planning.budgets import budgets_of, check_affordable
from parley.server.planning.principal_components import public_components
from parley.server.planning.release import algorithm_for, model_for
from parley.server.planning.stages import COMPONENTS, Stage, made_beside, rounds_of, stages_of
from parley.server.records.data_budgets import data_accounts
from parley.server.records.evaluation import evaluation_facts
from parley.server.records.progress import Progress
from parley.server.records.run_folder import RunFolder
from parley.server.records.summarising import run_summary
from parley.server.records.summary import RunSummary
from parley.server.rounds.asking import Traffic
from parley.server.rounds.execute import execute
from parley.server.rounds.inspection import (
    PartyFacts,
    data_head,
    dataset_name,
    federation_of,
    inspect,
)
from parley.server.rounds.keeping import keep
from parley.server.rounds.loop import ATTEMPTS
from parley.server.rounds.observer import Observer
from parley.server.rounds.party_cohort import PartyCohort
from parley.server.rounds.party_status import PartyBoard
from parley.server.rounds.transport import Transport

__all__ = ["coordinate"]


def coordinate(
    job: Job,
    *,
    transport: Transport,
    deployment: Deployment,
    folder: RunFolder,
    resume: bool,
    observer: Observer | None = None,
    version: str = "",
    fingerprint: str = "",
    components: NDArray[np.float64] | None = None,
    schema: str = "",
) -> RunSummary:
    """Runs a job among the parties of a deployment, or goes on with it.

    Args:
        job: with as many parties as the roster.
        transport: the way to them.
        deployment: the roster.
        folder: the run's folder, made already.
        resume: it was begun before.
        observer: is told how it goes on.
        version: of Parley, for the summary.
        fingerprint: names the data in the ledger; empty: this deployment's data of that name.
        components: `[p, k]` public principal components; None: those of `model.pca-file`.
        schema: digest that the parties' schema must have; empty: any, the same at all.

    Returns:
        The summary, as in `summary.json`.

    Raises:
        JobError, CalibrationError, RingTooSmall: the job does not fit the parties; nothing was
            spent.
        RunFolderError: the run was begun with another roster.
        BudgetExceeded: the ledger has no room for all the rounds; nothing was spent.
        TooFewSurvivors: too few parties joined; nothing was spent.
    """
    began = time.perf_counter()
    _check(job, deployment)
    folder.check_roster(deployment.id)
    board = PartyBoard(folder.path / "parties.json", [party.name for party in deployment.parties])
    setup = Traffic()
    facts, declined = inspect(job, transport, deployment, board, folder.run_id, setup)
    federation = replace(federation_of(job, deployment, facts), schema=folder.schema)
    first = next(iter(facts.values()))
    if schema and first.schema != schema:
        raise JobError(
            "Expected data.schema (or data.test-schema) to mean what the parties' schema means "
            f"(digest {first.schema[:12]}), got {schema[:12]}: give the server a copy of their "
            "file."
        )
    features = first.features
    algorithm = algorithm_for(job, _model(job, facts), federation)
    if components is None:
        components = public_components(job, features=features)
    stages = stages_of(
        job,
        algorithm=algorithm,
        federation=federation,
        features=features,
        components=components,
        run_id=folder.run_id,
    )
    plan = rounds_of(stages).plan
    data = fingerprint or f"deployment:{deployment.consortium}:{dataset_name(job)}"
    budgets = budgets_of(job, plan, data)
    check_affordable(job, stages, budgets)

    def cohort_of(
        stage: Stage, task: FederatedAlgorithm, start: Progress
    ) -> AbstractContextManager[PartyCohort]:
        run, named = _parameters(job, stage), data_head(job, folder.run_id)
        cohort = PartyCohort(
            transport=transport,
            server=Server(
                run=run,
                identities=deployment.identities,
                deployment=bytes.fromhex(deployment.id),
            ),
            board=board,
            timeout_s=job.run.stage_timeout,
            weights=_weights(stage.plan, facts),
            agreement=Agreement(
                run_id=folder.run_id,
                dataset=named["dataset"],
                label=named["label"],
                intercept=named["intercept"],
                schema=first.schema,
                features=_features(job, facts),
                identities=deployment.identities,
                parameters=run,
                task=describe_task(task),
                rounds=stage.rounds,
                plan=stage.plan,
                components=_components(start.state),
            ),
            declined=dict(declined),
            setup=setup,
        )
        return _joined(cohort, facts if start.done < stage.rounds else {})

    finished = execute(
        stages,
        job=job,
        cohort_of=cohort_of,
        budgets=budgets,
        folder=folder,
        resume=resume,
        observer=observer,
        roster=deployment.id,
    )
    outcome = finished.outcome
    summary = run_summary(
        job=job,
        plan=plan,
        outcome=outcome,
        secure_sum={
            "backend": "masked",
            "masked_check": "",
            "setup_bytes_up": setup.up,
            "setup_bytes_down": setup.down,
            "setup_stage_seconds": setup.seconds,
        },
        folder=folder,
        ledger_head={"records": finished.head.records, "hash": finished.head.hash},
        version=version,
        seconds=time.perf_counter() - began,
        model=finished.algorithm.model,
        engine="deployment" if job.run.in_process else job.run.engine,
        components=outcome.progress.ahead.get(COMPONENTS),
        beside=made_beside(stages, outcome.progress.ahead),
        data_accounts=data_accounts(finished.totals, stages),
        deployment=deployment.id,
        evaluation=evaluation_facts(stages, outcome, unmeasured=finished.unmeasured),
    )
    return keep(finished, job=job, folder=folder, summary=summary, features=_features(job, facts))


def _features(job: Job, facts: Mapping[int, PartyFacts]) -> dict[str, Any]:
    """The public map that is agreed on, with the digest that all parties told; empty: none."""
    named = job.model.feature_map
    return {**named, "digest": next(iter(facts.values())).map} if named else {}


def _components(state: State) -> bytes:
    """What the parties project their rows on, as they are told it; empty where they do not."""
    kept = {name: state[name] for name in ("components",) if name in state}
    return save_state(kept) if kept else b""


@contextmanager
def _joined(cohort: PartyCohort, facts: Mapping[int, PartyFacts]) -> Iterator[PartyCohort]:
    """The cohort with those parties joined; they are told at its end, however that comes."""
    try:
        if facts:
            cohort.join(sorted(facts))
        yield cohort
    finally:
        cohort.finish()


def _check(job: Job, deployment: Deployment) -> None:
    """What real parties cannot do, said before anything is asked of them."""
    count = len(deployment.parties)
    if job.parties.count != count:
        raise JobError(
            f"Expected parties.count = {count}, the parties of this deployment, got "
            f"{job.parties.count}."
        )
    if count < 2:
        raise JobError("Expected at least 2 parties to mask with each other, got 1.")
    if job.run.faults:
        raise JobError(
            f"Expected no run.faults with real parties (they are the fast engine's), got "
            f"{job.run.faults!r}."
        )
    if job.privacy.neighbouring == "add-or-remove-one" and job.parties.min_records == "auto":
        raise JobError(
            "Expected parties.min-records with add-or-remove-one neighbours, whose sizes are "
            "private, got 'auto'."
        )


def _model(job: Job, facts: dict[int, PartyFacts]) -> Any:
    own = next(iter(facts.values()))
    return model_for(job, features=own.features, classes=own.classes)


def _weights(plan: ReleasePlan, facts: dict[int, PartyFacts]) -> dict[int, float]:
    if plan.weights == "size":
        return {index: (own.records or 0) / plan.mean_records for index, own in facts.items()}
    return dict.fromkeys(facts, 1.0)


def _parameters(job: Job, stage: Stage) -> RunParameters:
    plan = stage.plan
    try:
        return RunParameters.choose(
            parties=plan.parties,
            min_survivors=plan.min_survivors,
            run_id=secrets.token_bytes(16),
            # The shares of one more travel with the last.
            rounds=ATTEMPTS * stage.rounds * plan.steps + 1,
            ring_bits=plan.encoding.ring_bits,
            dropouts=DropoutPolicy(job.secure_aggregation.dropouts),
            confirm_survivors=job.secure_aggregation.confirm_survivors,
            key_exchange=KeyExchange(job.secure_aggregation.key_exchange),
            corrupt=job.corrupt,
        )
    except ValueError as error:
        raise JobError(f"Secure aggregation: {error}") from error
