"""From a job to what is audited: the same release, of a federation that is cheap to repeat.

An audit may change what ε does not depend on: data, start, learning rate, width of the model, the
number of parties and of records. The plan is made anew for those by the product's own planner;
mechanism, law, calibration, budget, clip, weights, sampler, rounds and steps are the job's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.contract.guarantee import Guarantee
from parley.client.contract.plan import ReleasePlan
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.guarantee import Adversary, Unit
from parley.server.jobs.job import Job, JobError
from parley.server.planning.federation import Federation
from parley.server.planning.release import algorithm_for, model_for, plan_release
from parley.server.planning.stages import stages_of
from parley.simulations.audit.scores import sampling_rate
from parley.simulations.audit.shapes import LEARNERS, MOMENTS, Answer, Learner, answer_of

__all__ = ["AuditError", "Audited", "Shape", "ahead_of", "as_it_runs", "audited"]

LEARNING_RATE = 1e-9
"""Keeps θ where the canary's gradient is full: the step is post-processing of what is released."""

_LARGEST_PARTY = 1000
"""Records: more than this are not laid out for every world."""


class AuditError(ValueError):
    """What cannot be audited, and what can."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The federation of one world.

    Attributes:
        parties: m.
        records: n of the smallest party.
        features: p.
    """

    parties: int
    records: int
    features: int


@dataclass(frozen=True, kw_only=True)
class Audited:
    """One guarantee of one job, as it is audited.

    Attributes:
        job: with the changes.
        shape: of a world.
        algorithm, plan, federation: of that job, by the product's planner.
        guarantee: of the unit, and whose event charges it.
        charged: the guarantee whose noise charges the unit.
        against: who looks: the guarantee's own adversary, or whoever reads what is released.
        learner: what its worlds look like.
        rounds: number of releases.
        changed: how the job differs from the one that was asked for, in words.
    """

    job: Job
    shape: Shape
    algorithm: FederatedAlgorithm
    plan: ReleasePlan
    federation: Federation
    guarantee: Guarantee
    charged: Guarantee
    against: Adversary
    learner: Learner
    rounds: int
    changed: tuple[str, ...]

    @property
    def answer(self) -> Answer:
        """What its parties answer."""
        return answer_of(self.algorithm.kind)

    @property
    def unit(self) -> Unit:
        """Whose guarantee it is."""
        return self.guarantee.unit

    @property
    def sums(self) -> int:
        """Secure sums of all releases."""
        return self.rounds * self.plan.steps

    def plan_of(self, number: int) -> ReleasePlan:
        """The plan of one of the sums, from 1."""
        release, step = divmod(number - 1, self.plan.steps)
        return self.plan.at_round(self.plan.round_number + release).at_step(step + 1)

    @property
    def sampling_rate(self) -> float:
        """q that the releases are charged at."""
        return sampling_rate(self.charged.mechanism)

    @property
    def delta(self) -> float:
        """δ of the claim."""
        return self.guarantee.delta

    @property
    def spent(self) -> Composition:
        """All that the unit is charged against this adversary."""
        event = self.charged.event_against(self.against)
        if event is None:
            raise AuditError(f"Expected a claim against {self.charged.against}, got none.")
        return Composition.empty().add(event, count=self.rounds)

    @property
    def summed(self) -> int:
        """Parties whose contributions, and whose noise, make up what is seen.

        Where noise is inside a party, all others are on the server's side; where it is in shares,
        colluders are. What they know they can take off.
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
        return self.spent.epsilon(self.delta)[1]

    @property
    def accountant(self) -> str:
        """By whose account."""
        return self.spent.epsilon(self.delta)[0]

    @property
    def mu(self) -> float | None:
        """√Σμ², where the claim is a Gaussian curve; else None."""
        return self.spent.mu

    @property
    def before_server(self) -> bool:
        """Whether the claim holds against the server: what it sees has no noise of its own yet."""
        return self.charged.in_training and self.against is self.charged.against

    @property
    def trains_with_draws(self) -> bool:
        """Whether a party's training draws batches or noise."""
        training: Any = getattr(self.algorithm, "training", None)
        if training is None:
            return False
        noisy = self.answer.noisy and training.clip_norm is not None
        return noisy or training.sampling_rate < 1

    @property
    def draws_in_party(self) -> bool:
        """Whether a party draws anything: two worlds of the same records then differ."""
        return self.trains_with_draws or self.plan.shared is not None


