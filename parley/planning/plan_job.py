"""What a budget buys, before any data is touched: noise, ε by round, grid, alternatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from parley.client.algorithms.registry import kind_of
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.record_codes import coded_columns
from parley.client.data.schema import Schema
from parley.planning.simulation_cost import simulation_ahead
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import Event
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.calibration.noise_calibration import (
    GAUSSIAN_CALIBRATIONS,
    CalibrationError,
    stated_delta,
)
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.registry import MECHANISMS
from parley.safe_io.path_names import public_name
from parley.secure_agg.encoding import RingTooSmall
from parley.server.jobs.external_references import code_named_by
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job import Job
from parley.server.jobs.section_base import JobError
from parley.server.planning.budget_check import JobUnaffordable, budgets_of, check_affordable
from parley.server.planning.job_planner import model_for
from parley.server.planning.noise_scale import mechanism_for
from parley.server.planning.run_stages import EVALUATION, Stage, rounds_of
from parley.server.planning.stage_planner import plan_stages
from parley.server.records.data_budgets import accounts_in_ledger
from parley.server.records.guarantees import guarantee_outlook, noise_of, record_bounds
from parley.server.records.plan_parts import (
    Alternative,
    DistributedOutlook,
    DpSgdOutlook,
    EvaluationOutlook,
    Offer,
    SyntheticOutlook,
)
from parley.server.records.plan_summary import Outlook
from parley.server.records.summary_builder import CONFIDENCE, fraction_deviation, noise_on_counts
from parley.simulations.data.public_shape import public_shape, width_of


@dataclass(frozen=True, kw_only=True)
class _Planned:
    """A job that was planned from public facts alone."""

    job: Job
    algorithm: Any
    federation: Federation
    stages: tuple[Stage, ...]
    seconds_a_step: float

    @property
    def release(self) -> ReleasePlan:
        """The plan of every round."""
        return rounds_of(self.stages).plan

    @property
    def ahead(self) -> tuple[Stage, ...]:
        """What is released before the first round."""
        return self.stages[: self.stages.index(rounds_of(self.stages))]


SECONDS_A_STEP = 1.1
"""What a secure sum of 50 real processes on one machine takes (docs/benchmarks-network.md)."""


def plan(job: Job, *, seconds_a_step: float = SECONDS_A_STEP, trust_code: bool = False) -> Outlook:
    """The outlook of a job.

    Args:
        seconds_a_step: what a secure sum takes where it will run, measured or supposed: for the
            hours of distributed DP-SGD.
        trust_code: run what the job names of code: its claim, its loss or its network is planned.

    Raises:
        JobError: the parties' sizes or the columns are not known without the data; or the job names
            code that is not trusted, none of which was run.
        CalibrationError, RingTooSmall: the job's own choice cannot give the budget.
    """
    if not 0 < seconds_a_step < math.inf:
        raise ValueError(f"Expected seconds_a_step > 0, got {seconds_a_step}.")
    for code in () if trust_code else code_named_by(job):
        raise JobError(
            f"Expected --trust-code (trust_code=True) with a job that names code, got "
            f"{code.key} = {code.value!r}, which a plan would run. Read it first; "
            "none of it was run."
        )
    shape = public_shape(job)
    federation = _of_size(job.parties.count, shape.min_records, schema=shape.schema)
    chosen = job.reasons(federation, shape.classes)
    job = job.settled(federation, shape.classes)
    features = width_of(job, shape.schema)
    # A plan needs the parameters' number: they are counted on the CPU wherever they are trained.
    on_cpu = job.model_copy(update={"run": job.run.model_copy(update={"device": "cpu"})})
    model = model_for(on_cpu, features=features, classes=shape.classes)
    algorithm, stages = plan_stages(job, model, federation=federation, features=features)
    planned = _Planned(
        job=job,
        algorithm=algorithm,
        federation=federation,
        stages=stages,
        seconds_a_step=seconds_a_step,
    )
    release = planned.release
    refusal = _refusal(job, stages)
    facts = {
        "algorithm": public_name(job.algorithm.kind),
        "algorithm_title": kind_of(job.algorithm.kind).title,
        "model": public_name(job.model.kind),
        "class_weights": job.model.weights_of_classes or None,
        "dimension": release.parameters,
        "parties": federation.parties,
        "min_records": federation.min_records,
        "min_records_from": shape.origin,
        "rounds": job.rounds,
        "chosen": chosen,
        "guarantees": [
            guarantee_outlook(job, stages, own, asked)
            for own, asked in zip(release.guarantees, job.budgets, strict=True)
        ],
        "record_bounds": record_bounds(release, rounds=job.rounds),
        "evaluation": _evaluation(stages),
        "grid": {
            "ring_bits": release.encoding.ring_bits,
            "scale_bits": release.encoding.scale_bits,
            "inflation": release.inflation,
            "largest_sum": federation.parties * release.encoding.largest,
            "noise_tail": release.primary.drawn_tail(2.0**-50),
        },
    }
    more = _MORE[job.algorithm.outlook]
    accounts, note = accounts_in_ledger(job, stages)
    rest = {
        "refusal": refusal,
        "simulation": simulation_ahead(job, algorithm, release, federation),
        "data_accounts": accounts or None,
        "data_note": note or None,
    }
    return Outlook.model_validate(facts | rest | more(planned))


def _refusal(job: Job, stages: Sequence[Stage]) -> str | None:
    """Return why a run would refuse the job for what it costs; None if it would not."""
    try:
        check_affordable(job, stages, budgets_of(job, rounds_of(stages).plan, "planned"))
    except JobUnaffordable as error:
        return str(error)
    return None


def _evaluation(stages: Sequence[Stage]) -> EvaluationOutlook | None:
    """The release after the rounds, if there is one."""
    stage = next((each for each in stages if each.name == EVALUATION), None)
    if stage is None:
        return None
    own = stage.plan.primary
    spent = Composition.empty().add(own.event)
    return EvaluationOutlook(
        epsilon=spent.epsilon(own.delta)[1],
        delta=own.delta,
        law=own.mechanism.law,
        counts=stage.plan.dimension,
        within=noise_on_counts(stage.plan),
        confidence=CONFIDENCE,
    )


def _of_size(parties: int, records: int, *, schema: Schema) -> Federation:
    """Parties of equal size, which is all that is public."""
    return Federation(
        parties=parties,
        min_records=records,
        total_records=parties * records,
        max_records=records,
        schema=schema.to_toml(),
        numbers=schema.numbers,
        columns=len(schema.features),
    )


def _of_noise_on_the_sum(planned: _Planned) -> dict[str, Any]:
    """What other calibrations, laws and federations would give."""
    job, release = planned.job, planned.release
    sensitivity = release.primary.sensitivity / planned.federation.parties

    def offer(*, law: str, calibration: str) -> Offer:
        try:
            mechanism = mechanism_for(
                job,
                sensitivity=sensitivity,
                dimension=release.dimension,
                law=law,
                calibration=calibration,
            )
        except (CalibrationError, JobError) as error:
            return Offer(refused=str(error))
        return _offer(mechanism, job, growth=release.primary.noise_growth)

    calibrations = GAUSSIAN_CALIBRATIONS if job.privacy.delta > 0 else ()
    return {
        "lipschitz": release.lipschitz,
        "lambda": release.lambda_,
        "sensitivity": sensitivity,
        "calibrations": {name: offer(law="gaussian", calibration=name) for name in calibrations},
        "noise_laws": {
            law: offer(law=law, calibration=_calibration(law, job)) for law in MECHANISMS
        },
        "alternatives": _alternatives(planned),
    }


def _offer(mechanism: Mechanism, job: Job, *, growth: float) -> Offer:
    """Return a mechanism's noise, and what all rounds are charged at the job's δ.

    Args:
        growth: How much larger the noise of all parties' shares is than what is charged.
    """
    spent = Composition.empty().add(mechanism.event(), count=job.rounds)
    conversion, epsilon = spent.epsilon(stated_delta(mechanism.law, job.privacy.delta))
    return Offer(
        scale=mechanism.scale,
        expected_norm=mechanism.expected_norm() * growth,
        epsilon_charged=epsilon,
        conversion=conversion,
    )


def _calibration(law: str, job: Job) -> str:
    """The job's, or where it isn't proved for a law the tightest that is."""
    asked, proved = job.privacy.calibration, MECHANISMS[law].calibrations
    return asked if not proved or asked in proved else [*proved][-1]


def _alternatives(planned: _Planned) -> list[Alternative]:
    """The chosen law's noise for other numbers of parties and records."""
    job, rows = planned.job, []
    for parties in _around(planned.federation.parties):
        for records in _around(planned.federation.min_records):
            schema = Schema.from_toml(planned.federation.schema)
            facts = _of_size(parties, records, schema=schema).facts(job.parties.weights)
            try:
                sensitivity = planned.algorithm.claim(facts).sensitivity / parties
                mechanism = mechanism_for(
                    job, sensitivity=sensitivity, dimension=planned.release.dimension
                )
                growth = _growth(planned, parties)
            except (CalibrationError, RingTooSmall, ValueError):
                continue
            rows.append(
                Alternative(
                    parties=parties,
                    min_records=records,
                    sensitivity=sensitivity,
                    scale=mechanism.scale,
                    expected_norm=mechanism.expected_norm() * growth,
                )
            )
    return rows


