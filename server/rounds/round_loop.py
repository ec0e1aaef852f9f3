"""Run the rounds: one release (`parley.server.rounds.round_release`) after another.

The commit of a round stores its result as the run's checkpoint and reserves the next round. A run
that is killed at any point resumes from its last commit. It continues the open reservation under
the same entry, so that no entry releases twice and nothing is charged twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.registry import needs_sum
from parley.client.contract.model_state_encoding import State, load_state, save_state
from parley.client.contract.release_plan import ReleasePlan
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_entry import LedgerEntry
from parley.privacy.sampling.random_stream import Randomness
from parley.secure_agg.interface import TooFewSurvivors
from parley.server.jobs.section_base import JobError
from parley.server.planning.run_stages import RunStage, compute_spent
from parley.server.records.round_line import RoundAccount, RoundLine
from parley.server.records.round_totals import RoundTotals
from parley.server.records.run_folder import RunFolder
from parley.server.records.run_progress import RunProgress
from parley.server.rounds.cohort import Cohort, PartyFailed, RoundSum
from parley.server.rounds.round_release import commit_release, reserve_release, run_release

Evaluate = Callable[[NDArray[np.float64], int], dict[str, Any]]
"""A model and the round's number → metrics that only a simulation may know; empty: none."""


def run_stage(
    stages: Sequence[RunStage],
    *,
    algorithm: FederatedAlgorithm,
    dataset: str,
    cohort: Cohort,
    randomness: Randomness,
    ledger: Ledger,
    start: RunProgress,
    folder: RunFolder | None = None,
    evaluate: Evaluate,
    observe: Callable[[RoundLine], None],
) -> RunProgress:
    """Run the releases of the stage `start.stage` that are not done yet.

    Args:
        folder: stores the state between two sums of one release, for real parties, which answer
            each sum once; None in a simulation, which repeats a release from its first sum.

    Raises:
        BudgetExceeded: the first release does not fit the ledger's budget; nothing was spent.
        LedgerCorrupt: the first release was already made.
        ValueError: a seed for a plan without one; nothing was spent.
        LedgerError, EncodingError: nothing of the current release was released.
        TooFewSurvivors, PartyFailed: outside the rounds; after the second the charge stays.
    """
    stage = stages[start.stage]
    randomness.check(seeded=stage.plan.seeded)
    progress, numbers = replace(start, totals=start.totals.copy()), stage.numbers[start.done :]
    if not numbers:
        return replace(progress, status="complete")
    entries = _build_entries(stage, dataset)
    held = reserve_release(ledger, [replace(each, index=numbers[0]) for each in entries])

    def update(state: State, plan: ReleasePlan, total: RoundSum) -> State:
        noisy = plan.encoding.decode(total.total)
        # The noise is an integer vector, added outside the ring, where it cannot wrap.
        if plan.noises:
            noisy = noisy + plan.draw(randomness.open_server_noise(plan.round_number, plan.step))
        divisor = 1.0 if needs_sum(algorithm) else total.weight
        return algorithm.update(state, plan.encoding.to_float(noisy) / divisor)

    release = partial(run_release, cohort=cohort, ledger=ledger, folder=folder)
    for number in numbers:
        began, plan = time.perf_counter(), stage.plan.with_round(number)
        try:
            state, total = release(plan, progress.state, update, reservations=held)
        except TooFewSurvivors as error:
            if stage.name:
                raise TooFewSurvivors(f"The release of {stage.name}: {error}") from error
            return replace(progress, status="too-few-survivors", reason=str(error))
        except PartyFailed as error:
            # The failure depends on the party's records and is visible: the reservation stays
            # charged.
            if stage.name:
                raise
            return replace(progress, status="party-failed", reason=str(error))
        line = None
        if not stage.name:
            ahead = (each.rounds for each in stages[: start.stage])
            spent = compute_spent(stages, [*ahead, progress.done + 1])
            line = _build_line(evaluate, algorithm, plan, spent, state, total, began)
        outcome = _build_outcome(line, total)
        if stage.name:
            progress = replace(progress, ahead={**progress.ahead, stage.name: outcome})
        last = number == numbers[-1]
        following = [] if last else [replace(each, index=number + 1) for each in entries]
        state = state if following else _build_next_state(stages, start.stage, state)
        held, exhausted = commit_release(
            ledger, held, outcome=outcome, checkpoint=save_state(state), following=following
        )
        if exhausted and stage.name:
            raise exhausted
        progress = replace(progress, done=progress.done + 1, state=state)
        if line:
            progress.totals.add(line)
            observe(line)
        if exhausted is not None:  # The run ends here and its model is kept.
            return replace(progress, status="budget-exhausted", reason=str(exhausted))
    return replace(progress, status="complete")


