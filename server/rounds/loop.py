"""The rounds: reserve, aggregate, add noise, update, commit; again.

The order is the promise. A release is reserved in the ledger before any party computes, committed
in one transaction with the checkpoint that holds its result, and only then shown to anyone. Where
it has two guarantees, of a record and of a party, both budgets are charged in that same
transaction: no kill leaves one of them charged and the other not. A run
killed at any point resumes from its last commit: the reservation it died under is taken up again
under the same entry, so nothing is released twice under one entry and nothing is paid twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parley.client.algorithms.base import FederatedAlgorithm, State
from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.guarantee import Unit
from parley.privacy.ledger.ledger import (
    BudgetExceeded,
    Entry,
    EntryState,
    Ledger,
    LedgerCorrupt,
    Reservation,
)
from parley.privacy.sampling.stream import NoiseStream
from parley.secure_agg.interface import TooFewSurvivors
from parley.server.jobs.job import Job, JobError
from parley.server.planning.release import account
from parley.server.records.plain_json import json_text
from parley.server.rounds.cohort import Cohort, PartyFailed, RoundSum

__all__ = [
    "ATTEMPTS",
    "Outcome",
    "Progress",
    "aggregate",
    "check_unreleased",
    "load_state",
    "resume_point",
    "run_rounds",
    "save_state",
    "server_noise",
]

ATTEMPTS = 3
"""How often a round is asked for again when too few parties survive it."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a run stands.

    Attributes:
        done: rounds committed.
        state: the algorithm's state after them.
        spent: what they compose to, for each unit of the plan.
        lines: their lines of `rounds.jsonl`.
    """

    done: int
    state: State
    spent: Mapping[Unit, Composition]
    lines: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended: `complete`, `budget-exhausted`, `too-few-survivors` or `party-failed`."""

    status: str
    reason: str
    progress: Progress


def run_rounds(
    *,
    plan: ReleasePlan,
    rounds: int,
    dataset: str,
    algorithm: FederatedAlgorithm,
    cohort: Cohort,
    ledger: Ledger,
    noise: Callable[[int], NoiseStream],
    start: Progress,
    observe: Callable[[dict[str, Any]], None],
) -> Outcome:
    """Runs rounds `start.done + 1` to `rounds`.

    Args:
        plan: the release of every round.
        dataset: name of the data in the ledger.
        noise: round number → its noise stream: OS entropy, or keyed by seed and round.
        observe: is given every committed round's line.

    Raises:
        BudgetExceeded: the first release does not fit the ledger's budget; nothing was spent.
        LedgerCorrupt: the first release was made before.
        LedgerError, EncodingError: nothing of the round at hand was released.
    """
    done, state, spent, lines = start.done, start.state, dict(start.spent), list(start.lines)

    def progress() -> Progress:
        return Progress(done=done, state=state, spent=spent, lines=lines)

    if done >= rounds:
        return Outcome(status="complete", reason="", progress=progress())
    held = ledger.reserve_together(_entries(plan, dataset, done + 1))
    check_unreleased(held)
    while True:
        began = time.perf_counter()
        number = done + 1
        now = plan.at_round(number)
        try:
            total = aggregate(cohort, now, state)
        except TooFewSurvivors as error:
            ledger.void_together([each.id for each in held], str(error))
            return Outcome(status="too-few-survivors", reason=str(error), progress=progress())
        except PartyFailed as error:
            # That it failed depends on its records and can be seen: the reservation stays charged.
            return Outcome(status="party-failed", reason=str(error), progress=progress())
        # The noise is an integer vector, added outside the ring, where it cannot wrap.
        noisy = now.encoding.decode(total.total) + now.draw(noise(number))
        state = algorithm.update(state, now.encoding.to_float(noisy) / total.weight)
        spent = {unit: spent[unit].add(now.event(unit)) for unit in now.units}
        figures = cohort.evaluate(algorithm.model_of(state), round_number=number)
        accounting = account(spent[plan.primary.unit], plan.primary.delta)
        for other in plan.guarantees[1:]:
            accounting[f"{other.unit}_level"] = account(spent[other.unit], other.delta)
        public = accounting | algorithm.released(state)
        line = _line(number, total, public, figures, time.perf_counter() - began)
        checkpoint = save_state(state)
        # What only a simulation may know stays out of the ledger.
        outcome = {"survivors": total.summed, "line": {**line, "simulation_only": {}}}
        exhausted = ""
        if number < rounds:
            try:
                held = ledger.commit_and_reserve_together(
                    [each.id for each in held],
                    outcome=outcome,
                    checkpoint=checkpoint,
                    entries=_entries(plan, dataset, number + 1),
                )
            except BudgetExceeded as error:
                # This round's commit stands; the run ends here with its model kept.
                exhausted = str(error)
        else:
            ledger.commit_together(
                [each.id for each in held], outcome=outcome, checkpoint=checkpoint
            )
        done = number
        lines.append(line)
        observe(line)
        if exhausted:
            return Outcome(status="budget-exhausted", reason=exhausted, progress=progress())
        if done == rounds:
            return Outcome(status="complete", reason="", progress=progress())


