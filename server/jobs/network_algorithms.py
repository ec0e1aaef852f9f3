"""How networks learn: the forms of `[algorithm]` that train them, and what they make of a job.

fedavg: all DP-SGD steps of all rounds share ε, by PLD, inside each party, or the noise is on the
sum of clipped updates. distributed-dp-sgd: a round is a release of L steps, each a secure sum; all
T = L·rounds steps of a run share ε, for a record by PLD, for a party as T Gaussians of sensitivity
2S. Where the components of a `pca-mlp` are computed privately, they take `model.pca-share` of μ²
first.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from pydantic import Field

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.party_sampling import EVERYONE, Attendance
from parley.client.dp_sgd.optimisers import ServerStep
from parley.client.dp_sgd.poisson_batches import padded_width
from parley.client.dp_sgd.training_settings import WRITTEN, LocalTraining
from parley.privacy.accounting.rounding import as_written
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.calibration.dp_sgd import calibrate_steps
from parley.privacy.calibration.inverse_curves import gaussian_mu
from parley.privacy.calibration.noise_calibration import CalibrationError
from parley.privacy.sampling.gaussian import rounded_distance
from parley.privacy.sampling.inversion import LARGEST_SCALE
from parley.safe_io.path_names import is_own
from parley.server.jobs.algorithm_base import (
    AVERAGE,
    BOTH_KEYS,
    ROUNDS,
    AlgorithmSection,
    Idle,
    Outlook,
    Settled,
    check_private_sizes,
    known,
)
from parley.server.jobs.auto_dp_sgd import network_by_rule
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.model import models_that_learn
from parley.server.jobs.privacy import UnitBudget
from parley.server.jobs.running import DPSGD
from parley.server.jobs.section_base import Auto, JobError, check_unchanged, unless_auto

if TYPE_CHECKING:
    from parley.server.jobs.job import Job

if TYPE_CHECKING:
    from parley.client.models.networks import Network

_ROWS, _WRITTEN_ROWS = 2048, 64
"""Records whose gradients are computed at once; and where they are written out one by one, which
more rows make no faster, and the trial of their independence slower."""


class _OfNetwork(AlgorithmSection):
    models: ClassVar[tuple[str, ...]] = models_that_learn("network")
    laws: ClassVar[tuple[str, ...]] = ("gaussian",)
    samples: ClassVar[bool] = True
    outlook: ClassVar[Outlook] = "training"

    sums: ClassVar[bool] = False

    rounds: Annotated[int, Field(ge=1, le=1_000_000)] | Auto = Field("auto", description=ROUNDS)
    average: bool = Field(True, description=AVERAGE)

    def settled(self, job: Job, parties: Federation | None, classes: int) -> Settled:
        """Rounds and every auto of `[dp-sgd]` by the rule of `parley.server.jobs.auto_dp_sgd`."""
        del classes
        present = attendance_of(job).fraction
        return network_by_rule(job, self, parties, sums=self.sums, present=present)

    def check(self, job: Job) -> None:
        """And what each unit needs."""
        super().check(job)
        if job.privacy.point.private_alone:
            raise ValueError(
                "Expected privacy.noise-point = 'share' or 'server' with a network, got "
                f"{job.privacy.noise_point!r}: "
                "fedavg with unit record adds its noise inside the parties by itself ([dp-sgd])."
            )
        _check_sampled_parties(job)
        for section, keys, needed in _IDLE_OF_UNIT[job.privacy.unit]:
            check_unchanged(job, section, keys, needed)
        for check in _CHECKS_OF_UNIT[job.privacy.unit]:
            check(job)

    def learned(self, job: Job, features: int, classes: int) -> Any:
        """The job's network, of rows as wide as they are projected."""
        return network_for(job, features=model_width(job, features), classes=classes or 2)

    def _numbers(self, job: Job, parties: Federation) -> DPSGD:
        """`[dp-sgd]` without autos, whoever asks."""
        return cast("DPSGD", self.settled(job, parties, 0).sections.get("dp_sgd", job.dp_sgd))

    def _training(
        self, job: Job, network: Network, parties: Federation, *, one_coin: bool
    ) -> LocalTraining:
        """One round's steps; `one_coin` of a sampled party decides on all of them."""
        settings, share = self._numbers(job, parties), job.dp_sgd.clipped_fraction_share
        rate, given = sampling_rate(settings, parties), settings.local_steps
        steps = max(1, round(float(settings.local_epochs) / rate)) if given == "auto" else given
        record = Unit.RECORD in job.privacy.units
        multiplier = settings.noise_multiplier if record else 0.0
        if multiplier == "auto":
            multiplier = sampled_multiplier(
                job,
                rate=rate,
                steps=steps * job.rounds,
                budget=job.budgets[0],
                dimension=network.dimension + (share > 0),
                neighbouring=Neighbouring(job.privacy.neighbouring),
                mu=components_mu(job),
                probability=attendance_of(job).rate,
                together=steps if one_coin else 1,
            )
        way = _way(job, network)
        written = record and way == WRITTEN
        return LocalTraining(
            steps=steps,
            sampling_rate=rate,
            clip_norm=float(settings.clip_norm) if record else None,
            noise_multiplier=multiplier,
            optimiser=settings.optimiser,
            learning_rate=float(settings.learning_rate),
            momentum=float(settings.momentum),
            per_example_method=way,
            micro_batch=unless_auto(settings.micro_batch, _WRITTEN_ROWS if written else _ROWS),
            clipped_share=share,
        )