def audited(
    job: Job,
    unit: Unit | None = None,
    *,
    ahead: bool = False,
    against: Adversary | None = None,
    parties: int | None = None,
    records: int | None = None,
    features: int | None = None,
    seed: int | None = None,
) -> Audited:
    """The job as it is audited, for one of its units (the one that it names first).

    Args:
        ahead: the release ahead of the rounds, instead of these.
        against: who looks; None: whom the claim holds against.
        parties: most parties of a world; a job with fewer keeps its own. None: two, or five where
            noise is in shares.
        records: of the smallest party; as many as the attack needs, if None.
        features: p; as many as the attack needs, if None.
        seed: of the worlds, for a plan that says that they are seeded; None for entropy.

    Raises:
        AuditError: your own algorithm, whose canaries only its author knows; or nothing is ahead.
        JobError, CalibrationError, RingTooSmall: as planning the job would.
    """
    if job.model.learns not in LEARNERS:
        raise AuditError(
            "Expected gradient-perturbation, output-perturbation, fedavg or distributed-dp-sgd, "
            f"got {job.algorithm.kind}: what moves its release most is known to its author alone."
        )
    if not job.run.in_process:
        raise AuditError(
            f"Expected run.engine = 'fast', got {job.run.engine!r}: an audit needs the same "
            "records in thousands of worlds, and is never part of a deployment."
        )
    units = [each.unit for each in job.budgets]
    wanted = units[0] if unit is None else unit
    if wanted not in units:
        raise AuditError(f"Expected a unit of {', '.join(units)}, got {wanted}.")
    learner = MOMENTS if ahead else LEARNERS[job.model.learns]
    alone = not ahead and answer_of(job.algorithm.kind).noisy and job.privacy.unit == "record"
    shared = job.privacy.noise_point != "server"
    shape = Shape(
        parties=1 if alone else min(parties or (5 if shared else 2), job.parties.count),
        records=records or _records(job),
        features=features or learner.features,
    )
    changed, plain = _smaller(job, wanted, shape, seed)
    federation = Federation(
        parties=shape.parties,
        min_records=shape.records,
        total_records=shape.parties * shape.records,
        max_records=shape.records,
    )
    model = model_for(plain, features=shape.features, classes=2)
    # Rows of an audit are as they are after projection.
    components = np.eye(shape.features) if plain.model.projected else None
    stages = stages_of(
        plain,
        algorithm=algorithm_for(plain, model, federation),
        federation=federation,
        features=shape.features,
        components=None if plain.model.components_share else components,
        run_id="audit",
    )
    if ahead and len(stages) < 2:
        raise AuditError("Expected a release ahead of the rounds, got none.")
    stage = stages[0] if ahead else stages[-1]
    plan = stage.plan
    guarantee = plan.of(wanted)
    if guarantee is None:
        raise AuditError(f"Expected a guarantee for a {wanted}, got none.")
    if guarantee.mechanism.objective is not None:
        raise AuditError(
            f"Expected noise on what parties send, got {job.algorithm.kind}, whose noise is inside "
            "an objective: no attack here looks for it. Its proof is tested by densities instead."
        )
    return Audited(
        job=plain,
        shape=shape,
        algorithm=stage.algorithm({} if components is None else {"components": components}),
        plan=plan,
        federation=federation,
        guarantee=guarantee,
        charged=plan.charged_by(wanted),
        against=against or plan.charged_by(wanted).against,
        learner=learner,
        rounds=stage.rounds,
        changed=changed,
    )