def _growth(planned: _Planned, parties: int) -> float:
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


def _around(value: int) -> list[int]:
    return sorted({max(1, value // 4), value, value * 4, value * 16})


def _of_training(planned: _Planned) -> dict[str, Any]:
    """How the parties train: rate, steps, noise multiplier, clips."""
    training, release = planned.algorithm.training, planned.release
    record = release.primary.unit is Unit.RECORD
    party = release.of(Unit.PARTY)
    ahead = planned.ahead
    return {
        "dp_sgd": DpSgdOutlook(
            sampling_rate=training.sampling_rate,
            expected_batch=training.sampling_rate * planned.federation.min_records,
            steps_per_round=training.steps,
            gradients=f"whole numbers of 2^-{training.grid_bits}"
            if training.exact
            else training.per_example_method,
            noise_multiplier=training.noise_multiplier if record else None,
            gradient_multiplier=training.gradient_multiplier if record else None,
            clipped_fraction_share=training.clipped_share,
            clipped_fraction_deviation=fraction_deviation(release, parties=release.parties),
            clip_norm=training.clip_norm,
            party_clip_norm=None if party is None else party.clip_norm,
            components_mu=_mu(ahead[0].plan.event(release.primary.unit)) if ahead else None,
        )
    }


def _of_distributed(planned: _Planned) -> dict[str, Any]:
    """The same for steps that are secure sums, and what T of them take."""
    own = _of_training(planned)["dp_sgd"]
    mechanism, training = planned.release.sampled[0], planned.algorithm.training
    record = planned.release.primary.unit is Unit.RECORD
    sigma = mechanism.multiplier if record else None
    steps = planned.algorithm.steps
    return {
        "dp_sgd": own.model_copy(
            update={
                "expected_batch": planned.algorithm.expected_batch,
                "noise_multiplier": sigma,
                "gradient_multiplier": sigma,
            }
        ),
        "distributed": DistributedOutlook(
            steps=steps,
            optimiser=training.optimiser,
            vector_bytes=planned.release.dimension * planned.release.encoding.ring_bits // 8,
            hours=steps * planned.seconds_a_step / 3600,
            seconds_a_step=planned.seconds_a_step,
        ),
    }


def _of_tables(planned: _Planned) -> dict[str, Any]:
    """Cells, and the noise of one beside the records that the average one holds."""
    tables, federation = planned.algorithm, planned.federation
    columns = coded_columns(Schema.from_toml(federation.schema))
    widest = sorted(columns, key=lambda column: -column.size)[:3]
    return _synthetic(
        planned,
        released=f"{len(tables.pairs):,} tables of {len(columns)} columns, "
        f"{tables.dimension:,} cells",
        average=federation.total_records * len(tables.pairs) / tables.dimension,
        largest=tuple((column.name, column.size) for column in widest),
    )


def _of_sums(planned: _Planned) -> dict[str, Any]:
    """Features of every class, and how long the noise on their mean is: a record's is 1 long."""
    summed = planned.algorithm
    return _synthetic(
        planned,
        released=f"{2 * summed.frequencies:,} random features of {summed.features:,} cells in "
        f"each of {summed.classes} classes and their counts, {summed.dimension:,} coordinates",
    )


def _synthetic(planned: _Planned, **more: Any) -> dict[str, Any]:
    """The one release that synthetic records are made from."""
    job, release = planned.job, planned.release
    noise = noise_of(job, release, release.primary, engine=job.run.engine)
    one = (noise.scale_of_sum or 0.0) * (noise.shares.inflation if noise.shares else 1.0)
    found = SyntheticOutlook(
        sensitivity=release.primary.sensitivity * (1 + release.inflation),
        noise=one,
        noise_norm=one * math.sqrt(release.dimension) / planned.federation.total_records,
        vector_bytes=release.dimension * release.encoding.ring_bits // 8,
        **more,
    )
    return {"synthetic": found}


_MORE: dict[str, Callable[[_Planned], dict[str, Any]]] = {
    "noise": _of_noise_on_the_sum,
    "training": _of_training,
    "steps": _of_distributed,
    "tables": _of_tables,
    "features": _of_sums,
}
"""What an outlook says beside the guarantees, by what an algorithm's form says of itself."""


def _mu(event: Event) -> float:
    """μ of the release of components: one Gaussian."""
    return Composition.of([event]).mu or 0.0
