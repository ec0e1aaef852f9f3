"""Build an audit's target from a job or queries: the same release, of a federation cheap to repeat.

An audit may change only what ε does not depend on: data, start, learning rate, width of the model,
the number of parties and of records. The product's own planner makes a new plan for those.
Mechanism, distribution, calibration, budget, clip, weights, sampler, rounds and steps are the
job's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.query_release import QueryRelease
from parley.client.contract.guarantee import Guarantee
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.party_block import PartyBlock
from parley.client.data.schema import Schema
from parley.client.queries.base import Query, QueryFacts
from parley.client.queries.query_batch import Counting
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.threat_model import (
    NOISE_POINTS,
    Adversary,
    Neighbouring,
    NoisePoint,
    Unit,
)
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job import Job
from parley.server.planning.job_planner import build_algorithm, build_model, plan_release
from parley.server.planning.query_planner import plan_batch
from parley.server.planning.run_stages import COMPONENTS, EVALUATION, PlanInputs
from parley.server.planning.session_terms import SessionTerms
from parley.simulations.audit.audit_job_shrinking import (
    LEARNERS,
    MOMENTS,
    AuditError,
    FederationShape,
    Learner,
    ResponseTraits,
    compute_min_features,
    compute_min_parties,
    compute_min_records,
    get_response_traits,
    shrink_job,
)
from parley.simulations.data.simulated_experiment import Experiment

ROUNDS = ""
"""Name of the stage of a job's rounds."""


@dataclass(frozen=True, kw_only=True)
class AuditTarget:
    """One guarantee of one job or batch of queries, as it is audited.

    Attributes:
        job: with the changes; None for queries.
        guarantee: of the unit.
        charged: the guarantee whose noise charges the unit.
        against: the attacker: the guarantee's own adversary, or readers of the release.
        changed: how the job differs from the requested one, in words.
        records: records of whole trainings, for an attack on the released model; else None.
        by_halves: whether each record is in a trial by a coin.
    """

    job: Job | None
    shape: FederationShape
    algorithm: FederatedAlgorithm
    plan: ReleasePlan
    guarantee: Guarantee
    charged: Guarantee
    against: Adversary
    learner: Learner
    rounds: int = 1
    changed: tuple[str, ...] = ()
    release: str
    records: PartyBlock | None = None
    by_halves: bool = False

    @classmethod
    def from_plan(cls, plan: ReleasePlan, unit: Unit, **own: Any) -> AuditTarget:
        """Build the target of a plan's guarantee for one of its units."""
        guarantee, charged = plan.get_guarantee(unit), plan.get_charging_guarantee(unit)
        if guarantee is None:
            raise AuditError(f"Expected a guarantee for a {unit}, got none.")
        known: dict[str, Any] = {"guarantee": guarantee, "against": charged.against}
        return cls(plan=plan, charged=charged, **known | own)

    @property
    def response(self) -> ResponseTraits:
        """Traits of its parties' responses."""
        return get_response_traits(self.algorithm.kind)

    @property
    def unit(self) -> Unit:
        """Unit of the guarantee."""
        return self.guarantee.unit

    @property
    def sums(self) -> int:
        """Number of secure sums in all releases."""
        return self.rounds * self.plan.steps

    def get_plan(self, number: int) -> ReleasePlan:
        """Return the plan of one of the sums, from 1."""
        release, step = divmod(number - 1, self.plan.steps)
        return self.plan.with_round(self.plan.round_number + release).with_step(step + 1)

    @property
    def by_coins(self) -> bool:
        """Whether a record, or its party, is in a release by a coin that lowers the charge."""
        own = self.charged.mechanism.training or self.charged.mechanism.sampled
        return own is not None and min(own.sampling_rate, own.attendance) < 1

    def compute_claim_fraction(self, epsilon: float) -> float | None:
        """Return ε as a fraction of the claim; None if δ alone covers the claim."""
        return epsilon / self.epsilon if self.epsilon else None

    @property
    def delta(self) -> float:
        """δ of the claim."""
        return self.guarantee.delta

    @cached_property
    def spent(self) -> Composition:
        """Composition of all that the unit is charged against this adversary, cached."""
        event = self.charged.compute_event_against(self.against)
        if event is None:
            raise AuditError(f"Expected a claim against {self.charged.against}, got none.")
        return Composition().add(event, count=self.rounds)

    @property
    def summed(self) -> int:
        """Number of parties whose contributions, and whose noise, the attacker sees.

        With noise inside a party, all others are on the server's side; with noise in shares,
        colluders are. What they know they can subtract.
        """
        if self.before_server:
            return 1
        shares = self.charged.shares
        if shares is not None and self.against is self.charged.against:
            return shares.honest
        return self.shape.parties

    @property
    def epsilon(self) -> float:
        """The claim: ε at δ that all releases are charged."""
        return self.spent.compute_lowest_epsilon(self.delta)[1]

    @property
    def accountant(self) -> str:
        """Accountant of the claim."""
        return self.spent.compute_lowest_epsilon(self.delta)[0]

    @property
    def mu(self) -> float | None:
        """√Σμ² if the claim is a Gaussian curve; else None."""
        return self.spent.mu

    @property
    def before_server(self) -> bool:
        """Whether the claim holds against the server, which sees a sum without its own noise."""
        return self.charged.in_training and self.against is self.charged.against

    @property
    def trains_with_draws(self) -> bool:
        """Whether a party's training samples batches or noise, or the party itself is sampled."""
        own: Any = getattr(self.algorithm, "attendance", None)
        return self.draws_in_training or not (own is None or own.includes_everyone)

    @property
    def draws_in_training(self) -> bool:
        """Whether a party's training samples batches or noise."""
        training: Any = getattr(self.algorithm, "training", None)
        if training is None:
            return self.response.noisy
        noisy = self.response.noisy and training.clip_norm is not None
        return noisy or training.sampling_rate < 1