class FederatedAveraging(_OfNetwork):
    """Federated averaging of networks, private by `[dp-sgd]`, by noise on the sum, or by both."""

    idle: ClassVar[Idle] = {"dp_sgd": ("pad_batches",)}
    idle_needs: ClassVar[str] = "algorithm.kind = 'distributed-dp-sgd'"

    def made(self, job: Job, model: Any, parties: Federation | None) -> FederatedAlgorithm:
        """Its noise calibrated; raises JobError also where that is too large to draw."""
        from parley.client.algorithms import federated_averaging as fedavg  # noqa: PLC0415 - start-up: `plan` and `run` of a linear model load no torch (1.4 s)
        from parley.client.dp_sgd.local_training import largest_noise  # noqa: PLC0415 - start-up: `plan` and `run` of a linear model load no torch (1.4 s)

        parties = known(parties, self.kind)
        if model.draws:
            raise JobError(
                "Expected algorithm.kind = 'distributed-dp-sgd' with a model whose loss draws, got "
                f"'{self.kind}'."
            )
        settings, asked = self._numbers(job, parties), job.privacy.units
        training = self._training(job, model, parties, one_coin=True)
        if largest_noise(training) > LARGEST_SCALE:
            raise JobError(
                f"Expected noise of at most 2^40 grid units, got more: dp-sgd.noise-multiplier is "
                f"{training.noise_multiplier:g}, dp-sgd.clipped-fraction-share "
                f"{training.clipped_share:g}."
            )
        dimension, least = model.dimension + (training.clipped_share > 0), parties.min_records
        return fedavg.FederatedAveraging(
            model=model,
            unit=asked[0],
            training=training,
            update_bound=training.reach(least) * math.sqrt(dimension)
            if asked == (Unit.RECORD,)
            else float(settings.party_clip_norm),
            server=ServerStep(
                kind=settings.server_optimiser,
                learning_rate=settings.server_learning_rate,
                momentum=settings.server_momentum,
            ),
            rounds=job.rounds,
            average=self.average,
            neighbouring=Neighbouring(job.privacy.neighbouring),
            both=len(asked) > 1,
            attendance=attendance_of(job),
            clipped_reach=_clipped_reach(training, least),
        )