def _build_next_state(stages: Sequence[RunStage], at: int, state: State) -> State:
    """Return a stage's last state as it is stored: as the first state of the next stage."""
    if at + 1 == len(stages):
        return state
    result = stages[at].result(state)
    return {**stages[at + 1].algorithm(result).init(), **result}


def find_resume_point(
    folder: RunFolder, ledger: Ledger, *, stages: Sequence[RunStage], dataset: str
) -> RunProgress:
    """Return the progress of a run according to its ledger, and write its rounds anew.

    A new run is before its first stage.

    Raises:
        JobError: earlier releases were made under another plan: the job, or the data, was changed
            since.
    """
    totals, ahead = RoundTotals(), dict[str, dict[str, Any]]()

    def iterate_lines() -> Iterator[RoundLine]:
        for stage, outcome in _iterate_outcomes(ledger, stages, dataset):
            if stage.name:
                ahead[stage.name] = outcome
            else:
                line = RoundLine.model_validate(outcome["line"])
                totals.add(line)
                yield line

    folder.rewrite_rounds(iterate_lines())
    stored = ledger.get_checkpoint(stages[0].plan.run_id)
    if stored is None:
        return RunProgress(done=0, state={}, totals=totals)
    at = _find_stage(stages, stored.release) % len(stages)
    done = stored.release - stages[at].numbers.start + 1
    if done == stages[at].rounds and at + 1 < len(stages):
        at, done = at + 1, 0  # The checkpoint is the next stage's first state.
    state = load_state(stored.data)
    return RunProgress(stage=at, done=done, state=state, totals=totals, ahead=ahead)


def _find_stage(stages: Sequence[RunStage], number: int) -> int:
    """Return the position of a release's stage; −1: it is in none."""
    return next((at for at, each in enumerate(stages) if number < each.numbers.stop), -1)


def _iterate_outcomes(
    ledger: Ledger, stages: Sequence[RunStage], dataset: str
) -> Iterator[tuple[RunStage, dict[str, Any]]]:
    """Yield the stage and the outcome of each committed release; raises as `find_resume_point`."""
    run_id = stages[0].plan.run_id

    planned = [_build_entries(each, dataset) for each in stages]
    for recorded in ledger.iterate_entries(run_id):
        if recorded.outcome is None:
            continue
        at = _find_stage(stages, recorded.entry.index)
        stage = stages[at]
        if recorded.entry not in [
            replace(each, index=recorded.entry.index) for each in planned[at]
        ]:
            raise JobError(
                f"Expected the plan under which round {recorded.entry.index} of run {run_id} was "
                "released, got another: its job.toml or its data were changed."
            )
        if recorded.entry.key.unit is stage.plan.primary.unit:  # The same in every budget.
            yield stage, dict(recorded.outcome)


def _build_entries(stage: RunStage, dataset: str) -> tuple[LedgerEntry, ...]:
    """Build the entries of any release of the stage; their index identifies the release."""
    return stage.plan.build_entries(dataset, party="server", assumptions=stage.assumptions)


def _build_outcome(line: RoundLine | None, total: RoundSum) -> dict[str, Any]:
    """Return what the ledger stores of a release: nothing that only a simulation may know."""
    if line is None:
        return {"survivors": len(total.survivors), **_build_traffic(total)}
    return {"survivors": len(total.survivors), "line": {**line.to_json(), "simulation_only": {}}}


def _build_traffic(total: RoundSum) -> dict[str, Any]:
    return {
        "parties": total.count_parties(),
        "reasons": total.reasons,
        "bytes_up": total.bytes_up,
        "bytes_down": total.bytes_down,
        "stages": total.stages,
    }


def _build_line(
    evaluate: Evaluate,
    algorithm: FederatedAlgorithm,
    plan: ReleasePlan,
    spent: Mapping[Unit, Composition],
    state: State,
    total: RoundSum,
    began: float,
) -> RoundLine:
    """Build the line of a round, with each guarantee's account so far."""
    return RoundLine(
        format=2,
        round=plan.round_number,
        **_build_traffic(total),
        absent=total.absent,
        stage_seconds=total.stage_seconds,
        seconds=time.perf_counter() - began,
        guarantees=tuple(
            RoundAccount.from_composition(spent[each.unit], each.delta) for each in plan.guarantees
        ),
        **algorithm.released(state),
        simulation_only=evaluate(algorithm.model_of(state), plan.round_number),
    )
