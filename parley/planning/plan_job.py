"""Plan a job before any data are read: noise, ε by round, grid, alternatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from parley.client.algorithms.registry import get_algorithm_spec
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.record_discretization import build_coded_columns
from parley.client.data.schema import Schema
from parley.client.own_code.own_code_names import get_public_name
from parley.planning.planned_costs import build_planned_guarantees
from parley.planning.simulation_cost import estimate_simulation
from parley.presentation.plan_page import list_plan_lines
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.rounding import format_exact
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.calibration.noise_calibration import (
    GAUSSIAN_CALIBRATIONS,
    CalibrationError,
    compute_stated_delta,
)
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.registry import MECHANISMS
from parley.run_request import build_run_request, is_job
from parley.safe_io.plurals import format_noun
from parley.secure_agg.encoding import RingTooSmall
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job import Job
from parley.server.jobs.machine_references import find_code_references
from parley.server.jobs.section_base import JobError
from parley.server.planning.budget_check import JobUnaffordable, build_budgets
from parley.server.planning.job_planner import build_model
from parley.server.planning.noise_scale import calibrate_mechanism
from parley.server.planning.principal_components import load_public_components
from parley.server.planning.run_stages import EVALUATION, PlanInputs, RunStage, get_rounds_stage
from parley.server.planning.stage_planner import check_cost, plan_stages
from parley.server.records.clipped_fraction import compute_fraction_deviation
from parley.server.records.data_budgets import load_ledger_outlook
from parley.server.records.evaluation_summary import CONFIDENCE, bound_count_noise
from parley.server.records.guarantee_costs import compute_record_bounds, summarize_noise
from parley.server.records.plan_summary import PlanSummary
from parley.server.records.plan_summary_parts import (
    NoiseAlternative,
    PlannedDpSgd,
    PlannedEvaluation,
    PlannedSecureSteps,
    PlannedSynthetic,
    SizeAlternative,
)
from parley.simulations.data.job_feature_map import compute_width
from parley.simulations.data.public_shape import get_public_shape
from parley.simulations.engine.sum_parameters import check_sum


@dataclass(frozen=True, kw_only=True)
class _Planned:
    """A job planned from public facts only."""

    job: Job
    algorithm: Any
    federation: Federation
    stages: tuple[RunStage, ...]
    step_s: float

    @property
    def release(self) -> ReleasePlan:
        """Plan of every round."""
        return get_rounds_stage(self.stages).plan

    @property
    def stages_before_rounds(self) -> tuple[RunStage, ...]:
        """Releases before the first round."""
        return self.stages[: self.stages.index(get_rounds_stage(self.stages))]


class Plan(PlanSummary):
    """A plan that prints itself, in at most 15 lines."""

    def __repr__(self) -> str:
        budget = format_exact(self.primary.epsilon_budget)
        return (
            f"<Plan {self.model.rpartition(':')[2]}, {self.parties} "
            f"{format_noun(self.parties, 'party')}, epsilon={budget}, {self.rounds} "
            f"{format_noun(self.rounds, 'round')}>"
        )

    def __str__(self) -> str:
        return "\n".join(list_plan_lines(self))

    def _repr_html_(self) -> str:
        """Return the lines that the terminal prints."""
        return f"<pre>{escape(str(self))}</pre>"


SECONDS_PER_STEP = 1.1
"""Seconds of a secure sum of 50 real processes on one machine (docs/benchmarks-speed.md)."""


def plan(
    what: Any = None,
    *,
    job: Job | Mapping[str, Any] | str | Path | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    parties: int | None = None,
    unit: str | None = None,
    model: Any = None,
    algorithm: str | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    engine: str | None = None,
    seconds_a_step: float = SECONDS_PER_STEP,
    trust_code: bool = False,
) -> Plan:
    """Compute what a budget buys before any data are read: noise, rounds, an attacker's success.

    >>> plan(epsilon=1, parties=5)
    <Plan logistic, 5 parties, epsilon=1, 11 rounds>

    Args:
        what: a job: a `Job`, a .toml file, or a dictionary of its keys; None: the default job.
        job: the same; a keyword wins over the same key in it.
        epsilon, delta, parties, unit, model, algorithm, rounds, seed, engine: keys of the job.
        seconds_a_step: what a secure sum takes where it will run, measured or supposed: for the
            hours of distributed DP-SGD.
        trust_code: run what the job names of code: its claim, its loss or its network is planned.

    Raises:
        JobError: the parties' sizes or the columns are not known without the data; or the job names
            code that is not trusted, none of which was run.
        CalibrationError, RingTooSmall: the job's own choice cannot give the budget.
    """
    if not 0 < seconds_a_step < math.inf:
        raise JobError(f"Expected seconds_a_step > 0, got {seconds_a_step}.")
    if what is not None and not is_job(what):
        raise JobError(
            "Expected a job, its file or its keys, got data: a plan reads none. Give it the sizes: "
            'parley.plan(job={"parties.min-records": 500}, parties=5).'
        )
    request = build_run_request(
        what, job=job, epsilon=epsilon, delta=delta, parties=parties, unit=unit, model=model,
        algorithm=algorithm, rounds=rounds, seed=seed, engine=engine,
    )  # fmt: skip
    trusted = trust_code or (model is not None and not isinstance(model, str))
    return _plan_job(request.job, seconds_a_step=seconds_a_step, trust_code=trusted)


def _plan_job(job: Job, *, seconds_a_step: float, trust_code: bool) -> Plan:
    for code in () if trust_code else find_code_references(job):
        raise JobError(
            f"Expected --trust-code (trust_code=True) with a job that names code, got {code.key} = "
            f"{code.value!r}, which a plan would run. Read it first; none of it was run."
        )
    shape = get_public_shape(job)
    federation = _build_equal_federation(job.parties.count, shape.min_records, schema=shape.schema)
    chosen = job.explain_auto(federation, shape.classes)
    job = job.resolve_auto(federation, shape.classes)
    features = compute_width(job, shape.schema)
    # A plan needs the parameters' number: they are counted on the CPU wherever they are trained.
    on_cpu = job.model_copy(update={"run": job.run.model_copy(update={"device": "cpu"})})
    model = build_model(on_cpu, features=features, classes=shape.classes)
    inputs = PlanInputs(model=model, federation=federation, features=features)
    algorithm, stages = plan_stages(job, inputs)
    planned = _Planned(
        job=job, algorithm=algorithm, federation=federation, stages=stages, step_s=seconds_a_step
    )
    release = planned.release
    if job.model.components_file:
        load_public_components(job, features=features)  # refused here if they do not fit
    check_sum(job, release)
    refusal = _find_refusal(planned, inputs)
    facts = {
        "algorithm": get_public_name(job.algorithm.kind),
        "algorithm_title": get_algorithm_spec(job.algorithm.kind).title,
        "model": get_public_name(job.model.kind),
        "class_weights": job.model.label_weights or None,
        "dimension": release.parameters,
        "parties": federation.parties,
        "min_records": federation.min_records,
        "min_records_from": shape.origin,
        "rounds": job.rounds,
        "chosen": chosen,
        "guarantees": build_planned_guarantees(job, stages),
        "record_bounds": compute_record_bounds(release, rounds=job.rounds),
        "evaluation": _plan_evaluation(stages),
        "grid": {
            "ring_bits": release.encoding.ring_bits,
            "scale_bits": release.encoding.scale_bits,
            "inflation": release.inflation,
            "largest_sum": federation.parties * release.encoding.max_integer,
            "noise_tail": release.primary.compute_drawn_tail(2.0**-50),
        },
    }
    more = _PLANNERS[job.algorithm.plan_detail]
    ledger = load_ledger_outlook(job, stages)
    rest = {
        "refusal": refusal or ledger.refusal,
        "simulation": estimate_simulation(job, algorithm, release, federation),
        "data_accounts": ledger.accounts or None,
        "data_note": ledger.note or None,
    }
    return Plan.model_validate(facts | rest | more(planned))


def _find_refusal(planned: _Planned, inputs: PlanInputs) -> str | None:
    """Return why a run would refuse the job for what it costs; None if it would not."""
    job, stages = planned.job, planned.stages
    budgets = build_budgets(job, planned.release, "planned")
    try:
        check_cost(job, stages, budgets, inputs)
    except JobUnaffordable as error:
        return str(error)
    return None


def _plan_evaluation(stages: Sequence[RunStage]) -> PlannedEvaluation | None:
    """Plan the release after the rounds, if there is one."""
    stage = next((each for each in stages if each.name == EVALUATION), None)
    if stage is None:
        return None
    own = stage.plan.primary
    return PlannedEvaluation(
        epsilon=Composition.from_events([own.event]).compute_lowest_epsilon(own.delta)[1],
        delta=own.delta,
        law=own.mechanism.law,
        counts=stage.plan.dimension,
        within=bound_count_noise(stage.plan),
        confidence=CONFIDENCE,
    )


def _build_equal_federation(parties: int, records: int, *, schema: Schema | None) -> Federation:
    """Build parties of equal size, because only that is public."""
    return Federation(
        parties=parties,
        min_records=records,
        total_records=parties * records,
        max_records=records,
        schema="" if schema is None else schema.to_toml(),
        numbers=0 if schema is None else schema.number_count,
        columns=0 if schema is None else len(schema.features),
    )


def _plan_sum_noise(planned: _Planned) -> dict[str, Any]:
    """Compute what other calibrations, noise distributions and federations would give."""
    job, release = planned.job, planned.release
    sensitivity = release.primary.sensitivity / planned.federation.parties
    calibrate = partial(calibrate_mechanism, job, dimension=release.dimension)

    def offer(*, law: str, calibration: str) -> NoiseAlternative:
        try:
            mechanism = calibrate(sensitivity=sensitivity, law=law, calibration=calibration)
        except (CalibrationError, JobError) as error:
            return NoiseAlternative(refused=str(error))
        return _build_offer(mechanism, job, growth=release.primary.noise_growth)

    calibrations = GAUSSIAN_CALIBRATIONS if job.privacy.delta > 0 else ()
    return {
        "lipschitz": release.lipschitz,
        "lambda": release.lambda_,
        "sensitivity": sensitivity,
        "calibrations": {name: offer(law="gaussian", calibration=name) for name in calibrations},
        "noise_laws": {
            law: offer(law=law, calibration=_choose_calibration(law, job)) for law in MECHANISMS
        },
        "alternatives": _list_alternatives(planned),
    }


def _build_offer(mechanism: Mechanism, job: Job, *, growth: float) -> NoiseAlternative:
    """Return a mechanism's noise, and what all rounds are charged at the job's δ.

    Args:
        growth: How much larger the noise of all parties' shares is than what is charged.
    """
    spent = Composition().add(mechanism.event(), count=job.rounds)
    delta = compute_stated_delta(mechanism.law, job.privacy.delta)
    conversion, epsilon = spent.compute_lowest_epsilon(delta)
    return NoiseAlternative(
        scale=mechanism.scale,
        expected_norm=mechanism.expected_norm() * growth,
        epsilon_charged=epsilon,
        conversion=conversion,
    )


def _choose_calibration(law: str, job: Job) -> str:
    """Return the job's calibration, or the tightest one that is proved for the distribution."""
    asked, proved = job.privacy.calibration, MECHANISMS[law].calibrations
    return asked if not proved or asked in proved else [*proved][-1]