def build_target(
    job: Job,
    unit: Unit | None = None,
    *,
    stage: str = ROUNDS,
    parties: int | None = None,
    records: int | None = None,
    features: int | None = None,
    seed: int | None = None,
) -> AuditTarget:
    """Build the audited job's target for one of its units (by default the first).

    Args:
        parties: maximum number in a trial; a job with fewer keeps its own. None: two, or five with
            shares.
        records, features: of the smallest party; None: as the attack needs.
        seed: of the trials, for a plan that is marked as seeded; None for entropy.
    """
    wanted = job.budgets[0].unit if unit is None else unit
    _check_request(job, wanted, stage)
    learner = MOMENTS if stage == COMPONENTS else LEARNERS[job.model.learns]
    own = get_response_traits(job.algorithm.kind)
    alone = stage == ROUNDS and own.noisy and job.privacy.unit == "record"
    usual, least = 5 if job.privacy.point.in_contributions else 2, compute_min_parties(job)
    count = least if alone else min(parties or max(usual, least), job.parties.count)
    needed = own.features or compute_min_features(job) if stage == ROUNDS else 0
    shape = FederationShape(
        parties=count,
        records=records or compute_min_records(job),
        features=features or needed or learner.features,
    )
    changed, plain = shrink_job(job, wanted, shape, seed)
    federation = Federation(
        parties=shape.parties,
        min_records=shape.records,
        total_records=shape.parties * shape.records,
        max_records=shape.records,
        schema=learner.schema(shape.features),
    )
    plain = plain.resolve_auto(federation, 2)
    width = shape.features * learner.width
    model = build_model(plain, features=width, classes=2)
    # An audit's rows are already projected.
    components = np.eye(width) if plain.model.component_count else None
    inputs = PlanInputs(
        model=model,
        federation=federation,
        features=width,
        components=None if plain.model.components_share else components,
        run_id="audit",
    )
    _, stages = inputs.build(plain)
    release = next(each for each in stages if each.name == stage)
    return AuditTarget.from_plan(
        release.plan,
        wanted,
        job=plain,
        shape=shape,
        algorithm=release.algorithm({} if components is None else {"components": components}),
        learner=learner,
        rounds=release.rounds,
        changed=changed,
        release=stage or job.algorithm.kind,
    )


def _check_request(job: Job, unit: Unit, stage: str) -> None:
    """Raise AuditError for a unit or a stage that the job does not have, or a deployment."""
    if not job.run.in_process:
        raise AuditError(
            f"Expected run.engine = 'fast', got {job.run.engine!r}: an audit needs the same "
            "records in thousands of trials, and is never part of a deployment."
        )
    if job.algorithm.data_reading:
        raise AuditError(
            f"Expected an algorithm whose records Parley reads, got {job.algorithm.kind!r}. Audit "
            "algorithm.kind = 'fedavg' with the same unit, clip norm and budget: its release has "
            "the same plan."
        )
    units = [each.unit for each in job.budgets]
    if unit not in units:
        raise AuditError(f"Expected a unit of {', '.join(units)}, got {unit}.")
    if stage not in (stages := list_stages(job)):
        known = ", ".join(name or "rounds" for name in stages)
        raise AuditError(f"Expected a release of {known}, got {stage!r}.")