def as_it_runs(
    job: Job, *, model: Any, federation: Federation, features: int, seed: int | None
) -> Audited:
    """The rounds of a job with nothing changed, seen by whoever reads the model at last.

    Args:
        model: what is learned.
        federation: the public facts about its parties.
        features: p.
        seed: of the worlds.

    Raises:
        AuditError: a job without a linear model or a network on the records themselves, or whose
            budget is a party's alone.
        JobError, CalibrationError, RingTooSmall: as planning the job would.
    """
    if job.model.learns not in LEARNERS or job.model.projected:
        raise AuditError(
            "Expected a linear model, or a network on the records themselves, for an attack on "
            f"the released model, got {job.model.kind!r}."
        )
    if Unit.RECORD not in [each.unit for each in job.budgets]:
        raise AuditError(
            "Expected privacy.unit = 'record' or 'both' for an attack on a record, got 'party'."
        )
    values = job.values()
    values["run"]["seed"] = "none" if seed is None else seed
    values["parties"]["min-records"] = federation.min_records
    plain = Job.model_validate(values)
    algorithm = algorithm_for(plain, model, federation)
    plan = plan_release(plain, algorithm=algorithm, federation=federation, run_id="audit")
    guarantee = plan.of(Unit.RECORD)
    if guarantee is None:
        raise AuditError("Expected a guarantee for a record, got none.")
    return Audited(
        job=plain,
        shape=Shape(parties=federation.parties, records=federation.min_records, features=features),
        algorithm=algorithm,
        plan=plan,
        federation=federation,
        guarantee=guarantee,
        charged=plan.charged_by(Unit.RECORD),
        against=Adversary.READERS,
        learner=LEARNERS[job.model.learns],
        rounds=plain.rounds,
        changed=(),
    )


def ahead_of(job: Job) -> bool:
    """Whether a job releases something ahead of its rounds."""
    return job.model.components_share > 0


def _records(job: Job) -> int:
    if answer_of(job.algorithm.kind).optimum:
        # A canary moves the optimum by 1/(nλ), within which its slope has to stay full.
        return int(min(max(2, np.ceil(2 / job.model.regularisation)), _LARGEST_PARTY))
    # With their own rate, batches are of few records in any case.
    return LEARNERS[job.model.learns].records


def _smaller(job: Job, unit: Unit, shape: Shape, seed: int | None) -> tuple[tuple[str, ...], Job]:
    """The job of so small a federation, and what was changed."""
    changes: dict[str, dict[str, Any]] = {
        "parties": {"count": shape.parties, "min-records": shape.records},
        "secure-aggregation": {"min-survivors": "auto", "corrupt": "auto"},
        "data": {"source": "synthetic", "schema": "", "partition": "iid", "test-source": ""},
        "run": {"faults": "", "seed": "none" if seed is None else seed},
    }
    learner = LEARNERS[job.model.learns]
    changes["model"] = learner.model(job.model, shape.features)
    if learner.cheap:
        changes["algorithm"] = {"learning-rate": LEARNING_RATE}
    else:
        changes["run"]["device"] = "cpu"
        changes["dp-sgd"] = {
            "momentum": 0.0,
            "optimiser": "sgd",
            "learning-rate": _network_rate(job, unit),
            **_same_sampling(job),
        }
    plain = job.values()
    words = []
    for section, keys in changes.items():
        for key, value in keys.items():
            if plain[section][key] != value:
                words.append(f"{section}.{key} = {value!r}")
            plain[section][key] = value
    try:
        return tuple(words), Job.model_validate(plain)
    except ValueError as error:
        raise JobError(str(error)) from error


def _same_sampling(job: Job) -> dict[str, Any]:
    """The job's rate and steps, whatever the number of records."""
    if job.privacy.unit == "party":
        # Of no effect on ε, and a party that takes all its records computes the same every time.
        return {"sampling-rate": 1.0, "batch-size": "auto", "local-steps": 1}
    settings, least = job.dp_sgd, job.parties.min_records
    rate = settings.sampling_rate
    if settings.batch_size != "auto":
        if least == "auto":
            raise AuditError(
                "Expected parties.min-records with dp-sgd.batch-size, got 'auto': the sampling "
                "rate is the one over the other."
            )
        rate = settings.batch_size / least
    steps = settings.local_steps
    if steps == "auto":
        steps = max(1, round(settings.local_epochs / rate))
    return {"sampling-rate": rate, "batch-size": "auto", "local-steps": steps}


def _network_rate(job: Job, unit: Unit) -> float:
    if unit is Unit.PARTY:
        return 1e3  # An update far beyond S: the clip is what is tested.
    # Where an update is clipped too, well within S: that clip would only hide the record.
    return 1e-2 * (job.dp_sgd.party_clip_norm if job.privacy.unit == "both" else 1.0)
