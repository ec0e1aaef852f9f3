"""A job among real parties: look who is there, plan, agree on keys, run the rounds, keep the model.

The order is `simulations.engine`'s, with the parties behind messages: nothing is asked of a record
before the ledger has reserved the release, and the server never has data of its own. What a party
says of itself beforehand (columns, classes, number of records under replace-one) is public.
"""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from client.plan import ReleasePlan
from client.roster import Deployment
from client.task import describe_task
from client.wire import WIRE_VERSION, Frame, Reason, Status
from privacy.ledger import Ledger
from secure_agg.interface import Mode
from secure_agg.pairwise_server import Server
from secure_agg.parameters import RunParameters
from server.budgets import budgets_of, check_affordable
from server.job import Job, JobError
from server.observer import Observer
from server.party_board import PartyBoard, PartyState
from server.party_cohort import PartyCohort, Traffic, ask
from server.release import Federation, algorithm_for, model_for, plan_release
from server.rounds import resume_point, run_rounds, server_noise
from server.run_folder import RunFolder
from server.summary import privacy_statement, run_summary
from server.transport import Transport

__all__ = ["PartyFacts", "coordinate", "served_name"]

_ASK_AGAIN_S = 1.0


@dataclass(frozen=True, kw_only=True)
class PartyFacts:
    """What a party says of itself before a run; all of it is public.

    Attributes:
        features: p, columns before an intercept.
        classes: K of its schema, 0 for −1/+1 labels and targets.
        records: n, where the relation makes it public, else None.
    """

    features: int
    classes: int
    records: int | None


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

    Returns:
        The summary, as in `summary.json`.

    Raises:
        JobError, CalibrationError, RingTooSmall: the job does not fit the parties; nothing was
            spent.
        BudgetExceeded: the ledger refuses the first release; nothing was spent.
        TooFewSurvivors: too few parties joined; nothing was spent.
    """
    began = time.perf_counter()
    _check(job, deployment)
    board = PartyBoard(folder.path / "parties.json", [party.name for party in deployment.parties])
    setup = Traffic()
    facts, declined = _inspect(job, transport, deployment, board, folder.run_id, setup)
    federation = _federation(job, deployment, facts)
    algorithm = algorithm_for(job, _model(job, facts), federation)
    plan = plan_release(job, algorithm=algorithm, federation=federation, run_id=folder.run_id)
    budgets = budgets_of(job, plan, fingerprint or f"deployment:{deployment.id}:{_dataset(job)}")
    check_affordable(job, plan, budgets, before=None)
    budget, of_parties = budgets[0], budgets[1].name if len(budgets) > 1 else ""
    with (
        folder.locked(),
        folder.unless_refused(),
        Ledger.open(job.privacy.ledger or folder.ledger_path, create=not resume) as ledger,
    ):
        ledger.register(*budgets)
        if not resume:
            folder.commission()
        known = ledger.entries(folder.run_id)
        folder.check_ledger([e.entry.index for e in known if e.outcome is not None])
        start = resume_point(
            ledger,
            plan=plan,
            dataset=budget.name,
            algorithm=algorithm,
            party_dataset=of_parties,
        )
        start = replace(start, lines=folder.rewrite_rounds(start.lines))
        cohort = PartyCohort(
            transport=transport,
            server=Server(run=_parameters(job, plan, deployment), identities=deployment.identities),
            board=board,
            timeout_s=job.run.stage_timeout,
            weights=_weights(plan, facts),
            join_head={
                **_data_head(job, folder.run_id),
                "task": describe_task(algorithm),
                "plan": plan.to_json(),
                "rounds": job.rounds,
            },
            declined=declined,
            setup=setup,
        )
        try:
            if start.done < job.rounds:
                cohort.join(sorted(facts))
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
                party_dataset=of_parties,
            )
        finally:
            cohort.finish()
        head = ledger.head()
    summary = run_summary(
        job=job,
        plan=plan,
        outcome=outcome,
        secure_sum={
            "mode": "masked",
            "masked_check": "",
            "setup_bytes_up": cohort.setup.up,
            "setup_bytes_down": cohort.setup.down,
            "setup_stage_seconds": cohort.setup.seconds,
        },
        folder=folder,
        ledger_head={"records": head.records, "hash": head.hash},
        version=version,
        seconds=time.perf_counter() - began,
        engine=job.run.engine if job.run.engine != "fast" else "deployment",
    )
    theta = algorithm.model_of(outcome.progress.state)
    folder.write_model({"theta": theta}, privacy_statement(summary))
    folder.write_summary(summary)
    return summary


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
    if job.model.kind == "pca-mlp":
        raise JobError(
            "Expected another model.kind than pca-mlp with real parties: its components are "
            "computed by the fast engine alone. mlp is the same network without them."
        )
    if job.privacy.neighbouring == "add-or-remove-one" and job.parties.min_records == "auto":
        raise JobError(
            "Expected parties.min-records with add-or-remove-one neighbours, whose sizes are "
            "private, got 'auto'."
        )


def _dataset(job: Job) -> str:
    return job.privacy.dataset or job.data.source


def served_name(job: Job) -> str:
    """What the parties call the job's data: its name, or its source in a name's letters."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", _dataset(job)).strip("-._")[-63:]
    return plain.lstrip("-._") or "data"


def _data_head(job: Job, run_id: str) -> dict[str, Any]:
    """Which data a request is about, and how it is read."""
    network = job.algorithm.kind == "fedavg"
    return {
        "run": run_id,
        "dataset": served_name(job),
        "label": "network" if network else job.model.kind,
        "intercept": job.model.intercept and not network,
    }


