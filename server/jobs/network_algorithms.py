"""Define the forms of `[algorithm]` that train networks, and build their algorithms from a job.

fedavg: all DP-SGD steps of all rounds share ε, by PLD, inside each party; or the noise is on the
sum of clipped updates. distributed-dp-sgd: a round is a release of L steps, each a secure sum. All
T = L·rounds steps of a run share ε, for a record by PLD, for a party as T Gaussians of sensitivity
2S. If the components of a `pca-mlp` are computed privately, they first take `model.pca-share` of
μ².
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from pydantic import Field

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.party_sampling import EVERYONE, PartySampling
from parley.client.dp_sgd.optimisers import ServerStep
from parley.client.dp_sgd.poisson_batch_bound import compute_padded_width
from parley.client.dp_sgd.training_settings import VMAP, LocalTraining
from parley.client.own_code.own_code_names import is_own_code
from parley.module_loading.imports_without_gc import import_large_library
from parley.privacy.accounting.rounding import format_exact
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.sampling.inversion import LARGEST_SCALE
from parley.server.jobs.algorithm_base import (
    PARTY_BUDGET_KEYS,
    ROUNDS_DESCRIPTION,
    AlgorithmSection,
    AutoChoices,
    PlanDetail,
    UnusedKeys,
    check_private_sizes,
)
from parley.server.jobs.auto_dp_sgd import choose_dp_sgd_settings
from parley.server.jobs.dp_sgd_section import DpSgdSection
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.noise_multiplier_calibration import (
    calibrate_noise_multiplier,
    compute_components_mu,
)
from parley.server.jobs.section_base import Auto, JobError, check_unchanged, replace_auto

if TYPE_CHECKING:
    from parley.server.jobs.job import Job

if TYPE_CHECKING:
    from parley.client.models.networks import Network

_MICRO_BATCH, _VMAP_MICRO_BATCH = 2048, 64
"""Records whose gradients are computed at once; the second is for vmap. There, more rows are no
faster, and they slow down the independence test.
"""


class _NetworkSection(AlgorithmSection):
    learns: ClassVar[str] = "network"
    laws: ClassVar[tuple[str, ...]] = ("gaussian",)
    samples: ClassVar[bool] = True
    plan_detail: ClassVar[PlanDetail] = "training"

    sums: ClassVar[bool] = False

    rounds: Annotated[int, Field(ge=1, le=1_000_000)] | Auto = Field(
        "auto", description=ROUNDS_DESCRIPTION
    )
    average: bool = True
    """Report the mean of the later half of the iterates (post-processing, at no cost)."""

    def resolve_auto(self, job: Job, parties: Federation | None, classes: int) -> AutoChoices:
        """Choose rounds and every auto of `[dp-sgd]` by the rule of
        `parley.server.jobs.auto_dp_sgd`.
        """
        present = get_party_sampling(job).fraction
        return choose_dp_sgd_settings(job, self, parties, sums=self.sums, sampled_fraction=present)

    def check(self, job: Job) -> None:
        """Check the base's conditions, and what each unit needs."""
        super().check(job)
        if job.privacy.point.is_locally_private:
            raise ValueError(
                "Expected privacy.noise-point = 'share' or 'server' with a network, got "
                f"{job.privacy.noise_point!r}. With unit record, fedavg adds its noise inside "
                "the parties anyway ([dp-sgd])."
            )
        _check_sampled_parties(job)
        _check_component_source(job)
        for section, keys, needed in _UNUSED_BY_UNIT[job.privacy.unit]:
            check_unchanged(job, section, keys, needed)
        check_private_sizes(job)
        if job.privacy.unit != "record":
            _check_party_unit(job)

    def build_model(self, job: Job, features: int, classes: int) -> Any:
        """Build the job's network for rows of the projected width."""
        return build_network(job, features=compute_model_width(job, features), classes=classes or 2)

    def _resolve_dp_sgd(self, job: Job, parties: Federation) -> DpSgdSection:
        """Return `[dp-sgd]` without autos, even if the job is not resolved."""
        return cast(
            "DpSgdSection", self.resolve_auto(job, parties, 0).sections.get("dp_sgd", job.dp_sgd)
        )

    def _build_training(
        self, job: Job, network: Network, federation: Federation, *, one_coin: bool
    ) -> LocalTraining:
        """Return one round's steps; `one_coin` of a sampled party decides on all of them."""
        settings, share = self._resolve_dp_sgd(job, federation), job.dp_sgd.clipped_fraction_share
        rate, given = compute_sampling_rate(settings, federation), settings.local_steps
        steps = max(1, round(float(settings.local_epochs) / rate)) if given == "auto" else given
        record = Unit.RECORD in job.privacy.units
        multiplier = settings.noise_multiplier if record else 0.0
        if multiplier == "auto":
            multiplier = calibrate_noise_multiplier(
                job,
                rate=rate,
                steps=steps * job.rounds,
                budget=job.budgets[0],
                dimension=network.dimension + (share > 0),
                mu=compute_components_mu(job),
                probability=get_party_sampling(job).rate,
                together=steps if one_coin else 1,
            )
        way = _choose_gradient_method(job, network)
        written = record and way == VMAP
        return LocalTraining(
            steps=steps,
            sampling_rate=rate,
            clip_norm=float(settings.clip_norm) if record else None,
            noise_multiplier=multiplier,
            optimiser=settings.optimiser,
            learning_rate=float(settings.learning_rate),
            momentum=float(settings.momentum),
            per_example_method=way,
            micro_batch=replace_auto(
                settings.micro_batch, _VMAP_MICRO_BATCH if written else _MICRO_BATCH
            ),
            clipped_share=share,
        )


