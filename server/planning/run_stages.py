"""Build the stages of a run: what it releases, one after another.

Most jobs have one stage, their rounds. A network on private principal components has one before it,
a single release of second moments; its rounds begin with the result. A job with an evaluation has
one after them, of counts. Functions in this list define how a stage depends on the one before. The
loop that runs the stages knows none by name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.registry import list_release_assumptions
from parley.client.contract.guarantee import Guarantee
from parley.client.contract.model_state_encoding import State, select_components
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.schema import Schema
from parley.client.own_code.own_code_names import is_own_code
from parley.module_loading.plugin_table import load_attribute
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.threat_model import Unit
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.planning.job_planner import build_algorithm, plan_release

_COMPONENTS = "parley.server.planning.principal_components"
"""Imported only for a model on private components."""

COMPONENTS = "principal components"
"""Name of the stage that releases second moments."""
EVALUATION = "evaluation"
"""Name of the stage that counts held-out records by the model's prediction."""


def _return_unchanged(state: State) -> State:
    return state


@dataclass(frozen=True, kw_only=True)
class RunStage:
    """Releases under one plan.

    Attributes:
        plan: plan of the releases; its `round_number` is the number of the first.
        algorithm: the run's state so far → what is computed. The state is empty at the start of a
            run and is the previous stage's `result` at the start of a stage. After that it is the
            stage's own state.
        name: name of a stage before or after the rounds; empty: these are the rounds. A run needs
            the stages before its rounds, so a failure there is an error. A failed round leaves the
            model of the round before. A failure after the rounds leaves the model.
        assumptions: what its ε depends on beyond its proof; an empty text is none.
        result: the state after its last release → the state that the next stage begins with:
            post-processing.
    """

    plan: ReleasePlan
    rounds: int
    algorithm: Callable[[State], FederatedAlgorithm]
    assumptions: tuple[str, ...]
    name: str = ""
    result: Callable[[State], State] = _return_unchanged

    @property
    def numbers(self) -> range:
        """Numbers of its releases in the ledger."""
        return range(self.plan.round_number, self.plan.round_number + self.rounds)

    def with_run_id(self, run_id: str) -> RunStage:
        """Return the same stage under a run's name."""
        return replace(self, plan=self.plan.with_run_id(run_id))


@functools.lru_cache(maxsize=8)
def _find_draft_assumption(schema: str) -> str:
    """Return what an ε assumes of a schema. Advice on noise plans one job many times."""
    return Schema.from_toml(schema).assumption if schema else ""


Planned = tuple[FederatedAlgorithm, tuple[RunStage, ...]]
"""The algorithm of a job, and its stages."""


@dataclass(frozen=True, kw_only=True)
class PlanInputs:
    """What a job is planned for: public facts, and a model for their columns.

    Attributes:
        features: p, of the rows before they are projected.
        components: `[p, k]` public components, if the job has them.
    """

    model: Any
    federation: Federation
    features: int
    components: NDArray[np.float64] | None = None
    run_id: str = "plan"

    def build(self, job: Job) -> Planned:
        """Build a resolved job's algorithm and stages.

        Raises JobError, CalibrationError, RingTooSmall.
        """
        algorithm = build_algorithm(job, self.model, self.federation)
        return algorithm, _build_stages(job, algorithm, self)