def aggregate(cohort: Cohort, plan: ReleasePlan, state: State) -> RoundSum:
    """A release's sum, asked for again where too few survive.

    Raises:
        TooFewSurvivors: in every attempt; nothing was opened.
        PartyFailed: a party has nothing it may release; nothing was opened.
    """
    for attempt in range(ATTEMPTS):
        try:
            return cohort.aggregate(plan, state, attempt=attempt)
        except TooFewSurvivors:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def check_unreleased(held: Sequence[Reservation]) -> None:
    """Refuses to make a release that was made: its charge paid for one, whatever became of it.

    Raises:
        LedgerCorrupt: it was committed, and the model it led to isn't there.
    """
    made = next((each.entry for each in held if each.state is EntryState.COMMITTED), None)
    if made is not None:
        raise LedgerCorrupt(
            f"Expected the checkpoint of release {made.index} of run {made.run_id!r}, which the "
            "ledger committed, got none: it was removed. The run can't go on without releasing "
            "the same again."
        )


def resume_point(
    ledger: Ledger,
    *,
    plan: ReleasePlan,
    dataset: str,
    algorithm: FederatedAlgorithm,
    before: Composition | None = None,
) -> Progress:
    """Where the run `plan.run_id` stands according to its ledger; a new one at round 0.

    Raises:
        JobError: the releases made so far were made under another plan: the job, or the data,
            was changed since.
    """
    lines = []
    for recorded in ledger.entries(plan.run_id):
        if recorded.outcome is None or recorded.entry.index == 0:
            continue  # Not committed, or what was released before the first round (`before`).
        if recorded.entry not in _entries(plan, dataset, recorded.entry.index):
            raise JobError(
                f"Expected the plan that round {recorded.entry.index} of run {plan.run_id} was "
                "released under, got another: its job.toml or its data were changed since."
            )
        if recorded.entry.dataset == dataset:
            lines.append(recorded.outcome["line"])
    stored = ledger.checkpoint(plan.run_id)
    spent = {unit: Composition.empty() for unit in plan.units}
    if before is not None:
        spent[plan.primary.unit] = before
    if stored is None:
        return Progress(done=0, state=algorithm.init(), spent=spent, lines=[])
    done, state = stored.release, load_state(stored.data)
    given = algorithm.init().get("components")
    if given is not None and not np.array_equal(given, state["components"]):
        raise JobError(
            f"Expected the principal components that run {plan.run_id} began with, got others: "
            "model.pca-file or the held-out records were changed since."
        )
    return Progress(
        done=done,
        state=state,
        spent={unit: each.add(plan.event(unit), count=done) for unit, each in spent.items()},
        lines=lines,
    )


def server_noise(job: Job) -> Callable[[int], NoiseStream]:
    """Round number → the stream of the server's noise: entropy, or the job's seed and the round."""
    if job.seed is None:
        entropy = NoiseStream.from_entropy()
        return lambda _round: entropy
    # Keyed by the round: a resumed run draws what the killed one would have drawn.
    seed = job.seed
    return lambda number: NoiseStream.from_seed(seed, "server-noise", number)


def save_state(state: State) -> bytes:
    """The state as a safetensors file."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(array) for name, array in state.items()})


def load_state(blob: bytes) -> State:
    """The state that `save_state` wrote."""
    from safetensors.numpy import load

    return dict(load(blob))


def _entries(plan: ReleasePlan, dataset: str, number: int) -> tuple[Entry, ...]:
    return plan.at_round(number).entries(dataset, party="server")


def _line(
    number: int,
    total: RoundSum,
    public: dict[str, Any],
    figures: dict[str, Any],
    seconds: float,
) -> dict[str, Any]:
    line = {
        "round": number,
        "parties": total.counts(),
        "reasons": total.reasons,
        "bytes_up": total.bytes_up,
        "bytes_down": total.bytes_down,
        "stages": total.stages,
        "stage_seconds": list(total.stage_seconds),
        "seconds": seconds,
        **public,
        "simulation_only": figures,
    }
    json_text(line)  # A line that cannot be written must fail before the commit, not after.
    return line