class FederatedAveragingSection(_NetworkSection):
    """Federated averaging of networks, private by `[dp-sgd]`, by noise on the sum, or by both."""

    unused_keys: ClassVar[UnusedKeys] = {"dp_sgd": ("pad_batches",)}
    unused_needs: ClassVar[str] = "algorithm.kind = 'distributed-dp-sgd'"

    def build_algorithm(self, job: Job, model: Any, parties: Federation) -> FederatedAlgorithm:
        """Build the algorithm with calibrated noise; raises JobError also if the noise is too large
        to draw.
        """
        from parley.client.algorithms import federated_averaging as fedavg  # noqa: PLC0415 - start-up: `plan` and `run` of a linear model load no torch (1.4 s)
        from parley.client.dp_sgd.local_training import compute_largest_noise  # noqa: PLC0415 - start-up: `plan` and `run` of a linear model load no torch (1.4 s)

        if model.draws_per_record:
            raise JobError(
                "Expected algorithm.kind = 'distributed-dp-sgd' with a model whose loss draws "
                f"random numbers, got '{self.kind}'."
            )
        settings, asked = self._resolve_dp_sgd(job, parties), job.privacy.units
        training = self._build_training(job, model, parties, one_coin=True)
        if compute_largest_noise(training) > LARGEST_SCALE:
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
            update_bound=training.bound_update(least) * math.sqrt(dimension)
            if asked == (Unit.RECORD,)
            else float(settings.party_clip_norm),
            server=ServerStep(**settings.server_step),
            rounds=job.rounds,
            average=self.average,
            neighbouring=Neighbouring(job.privacy.neighbouring),
            both=len(asked) > 1,
            attendance=get_party_sampling(job),
            clipped_reach=_bound_clipped_fraction(training, least),
        )


class DistributedDpSgdSection(_NetworkSection):
    """DP-SGD across all parties: a round is a block of steps, each a secure sum with its noise."""

    plan_detail: ClassVar[PlanDetail] = "steps"
    sums: ClassVar[bool] = True
    unused_keys: ClassVar[UnusedKeys] = {
        "dp_sgd": (
            "server_optimiser",
            "server_learning_rate",
            "server_momentum",
            "clipped_fraction_share",
        ),
        "privacy": ("record_bound",),
        "parties": ("weights",),
    }

    def build_algorithm(self, job: Job, model: Any, parties: Federation) -> FederatedAlgorithm:
        """Build the algorithm; the plan holds the noise on its sums."""
        from parley.client.algorithms.distributed_dp_sgd import DistributedDPSGD as Distributed  # noqa: PLC0415 - start-up: `plan` and `run` of a linear model load no torch (1.4 s)

        units, private = job.privacy.units, job.privacy.has_private_sizes
        training = self._build_training(job, model, parties, one_coin=False)
        records = parties.min_records if private else parties.max_records
        total = parties.count_records(private=private)
        # No batch that is processed whole without notice has a longer sum; a longer one is clipped.
        width = compute_padded_width(records, training.sampling_rate)
        longest = (training.clip_norm or 0.0) * width
        party_norm = None
        if Unit.PARTY in units:
            party_norm = float(self._resolve_dp_sgd(job, parties).party_clip_norm)
        attendance = get_party_sampling(job)
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


def compute_sampling_rate(settings: DpSgdSection, federation: Federation) -> float:
    """Return q from a job's rate or its expected batch; raises JobError."""
    batch = settings.batch_size
    if batch == "auto":
        return float(settings.sampling_rate)
    if batch > federation.min_records:
        raise JobError(
            f"Expected dp-sgd.batch-size of at most {federation.min_records}, the number of "
            f"records of the smallest party, got {batch}."
        )
    return batch / federation.min_records


def get_party_sampling(job: Job) -> PartySampling:
    """Return how the parties in a round's sum are sampled."""
    asked, parties = job.parties.per_round, job.parties
    if isinstance(asked, int):
        return PartySampling(number=asked, parties=parties.count, hidden=False)
    return EVERYONE if asked == "all" else PartySampling(rate=asked, hidden=parties.hides_presence)


def _check_component_source(job: Job) -> None:
    """Refuse public components that come neither from a file nor from held-out records."""
    public = job.model.component_count is not None and not job.model.components_share
    held_out = job.data.test_source or job.data.test_fraction
    if public and not job.model.components_file and not held_out:
        raise ValueError(
            "Expected model.pca-file, or held-out records (data.test-fraction, data.test-source), "
            "with model.pca = 'public', got neither: there are no records for computing components."
        )