def _inspect(
    job: Job,
    transport: Transport,
    deployment: Deployment,
    board: PartyBoard,
    run_id: str,
    traffic: Traffic,
) -> tuple[dict[int, PartyFacts], dict[int, Reason]]:
    """What the parties that are there say of themselves, and who declines.

    Waits for everybody, as long as one request may take, then goes on with enough.
    """
    everyone = set(range(len(deployment.parties)))
    needed = job.min_survivors
    board.stage("inspect", round_number=0)
    until = time.monotonic() + job.run.stage_timeout
    facts: dict[int, PartyFacts] = {}
    declined: dict[int, Reason] = {}
    head = {
        "version": WIRE_VERSION,
        **_data_head(job, run_id),
        "sizes": job.privacy.neighbouring == "replace-one",
        "clock": int(time.time()),
    }
    while (waiting := everyone - set(facts) - set(declined)) and time.monotonic() < until:
        there = waiting & set(transport.online())
        if not there:
            time.sleep(_ASK_AGAIN_S)
            continue
        frames = {index: Frame(kind="inspect", head=head) for index in there}
        left = max(until - time.monotonic(), 1.0)
        for reply in ask(transport, frames, needed=there, timeout_s=left, traffic=traffic):
            if reply.status is Status.OK and _own_facts(reply.frame, reply.party):
                facts[reply.party] = _facts(reply.frame)
                board.party(reply.party, PartyState.ONLINE)
            else:
                declined[reply.party] = reply.reason or Reason.PROTOCOL
                board.party(reply.party, PartyState.DECLINED, str(declined[reply.party]))
    least = job.parties.min_records
    if least != "auto":
        for index, own in list(facts.items()):
            if own.records is not None and own.records < least:
                del facts[index]
                declined[index] = Reason.TOO_FEW_RECORDS
                board.party(index, PartyState.DECLINED, str(Reason.TOO_FEW_RECORDS))
    if len(facts) < needed:
        raise JobError(_too_few(deployment, facts, declined, needed))
    shapes = {(own.features, own.classes) for own in facts.values()}
    if len(shapes) > 1:
        listed = "; ".join(
            f"{deployment.parties[i].name}: {own.features} features, {own.classes} classes"
            for i, own in sorted(facts.items())
        )
        raise JobError(f"Expected the same columns at every party, got {listed}.")
    return facts, declined


def _own_facts(frame: Frame, party: int) -> bool:
    """Whether an answer has the facts of the party that it came from."""
    head = frame.head
    numbers = [head.get("features"), head.get("classes")]
    if head.get("records") is not None:
        numbers.append(head["records"])
    plain = all(isinstance(n, int) and not isinstance(n, bool) for n in numbers)
    return (
        plain
        and head.get("party") == party
        and 1 <= head["features"] < 2**31
        and 0 <= head["classes"] < 2**31
        and (head.get("records") is None or 1 <= head["records"] < 2**40)
    )


def _facts(frame: Frame) -> PartyFacts:
    return PartyFacts(
        features=frame.head["features"],
        classes=frame.head["classes"],
        records=frame.head.get("records"),
    )


def _too_few(
    deployment: Deployment,
    facts: dict[int, PartyFacts],
    declined: dict[int, Reason],
    needed: int,
) -> str:
    names = [party.name for party in deployment.parties]
    missing = [name for index, name in enumerate(names) if index not in {*facts, *declined}]
    said = [f"{names[index]} declines ({reason})" for index, reason in sorted(declined.items())]
    if missing:
        said.append(f"offline: {', '.join(missing[:20])}{' …' if len(missing) > 20 else ''}")
    return (
        f"Expected at least {needed} parties to take part "
        f"(secure-aggregation.min-survivors), got {len(facts)}: {'; '.join(said)}."
    )


def _federation(job: Job, deployment: Deployment, facts: dict[int, PartyFacts]) -> Federation:
    """The public facts that the plan is made of; absent parties set none of them."""
    least, parties = job.parties.min_records, len(deployment.parties)
    sizes = [own.records for own in facts.values() if own.records is not None]
    if job.privacy.neighbouring == "add-or-remove-one" and least != "auto":
        return Federation(
            parties=parties, min_records=least, total_records=least * parties, max_records=least
        )
    if len(sizes) < len(facts):
        raise JobError(
            "Expected every party to disclose its number of records (public under replace-one), "
            f"got {len(sizes)} of {len(facts)}."
        )
    known = Federation.of_sizes(np.array(sizes), None if least == "auto" else least)
    # As if the absent ones were of mean size: n̄ only scales the weights.
    return replace(
        known, parties=parties, total_records=round(known.total_records * parties / len(sizes))
    )


def _model(job: Job, facts: dict[int, PartyFacts]) -> Any:
    own = next(iter(facts.values()))
    if job.algorithm.kind == "fedavg":
        from server.federated import network_for

        return network_for(job, features=own.features, classes=own.classes or 2)
    return model_for(job, features=own.features, classes=own.classes)


def _weights(plan: ReleasePlan, facts: dict[int, PartyFacts]) -> dict[int, float]:
    if plan.weights == "size":
        return {index: (own.records or 0) / plan.mean_records for index, own in facts.items()}
    return dict.fromkeys(facts, 1.0)


def _parameters(job: Job, plan: ReleasePlan, deployment: Deployment) -> RunParameters:
    try:
        return RunParameters.choose(
            parties=plan.parties,
            minimum_survivors=plan.min_survivors,
            run_id=secrets.token_bytes(16),
            beacon=deployment.beacon,
            ring_bits=plan.encoding.ring_bits,
            mode=Mode(job.secure_aggregation.protocol),
            active=job.secure_aggregation.confirm,
        )
    except ValueError as error:
        raise JobError(f"Secure aggregation: {error}") from error
