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
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.registry import describe_task
from parley.client.contract.agreement import Agreement
from parley.client.contract.plan import ReleasePlan
from parley.client.contract.roster import Deployment
from parley.privacy.accounting.composition import Composition
from parley.privacy.ledger.ledger import Ledger
from parley.secure_agg.interface import DropoutPolicy
from parley.secure_agg.pairwise_server import Server
from parley.secure_agg.parameters import RunParameters
from parley.server.jobs.job import Job, JobError
from parley.server.planning.budgets import budgets_of, check_affordable, holding, registered
from parley.server.planning.principal_components import (
    private_components,
    public_components,
    release_ahead,
    with_components,
)
from parley.server.planning.release import algorithm_for, model_for, plan_release
from parley.server.records.run_folder import RunFolder
from parley.server.records.summary import model_tensors, privacy_statement, run_summary
from parley.server.rounds.asking import Traffic
from parley.server.rounds.inspection import (
    PartyFacts,
    data_head,
    dataset_name,
    federation_of,
    inspect,
)
from parley.server.rounds.loop import ATTEMPTS, resume_point, run_rounds, save_state, server_noise
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
) -> dict[str, Any]:
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
    federation = federation_of(job, deployment, facts)
    features = next(iter(facts.values())).features
    algorithm = algorithm_for(job, _model(job, facts), federation)
    plan = plan_release(job, algorithm=algorithm, federation=federation, run_id=folder.run_id)
    ahead = release_ahead(job, features=features, federation=federation, rounds=plan)
    if ahead is None and components is None:
        components = public_components(job, features=features)
    data = fingerprint or f"deployment:{deployment.consortium}:{dataset_name(job)}"
    budgets = budgets_of(job, plan, data)
    before = None if ahead is None else ahead.plan.event(ahead.plan.primary.unit)
    check_affordable(job, plan, budgets, before=before)

    def cohort_of(
        release: ReleasePlan, task: FederatedAlgorithm, *, rounds: int, given: bytes = b""
    ) -> PartyCohort:
        run, named = _parameters(job, release, rounds=rounds), data_head(job, folder.run_id)
        return PartyCohort(
            transport=transport,
            server=Server(
                run=run,
                identities=deployment.identities,
                deployment=bytes.fromhex(deployment.id),
            ),
            board=board,
            timeout_s=job.run.stage_timeout,
            weights=_weights(release, facts),
            agreement=Agreement(
                run_id=folder.run_id,
                dataset=named["dataset"],
                label=named["label"],
                intercept=named["intercept"],
                schema=next(iter(facts.values())).schema,
                identities=deployment.identities,
                parameters=run,
                task=describe_task(task),
                rounds=rounds,
                plan=release,
                components=given,
            ),
            declined=dict(declined),
            setup=setup,
        )

    with (
        folder.locked(),
        folder.unless_refused(new=not resume),
        Ledger.open(job.privacy.ledger or folder.ledger_path, create=not resume) as ledger,
        ExitStack() as stack,
    ):
        budget = registered(ledger, budgets)[0]
        if not resume:
            folder.commission()
            folder.keep_roster(deployment.id)
        known = ledger.entries(folder.run_id)
        folder.check_ledger([e.entry.index for e in known if e.outcome is not None])
        stack.enter_context(
            holding(
                ledger,
                plan,
                dataset=budget.name,
                rounds=job.rounds,
                before=None if ahead is None else ahead.plan,
            )
        )
        told: dict[str, Any] = {}
        if ahead is not None:
            summed = cohort_of(ahead.plan, ahead.moments, rounds=1)
            components, told = private_components(
                job,
                ahead=ahead,
                algorithm=algorithm,
                dataset=budget.name,
                ledger=ledger,
                cohort=lambda: _joined(summed, facts),
            )
        given = b""
        if components is not None:
            algorithm = with_components(algorithm, components)
            given = save_state({"components": components})
        start = resume_point(
            ledger,
            plan=plan,
            dataset=budget.name,
            algorithm=algorithm,
            before=None if before is None else Composition.empty().add(before),
        )
        start = replace(start, lines=folder.rewrite_rounds(start.lines))
        cohort = cohort_of(plan, algorithm, rounds=job.rounds, given=given)
        with _joined(cohort, facts if start.done < job.rounds else {}):
            if observer:
                observer.started(job, plan, folder.path, start.done)

            def observe(line: dict[str, Any]) -> None:
                folder.append_round(line)
                if observer:
                    observer.round_done(line)

            outcome = run_rounds(
                plan=plan,
                rounds=job.rounds,
                dataset=budget.name,
                algorithm=algorithm,
                cohort=cohort,
                ledger=ledger,
                noise=server_noise(job),
                start=start,
                observe=observe,
            )
        head = ledger.head()
    summary = run_summary(
        job=job,
        plan=plan,
        outcome=outcome,
        secure_sum={
            "mode": "masked",
            "masked_check": "",
            "setup_bytes_up": setup.up,
            "setup_bytes_down": setup.down,
            "setup_stage_seconds": setup.seconds,
        },
        folder=folder,
        ledger_head={"records": head.records, "hash": head.hash},
        version=version,
        seconds=time.perf_counter() - began,
        engine=job.run.engine if job.run.engine != "fast" else "deployment",
        components=told,
    )
    summary["deployment"] = deployment.id
    folder.write_model(model_tensors(algorithm, outcome.progress.state), privacy_statement(summary))
    folder.write_summary(summary)
    return summary


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


def _parameters(job: Job, plan: ReleasePlan, *, rounds: int) -> RunParameters:
    try:
        return RunParameters.choose(
            parties=plan.parties,
            min_survivors=plan.min_survivors,
            run_id=secrets.token_bytes(16),
            rounds=ATTEMPTS * rounds + 1,  # the shares of one more travel with the last
            ring_bits=plan.encoding.ring_bits,
            dropouts=DropoutPolicy(job.secure_aggregation.dropouts),
            confirm_survivors=job.secure_aggregation.confirm_survivors,
            corrupt=job.corrupt,
        )
    except ValueError as error:
        raise JobError(f"Secure aggregation: {error}") from error