def _build_stages(
    job: Job, algorithm: FederatedAlgorithm, inputs: PlanInputs
) -> tuple[RunStage, ...]:
    """Return all that a job releases, in order; the stage without a name is its rounds."""
    if is_own_code(job.model.kind) and job.algorithm.learns == job.model.learns:
        load_attribute("parley.server.planning.model_round_trip:check_round_trip")(job, algorithm)
    federation, known, private = inputs.federation, inputs.components, job.model.components_share
    facts: dict[str, Any] = {"federation": federation, "run_id": inputs.run_id}

    def list_assumed(computed: FederatedAlgorithm) -> tuple[str, ...]:
        own_map = job.model.feature_map.get("name", "")
        draft = _find_draft_assumption(federation.schema)
        return (*list_release_assumptions(computed, own_map), draft)

    def learner(state: State) -> FederatedAlgorithm:
        if known is None and not private:
            return algorithm
        return _apply_components(algorithm, known, state)

    rounds = RunStage(
        plan=plan_release(job, algorithm=algorithm, **facts),
        rounds=job.rounds,
        algorithm=learner,
        assumptions=list_assumed(algorithm),
    )
    stages = [rounds]
    if private:
        plan_components = load_attribute(f"{_COMPONENTS}:plan_components_release")
        moments, plan = plan_components(job, features=inputs.features, **facts)

        def result(state: State) -> State:
            matrix = moments.model.rebuild_matrix(state["theta"])
            compute_components = load_attribute(f"{_COMPONENTS}:compute_components")
            return {"components": compute_components(matrix, job.model.component_count)}

        first = RunStage(
            name=COMPONENTS,
            plan=plan,
            rounds=1,
            algorithm=lambda _: moments,
            assumptions=list_assumed(moments),
            result=result,
        )
        stages = [first, rounds]
    if job.evaluation.is_requested:
        from parley.server.planning.evaluation_planner import build_held_out_counts, plan_evaluation  # noqa: PLC0415 - spares its code for a job without an evaluation

        counts = build_held_out_counts(job, algorithm, federation)
        last = RunStage(
            name=EVALUATION,
            plan=plan_evaluation(job, counts, parties=federation.parties, run_id=inputs.run_id),
            rounds=1,
            algorithm=lambda state: replace(counts, learner=learner(state)),
            assumptions=list_assumed(counts),
        )
        # The next stage begins with the reported model, and the components of its rows.
        stages[-1] = replace(
            rounds,
            result=lambda state: {
                "theta": learner(state).model_of(state),
                **select_components(state),
            },
        )
        stages.append(last)
    return tuple(stages)


def simulate_stages(
    stages: Sequence[RunStage],
) -> Iterator[tuple[RunStage, FederatedAlgorithm, State]]:
    """Yield what every stage computes and begins with, as if all releases before it were zero."""
    result: State = {}
    for stage in stages:
        algorithm = stage.algorithm(result)
        state = {**algorithm.init(), **result}
        yield stage, algorithm, state
        if not state["theta"].size:  # No initial values: all of them are released.
            state["theta"] = np.zeros(stage.plan.dimension)
        result = stage.result(state)


def get_rounds_stage(stages: Sequence[RunStage]) -> RunStage:
    """Return the stage that is the rounds."""
    return next(stage for stage in stages if not stage.name)


def list_extra_stages(stages: Sequence[RunStage]) -> tuple[RunStage, ...]:
    """Return the stages before and after the rounds."""
    return tuple(stage for stage in stages if stage.name)


def list_extra_guarantees(
    stages: Sequence[RunStage], released: Collection[str]
) -> tuple[Guarantee, ...]:
    """Return the guarantees of the completed releases outside the rounds."""
    return tuple(
        guarantee
        for stage in list_extra_stages(stages)
        if stage.name in released
        for guarantee in stage.plan.guarantees
    )


def list_assumptions(stages: Sequence[RunStage], released: Collection[str]) -> tuple[str, ...]:
    """Return the assumptions of the rounds and of the completed releases outside them."""
    counted = (stage for stage in stages if not stage.name or stage.name in released)
    said = (each for stage in counted for each in stage.assumptions)
    return (*said, *get_rounds_stage(stages).plan.assumptions)


def compute_spent(stages: Sequence[RunStage], counts: Iterable[int]) -> dict[Unit, Composition]:
    """Return what a run charges each unit for `counts` releases of its first stages."""
    spent = dict.fromkeys(stages[0].plan.units, Composition())
    for stage, count in zip(stages, counts, strict=False):
        for unit, before in spent.items():
            spent[unit] = before.add(stage.plan.compute_event(unit), count=count)
    return spent


def _apply_components(
    algorithm: FederatedAlgorithm, components: NDArray[np.float64] | None, state: State
) -> FederatedAlgorithm:
    """Return the algorithm on projected rows; public `components` must be those of the state."""
    from parley.client.algorithms.pca_projection import with_components  # noqa: PLC0415 - spares its code for a model without components

    known = state["components"] if components is None else components
    if not np.array_equal(state.get("components", known), known):
        raise JobError(
            "Expected the principal components that the run began with, got others: "
            "model.pca-file or the held-out records have changed."
        )
    return with_components(algorithm, known)