def _list_alternatives(planned: _Planned) -> list[SizeAlternative]:
    """List the noise of the chosen distribution for other numbers of parties and records."""
    job, rows = planned.job, []
    for parties in _list_multiples(planned.federation.parties):
        for records in _list_record_counts(planned.federation):
            federation = replace(
                planned.federation,
                parties=parties,
                min_records=records,
                max_records=records,
                total_records=parties * records,
            )
            facts = federation.to_public_facts(job.parties.weights)
            try:
                sensitivity = planned.algorithm.claim(facts).sensitivity / parties
                dimension = planned.release.dimension
                mechanism = calibrate_mechanism(job, sensitivity=sensitivity, dimension=dimension)
                growth = _compute_noise_growth(planned, parties)
            except (CalibrationError, RingTooSmall, ValueError):
                continue
            rows.append(
                SizeAlternative(
                    parties=parties,
                    min_records=records,
                    sensitivity=sensitivity,
                    scale=mechanism.scale,
                    expected_norm=mechanism.expected_norm() * growth,
                )
            )
    return rows


def _compute_noise_growth(planned: _Planned, parties: int) -> float:
    """Return how much larger the noise of so many parties' shares is than what is charged.

    Raises:
        ValueError: so many parties cannot share the noise as the job asks.
    """
    if planned.release.primary.shares is None:
        return 1.0
    count = planned.job.parties.model_copy(update={"count": parties})
    job = planned.job.model_copy(update={"parties": count})
    least, colluders = job.privacy.point.split(least=job.min_survivors, colluders=job.corrupt)
    if not 0 < least - colluders <= parties:
        raise ValueError(f"Expected at most {parties} honest parties, got {least - colluders}.")
    return math.sqrt(parties / (least - colluders))