def compute_model_width(job: Job, features: int) -> int:
    """Return the number of columns that the job's network sees; raises JobError."""
    count = job.model.component_count
    if count is not None and count > features:
        raise JobError(f"Expected model.components ≤ {features} features, got {count}.")
    return features if count is None else count


def _choose_precision(job: Job) -> Literal["float32", "float64"]:
    """Return the precision of the job's network."""
    if job.dp_sgd.precision != "auto":
        return job.dp_sgd.precision
    return "float32" if is_own_code(job.model.kind) else "float64"


def build_network(job: Job, *, features: int, classes: int) -> Network:
    """Build the job's network for rows of `features` columns and K classes, with public initial
    weights.

    A network of your own code is tested before anything is charged: each row must be scored
    independently of the others. Raises NetworkError.
    """
    import_large_library("torch")
    from parley.client.models.batch_invariance_check import check_batch_invariance  # noqa: PLC0415 - start-up: `plan` and `run` of a linear model load no torch (1.4 s)
    from parley.client.models.networks import Network  # noqa: PLC0415 - start-up: `plan` and `run` of a linear model load no torch (1.4 s)

    network = Network.build(
        job.model.kind,
        features=features,
        classes=classes,
        hidden=job.model.widths,
        class_weights=job.model.label_weights,
        precision=_choose_precision(job),
        device=job.run.device,
        seed=job.data.seed,
    )
    if is_own_code(job.model.kind):
        check_batch_invariance(network)
    return network


def _choose_gradient_method(job: Job, network: Network) -> str:
    """Return how a record's gradient is clipped; any method if none is clipped. Raises JobError."""
    from parley.client.dp_sgd.torch_clipping import choose_way  # noqa: PLC0415 - start-up: `plan` and `run` of a linear model load no torch (1.4 s)

    try:
        return choose_way(network, wanted=job.dp_sgd.per_example_method)
    except ValueError as error:
        if Unit.RECORD not in job.privacy.units:  # Nothing is clipped.
            return VMAP
        raise JobError(str(error)) from error


def _bound_clipped_fraction(training: LocalTraining, records: int) -> float:
    """Bound a party's noisy fraction's distance from ½: three expected batches, and the noise."""
    if not training.clipped_share:
        return 0.0
    expected = training.sampling_rate * records * training.steps
    return 1.5 + 12 * training.count_deviation / (2 * expected)


def _check_sampled_parties(job: Job) -> None:
    """Check what sampled parties need."""
    parties, unit = job.parties, job.privacy.unit
    if parties.per_round == "all":
        return
    if unit == "both":
        raise ValueError("Expected unit party or record with parties.per-round, got 'both'.")
    if unit == "record":
        needs = "privacy.unit = 'party': a record has one account, whether rounds are known or not"
        check_unchanged(job, "parties", ("presence",), needs)
    if isinstance(parties.per_round, float) and parties.per_round <= job.privacy.delta:
        raise ValueError(
            "Expected parties.per-round above privacy.delta = "
            f"{format_exact(job.privacy.delta)}, got {parties.per_round:g}: δ alone would cover "
            "every sum that a party is in, whatever its noise."
        )
    check_unchanged(job, "dp_sgd", ("clipped_fraction_share",), "parties.per-round = 'all'")


def _check_party_unit(job: Job) -> None:
    """Check what a party-level guarantee needs, with or without a record-level one."""
    unit = f"privacy.unit = '{job.privacy.unit}'"
    check_unchanged(job, "parties", ("weights",), "privacy.unit = 'record'")
    if job.model.components_share:
        raise ValueError(
            f"Expected model.pca = 'public' with {unit}, got 'private': the components' noise "
            "hides one record, not a party."
        )
    if job.parties.count < 2:
        raise ValueError(f"Expected at least 2 parties with {unit}, got {job.parties.count}.")


_RECORD_UNIT_ONLY = ("dp_sgd", ("clipped_fraction_share",), "privacy.unit = 'record'")
_BOTH_UNITS_ONLY = ("privacy", PARTY_BUDGET_KEYS, "privacy.unit = 'both'")
_UNUSED_BY_UNIT = {
    "record": (
        _BOTH_UNITS_ONLY,
        ("dp_sgd", ("party_clip_norm",), "privacy.unit = 'party' or 'both'"),
        ("privacy", ("calibration",), "another algorithm (DP-SGD is accounted by PLD)"),
    ),
    "party": (
        _RECORD_UNIT_ONLY,
        _BOTH_UNITS_ONLY,
        (
            "dp_sgd",
            ("clip_norm", "noise_multiplier", "per_example_method"),
            "privacy.unit = 'record' or 'both'",
        ),
    ),
    "both": (_RECORD_UNIT_ONLY,),
}
"""`privacy.unit` → keys without effect, and what they need."""