def build_unchanged_target(
    job: Job, world: Experiment, *, by_halves: bool, seed: int | None
) -> AuditTarget:
    """Build the target of an unchanged job's rounds, against readers of the final model.

    Args:
        by_halves: whether a trial holds half of every party's records.

    Raises:
        AuditError: a job without a linear model or a network on the records themselves, or with
            only a party's budget.
    """
    if job.model.learns not in LEARNERS or job.model.component_count:
        raise AuditError(
            "Expected a linear model, or a network on the records themselves, for an attack on "
            f"the released model, got {job.model.kind!r}."
        )
    if Unit.RECORD not in [each.unit for each in job.budgets]:
        raise AuditError(
            "Expected privacy.unit = 'record' or 'both' for an attack on a record, got 'party'."
        )
    features, labels = np.asarray(world.block.features), np.asarray(world.block.labels)
    records = PartyBlock(features=features, labels=labels, offsets=world.block.offsets)
    federation = Federation.from_sizes(records.sizes // 2) if by_halves else world.federation
    values = job.to_values()
    values["run"]["seed"] = "none" if seed is None else seed
    values["parties"]["min-records"] = federation.min_records
    plain = Job.model_validate(values)
    algorithm = build_algorithm(plain, world.model, federation)
    plan = plan_release(plain, algorithm=algorithm, federation=federation, run_id="audit")
    return AuditTarget.from_plan(
        plan,
        Unit.RECORD,
        job=plain,
        shape=FederationShape(
            parties=federation.parties, records=federation.min_records, features=features.shape[1]
        ),
        algorithm=algorithm,
        against=Adversary.READERS,
        learner=LEARNERS[job.model.learns],
        rounds=plain.rounds,
        release=job.algorithm.kind,
        records=records,
        by_halves=by_halves,
    )


def list_stages(job: Job) -> tuple[str, ...]:
    """Return the names of what a job releases: before its rounds, the rounds, after them."""
    ahead = (COMPONENTS,) if job.model.components_share else ()
    after = (EVALUATION,) if job.evaluation.is_requested else ()
    return (*ahead, ROUNDS, *after)


def build_query_target(
    queries: Sequence[Query],
    schema: Schema,
    *,
    epsilon: float,
    delta: float = 1e-5,
    neighbouring: Neighbouring = Neighbouring.REPLACE_ONE,
    noise_point: NoisePoint = NOISE_POINTS["server"],
    law: str = "auto",
    shares: Sequence[float] | None = None,
    records: int = 2,
    counting: Counting | None = None,
    seed: int | None = None,
) -> AuditTarget:
    """Build the target of one batch of queries, with the sessions' planner, for few public records.

    Raises:
        QueryError, SchemaError, CalibrationError, RingTooSmall: as for a session.
    """
    split = noise_point.in_contributions
    parties = 5 if split else 2
    how = counting or Counting()
    private = how.is_size_private(neighbouring)
    terms = SessionTerms(
        facts=QueryFacts(
            schema=schema,
            neighbouring=how.get_relation(neighbouring),
            records=None if private else parties * records,
        ),
        parties=parties,
        min_records=1 if private else records,
        most_records=records,
        min_survivors=4 if split else 1,
        corrupt=1 if split else 0,
        noise_point=noise_point,
        delta=delta,
        seeded=seed is not None,
        counting=how,
        relation=neighbouring,
    )
    planned = plan_batch(
        queries, terms, epsilon=epsilon, run_id="audit", number=1, law=law, shares=shares
    )
    return AuditTarget.from_plan(
        planned.plan,
        planned.plan.primary.unit,
        job=None,
        shape=FederationShape(parties=parties, records=records, features=1),
        algorithm=QueryRelease(
            batch=planned.batch, neighbouring=neighbouring, counting=planned.counting, schema=schema
        ),
        learner=LEARNERS["nothing"],
        release=", ".join(query.kind for query in queries),
    )