def _list_record_counts(federation: Federation) -> list[int]:
    """List numbers of records per party to compare; one if Parley does not read them."""
    return _list_multiples(federation.min_records) if federation.schema else [1]


def _list_multiples(value: int) -> list[int]:
    return sorted({max(1, value // 4), value, value * 4, value * 16})


def _plan_training(planned: _Planned) -> dict[str, Any]:
    """Plan the parties' training: rate, steps, noise multiplier, clips."""
    training, release = planned.algorithm.training, planned.release
    record = release.primary.unit is Unit.RECORD
    party = release.get_guarantee(Unit.PARTY)
    grid, mu = f"whole numbers of 2^-{training.grid_bits}", None
    for stage in planned.stages_before_rounds[:1]:
        mu = Composition.from_events([stage.plan.compute_event(release.primary.unit)]).mu or 0.0
    return {
        "dp_sgd": PlannedDpSgd(
            sampling_rate=training.sampling_rate,
            expected_batch=training.sampling_rate * planned.federation.min_records,
            steps_per_round=training.steps,
            gradients=grid if training.exact else training.per_example_method,
            noise_multiplier=training.noise_multiplier if record else None,
            gradient_multiplier=training.gradient_multiplier if record else None,
            clipped_fraction_share=training.clipped_share,
            clipped_fraction_deviation=compute_fraction_deviation(release, parties=release.parties),
            clip_norm=training.clip_norm,
            party_clip_norm=None if party is None else party.clip_norm,
            components_mu=mu,
        )
    }


def _plan_distributed(planned: _Planned) -> dict[str, Any]:
    """Plan training with steps that are secure sums, and their time."""
    own = _plan_training(planned)["dp_sgd"]
    mechanism, training = planned.release.sampled_noises[0], planned.algorithm.training
    sigma = mechanism.multiplier if planned.release.primary.unit is Unit.RECORD else None
    steps = planned.algorithm.steps
    noise = {"noise_multiplier": sigma, "gradient_multiplier": sigma}
    batch = {"expected_batch": planned.algorithm.expected_batch}
    return {
        "dp_sgd": own.model_copy(update=noise | batch),
        "distributed": PlannedSecureSteps(
            steps=steps,
            optimiser=training.optimiser,
            vector_bytes=planned.release.dimension * planned.release.encoding.ring_bits // 8,
            hours=steps * planned.step_s / 3600,
            seconds_a_step=planned.step_s,
        ),
    }


def _plan_tables(planned: _Planned) -> dict[str, Any]:
    """Plan tables: their cells, a cell's noise, and the records that an average cell holds."""
    tables, federation = planned.algorithm, planned.federation
    columns = build_coded_columns(Schema.from_toml(federation.schema))
    widest = sorted(columns, key=lambda column: -column.size)[:3]
    return _plan_synthetic(
        planned,
        released=f"{len(tables.pairs):,} tables of {len(columns)} columns, "
        f"{tables.dimension:,} cells",
        average=federation.total_records * len(tables.pairs) / tables.dimension,
        largest=tuple((column.name, column.size) for column in widest),
    )


def _plan_feature_sums(planned: _Planned) -> dict[str, Any]:
    """Plan sums of features per class: the length of the noise on their mean, relative to one
    record's.
    """
    summed = planned.algorithm
    return _plan_synthetic(
        planned,
        released=f"{2 * summed.frequencies:,} random features of {summed.features:,} cells in "
        f"each of {summed.classes} classes and their counts, {summed.dimension:,} coordinates",
    )


def _plan_synthetic(planned: _Planned, **more: Any) -> dict[str, Any]:
    """Plan the single release that synthetic records are made from."""
    job, release = planned.job, planned.release
    noise = summarize_noise(job, release, release.primary, engine=job.run.engine)
    one = (noise.scale_of_sum or 0.0) * (noise.shares.inflation if noise.shares else 1.0)
    found = PlannedSynthetic(
        sensitivity=release.primary.sensitivity * (1 + release.inflation),
        noise=one,
        noise_norm=one * math.sqrt(release.dimension) / planned.federation.total_records,
        vector_bytes=release.dimension * release.encoding.ring_bits // 8,
        **more,
    )
    return {"synthetic": found}


_PLANNERS: dict[str, Callable[[_Planned], dict[str, Any]]] = {
    "noise": _plan_sum_noise,
    "training": _plan_training,
    "steps": _plan_distributed,
    "tables": _plan_tables,
    "features": _plan_feature_sums,
}
"""Functions that plan more than the guarantees, by a property of the algorithm's section."""