class DistributedDPSGD(_OfNetwork):
    """DP-SGD across all parties: a round is a block of steps, each a secure sum with its noise."""

    outlook: ClassVar[Outlook] = "steps"
    sums: ClassVar[bool] = True
    idle: ClassVar[Idle] = {
        "dp_sgd": (
            "server_optimiser",
            "server_learning_rate",
            "server_momentum",
            "clipped_fraction_share",
        ),
        "privacy": ("record_bound",),
        "parties": ("weights",),
    }

    def made(self, job: Job, model: Any, parties: Federation | None) -> FederatedAlgorithm:
        """The noise on its sums is the plan's."""
        from parley.client.algorithms.distributed_dp_sgd import DistributedDPSGD as Distributed  # noqa: PLC0415 - start-up: `plan` and `run` of a linear model load no torch (1.4 s)

        parties = known(parties, self.kind)
        units, private = job.privacy.units, job.privacy.private_sizes
        training = self._training(job, model, parties, one_coin=False)
        records = parties.min_records if private else parties.max_records
        total = parties.records(private=private)
        # No batch that is worked on whole without notice has a longer sum; a longer one is clamped.
        longest = (training.clip_norm or 0.0) * padded_width(records, training.sampling_rate)
        party_norm = None
        if Unit.PARTY in units:
            party_norm = float(self._numbers(job, parties).party_clip_norm)
        attendance = attendance_of(job)
        return Distributed(
            model=model,
            unit=units[0],
            training=training,
            bound=longest if party_norm is None else party_norm,
            party_norm=party_norm,
            expected_batch=training.sampling_rate * total * attendance.fraction,
            rounds=job.rounds,
            average=self.average,
            neighbouring=Neighbouring(job.privacy.neighbouring),
            pad=job.dp_sgd.pad_batches,
            attendance=attendance,
        )


def sampling_rate(settings: DPSGD, parties: Federation) -> float:
    """q, from a job's rate or its expected batch; raises JobError."""
    batch = settings.batch_size
    if batch == "auto":
        return float(settings.sampling_rate)
    if batch > parties.min_records:
        raise JobError(
            f"Expected dp-sgd.batch-size of at most {parties.min_records}, the records of the "
            f"smallest party, got {batch}."
        )
    return batch / parties.min_records


def attendance_of(job: Job) -> Attendance:
    """Which parties are in a round's sum."""
    asked, parties = job.parties.per_round, job.parties
    if isinstance(asked, int):
        return Attendance(number=asked, parties=parties.count, hidden=False)
    return EVERYONE if asked == "all" else Attendance(rate=asked, hidden=parties.hidden)


def components_mu(job: Job) -> float:
    """μ of the components' release; 0 where there is none."""
    share = job.model.components_share
    budget = job.budgets[0]
    return math.sqrt(share) * gaussian_mu(budget.epsilon, budget.noise_delta) if share else 0.0


def sampled_multiplier(
    job: Job,
    *,
    rate: float,
    steps: int,
    budget: UnitBudget,
    dimension: int,
    neighbouring: Neighbouring,
    mu: float = 0.0,
    probability: float = 1.0,
    together: int = 1,
) -> float:
    """The least σ, in clip norms, with which all sampled sums of a run cost a unit's budget.

    Args:
        mu: of the Gaussian releases that share the budget.
        probability: p of a party's coin that may be seen; 1: every party is in every sum.
        together: steps that one coin decides on.

    Raises CalibrationError.
    """
    samplers = job.parties.count if job.privacy.point.in_contributions else 1
    try:
        return calibrate_steps(
            sampling_rate=rate,
            steps=steps,
            epsilon=budget.epsilon,
            delta=budget.noise_delta,
            neighbouring=neighbouring,
            planned_delta=budget.reserved / 2 if budget.shared else 0.0,
            certificate=budget.certificate,
            # Twice: the components' own samplers have a distance too.
            slack=2 * rounded_distance(dimension * steps * samplers),
            mu=mu,
            probability=probability,
            together=together,
        )
    except ValueError as error:
        raise CalibrationError(str(error)) from error


def model_width(job: Job, features: int) -> int:
    """Columns that the job's network sees, of rows with `features` columns; raises JobError."""
    count = job.model.projected
    if count is not None and count > features:
        raise JobError(
            f"Expected model.components of at most {features}, the number of features, got {count}."
        )
    return features if count is None else count


