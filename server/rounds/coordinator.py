"""A job among real parties: look who is there, plan, agree on keys, run the rounds, keep the model.

The order is `parley.simulations.engine.fast`'s, with the parties behind messages: nothing is asked
of a record before the ledger has reserved the release, and the server has no data.
What a party says of itself beforehand (columns, classes, number of records under replace-one) is
public.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.registry import describe_task
from parley.client.contract.agreement import Agreement
from parley.client.contract.plan import ReleasePlan
from parley.client.contract.protocol import Reason
from parley.client.contract.roster import Deployment
from parley.client.contract.state import State, save_state
from parley.secure_agg.interface import DropoutPolicy, KeyExchange
from parley.secure_agg.pairwise_server import Server
from parley.secure_agg.parameters import RunParameters
from parley.server.jobs.job import Job
from parley.server.jobs.section import JobError
from parley.server.planning.budgets import budgets_of, check_affordable
from parley.server.planning.principal_components import public_components
from parley.server.planning.release import algorithm_for, model_for
from parley.server.planning.stages import Stage, rounds_of, stages_of
from parley.server.records.progress import Progress
from parley.server.records.run_folder import RunFolder
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
from parley.server.rounds.keeping import keep, summary_of
from parley.server.rounds.loop import ATTEMPTS
from parley.server.rounds.observer import Observer
from parley.server.rounds.party_cohort import PartyCohort
from parley.server.rounds.party_status import PartyBoard
from parley.server.rounds.transport import Transport


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
    """Runs a job among the parties of a deployment, or goes on with it; gives its summary.

    Args:
        job: with as many parties as the roster.
        folder: the run's folder, made already.
        resume: it was begun before.
        observer: called as it goes on.
        version: of Parley, for the summary.
        fingerprint: names the data in the ledger; empty: this deployment's data of that name.
        components: `[p, k]` public principal components; None: those of `model.pca-file`.
        schema: digest that the parties' schema must have; empty: any, the same at all.

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
    parties = _Parties.found(job, transport, deployment, folder)
    facts, first = parties.facts, parties.first
    if schema and first.schema != schema:
        raise JobError(
            "Expected data.schema (or data.test-schema) to mean what the parties' schema means "
            f"(digest {first.schema[:12]}), got {schema[:12]}: give the server a copy of their "
            "file."
        )
    if components is None:
        components = public_components(job, features=first.features)
    federation = replace(federation_of(job, deployment, facts), schema=folder.schema)
    model = model_for(job, features=first.features, classes=first.classes)
    stages = stages_of(
        job,
        algorithm=algorithm_for(job, model, federation),
        federation=federation,
        features=first.features,
        components=components,
        run_id=folder.run_id,
    )
    data = fingerprint or f"deployment:{deployment.consortium}:{dataset_name(job)}"
    budgets = budgets_of(job, rounds_of(stages).plan, data)
    check_affordable(job, stages, budgets)
    finished = execute(
        stages,
        job=job,
        cohort_of=parties.cohort,
        budgets=budgets,
        folder=folder,
        resume=resume,
        observer=observer,
        roster=deployment.id,
    )
    summary = summary_of(
        finished,
        stages,
        job=job,
        folder=folder,
        secure_sum=parties.protocol,
        began=began,
        engine="deployment" if job.run.in_process else job.run.engine,
        version=version,
        deployment=deployment.id,
    )
    return keep(finished, job=job, folder=folder, summary=summary, features=_features(job, first))


@dataclass(frozen=True, kw_only=True)
class _Parties:
    """The parties of a deployment, and what they said of themselves.

    Attributes:
        setup: traffic ahead of the rounds.
        facts: of each party that takes part.
        declined: why others do not.
    """

    job: Job
    transport: Transport
    deployment: Deployment
    run_id: str
    board: PartyBoard
    setup: Traffic
    facts: Mapping[int, PartyFacts]
    declined: Mapping[int, Reason]

    @classmethod
    def found(
        cls, job: Job, transport: Transport, deployment: Deployment, folder: RunFolder
    ) -> Self:
        """Those who are there, asked what they hold."""
        names = [party.name for party in deployment.parties]
        board, setup = PartyBoard(folder.path / "parties.json", names), Traffic()
        facts, declined = inspect(job, transport, deployment, board, folder.run_id, setup)
        return cls(
            job=job,
            transport=transport,
            deployment=deployment,
            run_id=folder.run_id,
            board=board,
            setup=setup,
            facts=facts,
            declined=declined,
        )

    @property
    def first(self) -> PartyFacts:
        """What one of them holds; what has to be alike is alike."""
        return next(iter(self.facts.values()))

    @property
    def protocol(self) -> dict[str, Any]:
        """What a summary says of the protocol beside its rounds."""
        return {
            "backend": "masked",
            "masked_check": "",
            "setup_bytes_up": self.setup.up,
            "setup_bytes_down": self.setup.down,
            "setup_stage_seconds": self.setup.seconds,
        }

    def cohort(
        self, stage: Stage, algorithm: FederatedAlgorithm, start: Progress
    ) -> AbstractContextManager[PartyCohort]:
        """The parties of a stage, joined if it has rounds left (`CohortOf`)."""
        job, deployment = self.job, self.deployment
        run, named = _parameters(job, stage), data_head(job, self.run_id)
        cohort = PartyCohort(
            transport=self.transport,
            server=Server(
                run=run,
                identities=deployment.identities,
                deployment=bytes.fromhex(deployment.id),
            ),
            board=self.board,
            timeout_s=job.run.stage_timeout,
            weights=_weights(stage.plan, self.facts),
            agreement=Agreement(
                run_id=self.run_id,
                dataset=named["dataset"],
                label=named["label"],
                intercept=named["intercept"],
                schema=self.first.schema,
                features=_features(job, self.first),
                identities=deployment.identities,
                parameters=run,
                task=describe_task(algorithm),
                rounds=stage.rounds,
                plan=stage.plan,
                components=_components(start.state),
            ),
            declined=dict(self.declined),
            setup=self.setup,
        )
        return _joined(cohort, self.facts if start.done < stage.rounds else {})


def _features(job: Job, facts: PartyFacts) -> dict[str, Any]:
    """The public map that is agreed on, with the digest that all parties gave; empty: none."""
    named = job.model.feature_map
    return {**named, "digest": facts.map} if named else {}


def _components(state: State) -> bytes:
    """What the parties project their rows on, as the server sends it; empty where they do not."""
    kept = {name: state[name] for name in ("components",) if name in state}
    return save_state(kept) if kept else b""


@contextmanager
def _joined(cohort: PartyCohort, facts: Mapping[int, PartyFacts]) -> Iterator[PartyCohort]:
    """The cohort with those parties joined; `finish` is sent to them however the block ends."""
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
            f"{job.parties.count} (--set parties.count={count})."
        )
    if count < 2:
        raise JobError("Expected at least 2 parties to mask with each other, got 1.")
    if job.run.faults:
        raise JobError(
            f"Expected no run.faults with real parties (they are the fast engine's), got "
            f"{job.run.faults!r}."
        )
    if job.privacy.private_sizes and job.parties.min_records == "auto":
        raise JobError(
            "Expected parties.min-records, a public number that stands for every party's records, "
            f"with privacy.unit = {job.privacy.unit!r} and {job.privacy.neighbouring} neighbours, "
            "got 'auto': the parties' own numbers are private, and asked of nobody."
        )


def _weights(plan: ReleasePlan, facts: Mapping[int, PartyFacts]) -> dict[int, float]:
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