def network_for(job: Job, *, features: int, classes: int) -> Network:
    """The job's network for rows of `features` columns and K classes, at its public start.

    One of your own code is tried before anything is charged: each row is scored by itself.

    Raises NetworkError.
    """
    from parley.client.models.batch_invariance import check_batch_invariance  # noqa: PLC0415 - start-up: `plan` and `run` of a linear model load no torch (1.4 s)
    from parley.client.models.networks import Network  # noqa: PLC0415 - start-up: `plan` and `run` of a linear model load no torch (1.4 s)

    network = Network.build(
        job.model.kind,
        features=features,
        classes=classes,
        hidden=job.model.widths,
        class_weights=job.model.weights_of_classes,
        precision=job.dp_sgd.precision,
        device=job.run.device,
        seed=job.data.seed,
    )
    if is_own(job.model.kind):
        check_batch_invariance(network)
    return network


def _way(job: Job, network: Network) -> str:
    """How a record's gradient is clipped; any will do where none is. Raises JobError."""
    from parley.client.dp_sgd.torch_clipping import choose_way  # noqa: PLC0415 - start-up: `plan` and `run` of a linear model load no torch (1.4 s)

    try:
        return choose_way(network, wanted=job.dp_sgd.per_example_method)
    except ValueError as error:
        if Unit.RECORD not in job.privacy.units:  # nothing is clipped
            return WRITTEN
        raise JobError(str(error)) from error


def _clipped_reach(training: LocalTraining, records: int) -> float:
    """How far from ½ a party's noisy fraction may be: three expected batches, and the noise."""
    if not training.clipped_share:
        return 0.0
    expected = training.sampling_rate * records * training.steps
    return 1.5 + 12 * training.count_deviation / (2 * expected)


def _check_sampled_parties(job: Job) -> None:
    """What sampled parties go with."""
    parties, unit = job.parties, job.privacy.unit
    if parties.per_round == "all":
        return
    if unit == "both":
        raise ValueError(
            "Expected privacy.unit = 'party' or 'record' with parties.per-round, got 'both'."
        )
    if unit == "record":
        needs = "privacy.unit = 'party': a record has one account, known rounds or not"
        check_unchanged(job, "parties", ("presence",), needs)
    if isinstance(parties.per_round, float) and parties.per_round <= job.privacy.delta:
        raise ValueError(
            f"Expected parties.per-round above privacy.delta = {as_written(job.privacy.delta)}, "
            "which would cover every sum that a party is in, whatever its noise, "
            f"got {parties.per_round:g}."
        )
    check_unchanged(job, "dp_sgd", ("clipped_fraction_share",), "parties.per-round = 'all'")


def _check_parties(job: Job) -> None:
    """What a party-level guarantee needs, alone or beside a record-level one."""
    unit = f"privacy.unit = '{job.privacy.unit}'"
    check_unchanged(job, "parties", ("weights",), "privacy.unit = 'record'")
    if job.model.components_share:
        raise ValueError(
            f"Expected model.pca = 'public' with {unit}, got 'private': the components' noise "
            "hides one record, not a party."
        )
    if job.parties.count < 2:
        raise ValueError(f"Expected at least 2 parties with {unit}, got {job.parties.count}.")


_OF_RECORDS = ("dp_sgd", ("clipped_fraction_share",), "privacy.unit = 'record'")
_OF_BOTH = ("privacy", BOTH_KEYS, "privacy.unit = 'both'")
_IDLE_OF_UNIT = {
    "record": (
        _OF_BOTH,
        ("dp_sgd", ("party_clip_norm",), "privacy.unit = 'party' or 'both'"),
        ("privacy", ("calibration",), "another algorithm (DP-SGD is accounted by PLD)"),
    ),
    "party": (
        _OF_RECORDS,
        _OF_BOTH,
        (
            "dp_sgd",
            ("clip_norm", "noise_multiplier", "per_example_method"),
            "privacy.unit = 'record' or 'both'",
        ),
    ),
    "both": (_OF_RECORDS,),
}
"""`privacy.unit` → keys that do nothing, and what they need."""

_CHECKS_OF_UNIT = {
    "record": (check_private_sizes,),
    "party": (check_private_sizes, _check_parties),
    "both": (check_private_sizes, _check_parties),
}
