"""The job: everything a run is, checked before anything is touched.

A job has eight sections: `[parties]`, `[data]`, `[model]`, `[algorithm]`, `[dp-sgd]`, `[privacy]`,
`[secure-aggregation]`, `[run]`. Every key stands here with its default, range and purpose;
`parley.server.jobs.file` reads and writes jobs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from parley.privacy.accounting.guarantee import Unit
from parley.privacy.mechanisms.table import MECHANISMS
from parley.secure_agg.parameters import assumed_corrupt
from parley.server.jobs.checks import check_kind, job_kind

__all__ = ["Job", "JobError", "Section", "UnitBudget"]

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Auto = Literal["auto"]
if TYPE_CHECKING:
    NoiseName = str
else:
    NoiseName = Literal[("default", *MECHANISMS, "auto")]


class JobError(ValueError):
    """A job that cannot be run, with the key, what was expected and what came."""


class Section(BaseModel):
    """A section of a job file: frozen, kebab-case keys, unknown keys refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=False,
        strict=False,
    )


class Parties(Section):
    """Who takes part."""

    count: int = Field(5, ge=1, le=1_000_000, description="Number of parties, m.")
    min_records: int | Auto = Field(
        "auto",
        description="Public lower bound on every party's number of records; it sets the noise. "
        "A smaller party is refused. auto: the smallest party of this simulation.",
    )
    weights: Literal["uniform", "size"] = Field(
        "uniform",
        description="uniform: every party counts the same; size: by its number of records, "
        "which is then public and never needs more noise.",
    )

    @model_validator(mode="after")
    def _check(self) -> Parties:
        if isinstance(self.min_records, int) and self.min_records < 1:
            raise ValueError(f"Expected min-records >= 1, got {self.min_records}.")
        return self


class Data(Section):
    """What they hold."""

    source: str = Field(
        "breast-cancer",
        min_length=1,
        description="A bundled name (breast-cancer, digits, synthetic), a file (.csv, .csv.gz, "
        ".parquet, .npz), or a glob with one file a party.",
    )
    data_schema: str = Field(
        "",
        alias="schema",
        description="Schema file: ranges, categories and label, public knowledge. Needed for "
        "files; `parley schema infer FILE` writes a first one to review.",
    )
    partition: Literal["iid", "column", "dirichlet", "sizes"] = Field(
        "iid", description="How one file is split among the parties."
    )
    partition_column: str = Field("", description="Column that names the party (partition column).")
    dirichlet_alpha: Positive = Field(
        0.5, description="Label skew: small is extreme (partition dirichlet)."
    )
    sizes: list[int] = Field([], description="Records of each party (partition sizes).")
    records: int = Field(0, ge=0, description="Draw this many records first; 0 takes all.")
    test_source: str = Field(
        "", description="A file of held-out records, instead of test-fraction (which is then 0)."
    )
    test_schema: str = Field("", description="Its schema, where it is not data.schema.")
    test_fraction: float = Field(
        0.2, ge=0, lt=1, description="Held out before the split, for the simulation's figures."
    )
    seed: int = Field(0, ge=0, description="Seed of the draw and the split (never of the noise).")

    @model_validator(mode="after")
    def _check(self) -> Data:
        if self.partition == "column" and not self.partition_column:
            raise ValueError("Expected partition-column with partition = 'column', got none.")
        if self.partition == "sizes" and not self.sizes:
            raise ValueError("Expected sizes = [n1, n2, …] with partition = 'sizes', got none.")
        if self.test_source and self.test_fraction:
            raise ValueError(
                f"Expected test-fraction = 0 with a test-source, got {self.test_fraction}."
            )
        if self.test_schema and not self.test_source:
            raise ValueError("Expected a test-source with a test-schema, got none.")
        return self


class Model(Section):
    """What they learn: a linear model with a strongly convex objective, or a network (fedavg)."""

    kind: str = Field(
        "logistic",
        description="logistic | softmax | ridge | huber-svm; with algorithm.kind = 'fedavg': "
        "mlp | pca-mlp | cnn, or your own, 'module:function' or 'file.py:function', where "
        "function(features, classes) gives a torch.nn.Module; none with an algorithm of your own.",
    )
    hidden: list[Annotated[int, Field(ge=1)]] = Field(
        [1000], description="mlp, pca-mlp: units of each hidden layer."
    )
    components: int = Field(60, ge=1, description="pca-mlp: principal components kept.")
    pca: Literal["public", "private"] = Field(
        "private",
        description="pca-mlp: private computes the components from the parties' records, by one "
        "noisy release that is charged; public takes them from pca-file or from the held-out "
        "records (data.test-fraction, data.test-source), which you thereby declare public, and "
        "charges nothing.",
    )
    pca_file: str = Field(
        "",
        description="pca-mlp, pca = 'public': a .safetensors file with the components as a float64 "
        "tensor `components` [features, components]: computed from public records, or the "
        "model.safetensors of an earlier run. Real parties with pca = 'public' need it.",
    )
    pca_share: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="pca-mlp, pca = 'private': that share of μ² of the budget goes to the "
        "components.",
    )
    lambda_: Positive = Field(
        0.01, alias="lambda", description="Regularisation (λ/2)‖θ‖²; note the ½."
    )
    intercept: bool = Field(
        True,
        description="Append a constant to every record, rescale to norm ≤ 1 and regularise it "
        "too (an unregularised intercept would void the sensitivity).",
    )
    radius: Positive = Field(1.0, description="ridge: θ is kept in the ball ‖θ‖ ≤ radius.")
    label_bound: Positive = Field(1.0, description="ridge: |y| ≤ label-bound after scaling.")
    huber_width: Positive = Field(0.5, description="huber-svm: half-width h of the smooth part.")


class Algorithm(Section):
    """How they learn."""

    kind: str = Field(
        "gradient-perturbation",
        description="gradient-perturbation: noise on the average gradient, every round; "
        "output-perturbation: noise once, on the average of certified local optima; fedavg: "
        "federated averaging of networks, private by [dp-sgd]; or your own, 'count.py:Count' or "
        "'module:Class' (docs/extending.md).",
    )
    settings: dict[str, Any] = Field(
        {}, description="Settings of your own algorithm, by the names that its class gives them."
    )
    rounds: int = Field(
        10, ge=1, le=1_000_000, description="Rounds T (output-perturbation has one)."
    )
    learning_rate: Positive | Auto = Field("auto", description="auto: 1/(L_s + λ).")
    momentum: float = Field(
        0.0, ge=0, lt=1, description="Heavy-ball momentum on the server (post-processing)."
    )
    clip_norm: Annotated[float, Field(ge=1e-9, le=1e9)] | Auto = Field(
        "auto",
        description="Clip every record's gradient to this norm; auto: the loss's own Lipschitz "
        "constant G, where nothing needs clipping.",
    )
    average: bool = Field(
        True,
        description="Report the mean of the later half of the iterates (post-processing, free).",
    )
    relative_tolerance: float = Field(
        1e-3,
        gt=0,
        le=1,
        description="output-perturbation: κ; every local optimum is certified to a gradient norm "
        "≤ κG/n, which adds the factor 1+κ to the sensitivity.",
    )


class DPSGD(Section):
    """How parties train networks: for algorithm.kind fedavg alone."""

    sampling_rate: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = Field(
        0.01, description="q: every record is in a batch with this probability (Poisson)."
    )
    batch_size: Annotated[int, Field(ge=1)] | Auto = Field(
        "auto",
        description="Expected batch of the smallest party; a number sets sampling-rate to "
        "batch-size / min-records.",
    )
    local_epochs: Positive = Field(
        1.0, description="Passes over a party's records in a round: local-epochs / q steps."
    )
    local_steps: Annotated[int, Field(ge=1)] | Auto = Field(
        "auto", description="Steps in a round; a number replaces local-epochs."
    )
    clip_norm: Annotated[float, Field(ge=1e-12, le=1e12)] = Field(
        1.0,
        description="C: every record's gradient is clipped to this L2 norm (unit record or both).",
    )
    noise_multiplier: Positive | Auto = Field(
        "auto",
        description="σ: noise of standard deviation σC on the sum of a batch (unit record or "
        "both). auto: calibrated so that all rounds cost privacy.epsilon.",
    )
    clipped_fraction_share: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = Field(
        0.0,
        description="Share of every step's privacy that goes to a noisy fraction of clipped "
        "gradients, released in every round (unit record): ε stays, the noise on gradients grows "
        "by 1/√(1−share). 0.01 makes it half a percent larger; 0 releases nothing.",
    )
    party_clip_norm: Positive = Field(
        1.0, description="S: a party's update is clipped to this L2 norm (unit party or both)."
    )
    optimiser: Literal["sgd", "adam"] = Field("sgd", description="In the party: sgd | adam.")
    learning_rate: Positive = Field(0.5, description="Of that optimiser.")
    momentum: float = Field(0.9, ge=0, lt=1, description="Of sgd; adam has its own.")
    server_optimiser: Literal["averaging", "momentum", "adam"] = Field(
        "averaging", description="How the server moves along the average update."
    )
    server_learning_rate: Positive = Field(1.0, description="Of the server's step.")
    server_momentum: float = Field(
        0.9, ge=0, lt=1, description="Of the server's momentum or adam; averaging has none."
    )
    per_example_method: Literal["auto", "ghost", "vmap", "opacus", "loop"] = Field(
        "auto",
        description="How clipped sums of per-record gradients are computed; auto: the fastest of "
        "ghost, vmap and opacus whose sums agree with a loop over records. loop: any layers, one "
        "record after another.",
    )
    precision: Literal["float32", "float64"] = Field(
        "float64",
        description="Of training. float64: what rounding adds to a clipped sum is proved to stay "
        "within C; float32 is faster, and there it was only measured.",
    )
    micro_batch: int = Field(
        2048, ge=1, description="Most records whose gradients are held at once: bounds memory."
    )


class Privacy(Section):
    """What it may cost."""

    epsilon: Positive = Field(
        1.0, description="Budget ε of this job: record-level, replace-one neighbours."
    )
    delta: float = Field(
        1e-5,
        ge=0,
        lt=1,
        description="Budget δ, well below 1 over the number of records (of parties, where they are "
        "protected). 0 needs laplace-l1, exact to the last bit, or l2-laplace, which is pure but "
        "for its sampler's distance, stated as δ = 2^-40.",
    )
    calibration: Literal["exact", "zcdp", "cks20", "as-printed"] = Field(
        "exact",
        description="Gaussian noise: exact (analytic), zcdp, cks20 (tighter zCDP conversion), "
        "as-printed (σ² = 8G²T·ln(1/δ)/(m²n²ε²)).",
    )
    noise: NoiseName = Field(
        "default",
        description="default: gaussian for gradients, l2-laplace for models; auto: whichever "
        "proved law has the lower expected norm. laplace-as-printed reproduces the paper and is "
        "charged what it costs, √d·ε.",
    )
    unit: Literal["record", "party", "both"] = Field(
        "record",
        description="What is protected: one record, or (fedavg) everything that one party holds, "
        "or both, each with a budget of its own: DP-SGD in the parties and, on the sum of their "
        "clipped updates, the server's noise.",
    )
    party_epsilon: Positive | Auto = Field(
        "auto",
        description="unit both: budget ε of this job for everything that one party holds, "
        "replace-one neighbours; auto: privacy.epsilon, which is then the record's.",
    )
    party_delta: Annotated[float, Field(gt=0, lt=1)] | Auto = Field(
        "auto", description="unit both: δ of that budget; auto: privacy.delta."
    )
    record_bound: Literal["lower", "inner"] = Field(
        "lower",
        description="unit both: what a record is charged by. inner: the noise of its party's own "
        "training, which holds against the server too; lower: that or the server's noise on the "
        "sum, whichever costs less, which real parties decline unless insist-on-inner is false.",
    )
    neighbouring: Literal["replace-one", "add-or-remove-one"] = Field(
        "replace-one",
        description="Neighbours differ by replacing one record (party), or (fedavg, unit record or "
        "both) by adding or removing one record, which needs about half the noise and promises "
        "less; parties are replaced all the same.",
    )
    ledger: str = Field(
        "",
        description="Ledger file or postgresql:// URL that several runs share: each holds what its "
        "rounds need, or is refused; empty: the run folder's own ledger.sqlite.",
    )
    dataset: str = Field("", description="Name of the data in the ledger; empty: data.source.")
    dataset_epsilon: Positive | Auto = Field(
        "auto", description="Budget of the data over all runs; auto: this job's epsilon."
    )
    dataset_delta: float | Auto = Field("auto", description="Likewise δ; auto: this job's delta.")
    dataset_party_epsilon: Positive | Auto = Field(
        "auto",
        description="unit both: budget of the data over all runs for everything that one party "
        "holds; auto: this job's party-epsilon.",
    )
    dataset_party_delta: Annotated[float, Field(gt=0, lt=1)] | Auto = Field(
        "auto", description="Likewise δ; auto: this job's party-delta."
    )


class SecureAggregation(Section):
    """How contributions are summed."""

    backend: Literal["ideal", "masked"] = Field(
        "ideal",
        description="ideal: the ring sum the protocol computes, without the masks (simulation); "
        "masked: the whole protocol. Both give the same bits.",
    )
    dropouts: Literal["robust", "optimistic"] = Field(
        "robust",
        description="robust: double masks, survives dropouts; optimistic: pairwise masks only, "
        "a dropout voids the round and the survivors repeat it.",
    )
    confirm_survivors: bool = Field(
        True,
        description="robust: the parties confirm the survivors' list to each other before they "
        "unmask, one exchange more, so that a server that lies about who dropped out gains "
        "nothing. false: only where the server follows the protocol.",
    )
    min_survivors: int | Auto = Field(
        "auto",
        description="Fewest survivors whose sum may be opened; auto: ⌈2m/3⌉. With confirmation it "
        "is raised above (m + corrupt)/2; key shares may need more.",
    )
    corrupt: int | Auto = Field(
        "auto",
        description="Parties that may collude with the server; auto: a tenth, at least one of "
        "three or more. Degree and threshold follow from it. A party declines a run that assumes "
        "fewer than its own policy.",
    )
    ring_bits: Literal[16, 32, 64] | Auto = Field("auto", description="16 | 32 | 64 | auto.")
    scale_bits: Annotated[int, Field(ge=0, le=52)] | Auto = Field(
        "auto",
        description="Grid of 2^scale-bits steps per unit; auto: the finest that fits. Real parties "
        "decline a coarser one unless insist-on-fine-grid is false.",
    )
    max_inflation: float = Field(
        1e-3, gt=0, description="Most that rounding to the grid may add to the sensitivity (auto)."
    )
    masked_check: bool = Field(
        True,
        description="With backend = 'ideal', check the first round against the masked protocol "
        "for (at most 64) parties drawn at random.",
    )


class Run(Section):
    """How it is run."""

    engine: Literal["fast", "flower", "processes"] = Field(
        "fast",
        description="fast: all parties in this process; flower: Flower's simulation (parley[ray]); "
        "processes: a real server and one real process a party on this machine, with TLS, node "
        "authentication and the masked protocol.",
    )
    stage_timeout: float = Field(
        120.0,
        ge=1,
        le=86_400,
        description="Seconds that a party has to answer one request; then it counts as dropped "
        "(engines flower and processes, and deployments).",
    )
    seed: Annotated[int, Field(ge=0)] | Literal["none"] = Field(
        "none",
        description="none: noise from the operating system's entropy; a number: reproducible, "
        "and the noise then protects nobody.",
    )
    out: str = Field("runs", description="Folder that run folders are made in.")
    faults: str = Field(
        "",
        description="Simulated faults, e.g. 'drop:0.2' (fraction lost each round at any stage), "
        "'decline:0.1', 'drop:0.1@before-vector'; comma-separated. Private components are a "
        "release like a round's, named @0.",
    )
    evaluate_every: Annotated[int, Field(ge=0)] | Auto = Field(
        "auto",
        description="Rounds between the simulation's evaluations; 0: only the last; auto: every "
        "round where that is cheap, else every tenth.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where networks train (fedavg); auto: cuda where present."
    )


@dataclass(frozen=True, kw_only=True)
class UnitBudget:
    """What a job asks for one unit of privacy.

    Attributes:
        unit: record or party.
        epsilon, delta: of this job.
        dataset_epsilon: total of the unit's data, fixed at their first release.
        dataset_delta: the δ of that total; None for the one that the plan states.
        keys: what the job's keys for it have before "epsilon" and "delta".
    """

    unit: Unit
    epsilon: float
    delta: float
    dataset_epsilon: float
    dataset_delta: float | None
    keys: str = ""


def _unless_auto(value: float | Literal["auto"], otherwise: float) -> float:
    return otherwise if value == "auto" else value


class Job(Section):
    """A run, whole. Build it with `load_job`; sections and keys are described there."""

    parties: Parties = Parties()
    data: Data = Data()
    model: Model = Model()
    algorithm: Algorithm = Algorithm()
    dp_sgd: DPSGD = DPSGD()
    privacy: Privacy = Privacy()
    secure_aggregation: SecureAggregation = SecureAggregation()
    run: Run = Run()

    @model_validator(mode="after")
    def _check(self) -> Job:
        privacy = self.privacy
        if self.noise in {"gaussian", "discrete-gaussian"} and privacy.delta == 0:
            raise ValueError(
                f"Expected privacy.delta > 0 with {self.noise} noise, got 0. A pure guarantee "
                "(δ = 0) needs privacy.noise = 'laplace-l1' (or 'l2-laplace', pure but for its "
                "sampler's distance, stated as δ = 2^-40)."
            )
        if self.noise == "discrete-gaussian" and privacy.calibration in {"exact", "as-printed"}:
            raise ValueError(
                "Expected privacy.calibration zcdp or cks20 with discrete-gaussian noise (the "
                f"exact curve is not proved for it in d > 1), got {privacy.calibration}."
            )
        survivors = self.secure_aggregation.min_survivors
        if isinstance(survivors, int) and not 1 <= survivors <= self.parties.count:
            raise ValueError(
                f"Expected 1 <= secure-aggregation.min-survivors <= parties.count = "
                f"{self.parties.count}, got {survivors}."
            )
        colluding = self.secure_aggregation.corrupt
        if isinstance(colluding, int) and not 0 <= colluding < self.parties.count:
            raise ValueError(
                f"Expected 0 <= secure-aggregation.corrupt < parties.count = "
                f"{self.parties.count}, got {colluding}."
            )
        check_kind(self)
        if re.search(r"://[^/@]*:[^/@]*@", privacy.ledger):
            raise ValueError(
                "Expected a privacy.ledger URL without a password (the job is kept in the run "
                "folder). Give it by PGPASSWORD or ~/.pgpass."
            )
        delta = privacy.dataset_delta
        if isinstance(delta, float) and not 0 <= delta < 1:
            raise ValueError(f"Expected privacy.dataset-delta in [0, 1), got {delta}.")
        return self

    @property
    def noise(self) -> str:
        """The noise law asked for, `default` resolved by the algorithm."""
        if self.privacy.noise != "default":
            return self.privacy.noise
        return job_kind(self.algorithm.kind).noise

    def label_kind(self, classes: int) -> str:
        """How labels are read: as the linear model wants them; for a network as classes."""
        if self.learns == "linear":
            return self.model.kind
        return "softmax" if classes else "logistic"

    @property
    def learns(self) -> str:
        """How rows and labels are prepared: linear, network or nothing."""
        from parley.client.algorithms.own import is_own  # noqa: PLC0415 - start-up: --help reads no numpy
        from parley.client.algorithms.registry import ALGORITHMS  # noqa: PLC0415 - start-up: --help reads no numpy

        kind = self.algorithm.kind
        return "nothing" if is_own(kind) else ALGORITHMS[kind].learns

    @property
    def rounds(self) -> int:
        """Number of releases: output perturbation has one."""
        return 1 if job_kind(self.algorithm.kind).one_release else self.algorithm.rounds

    @property
    def budgets(self) -> tuple[UnitBudget, ...]:
        """What the job asks for each of its units; the one that ε and δ are named for is first."""
        own = self.privacy
        first = UnitBudget(
            unit=Unit.RECORD if own.unit == "both" else Unit(own.unit),
            epsilon=own.epsilon,
            delta=own.delta,
            dataset_epsilon=_unless_auto(own.dataset_epsilon, own.epsilon),
            dataset_delta=None if own.dataset_delta == "auto" else own.dataset_delta,
        )
        if own.unit != "both":
            return (first,)
        epsilon = _unless_auto(own.party_epsilon, own.epsilon)
        delta = _unless_auto(own.party_delta, own.delta)
        second = UnitBudget(
            unit=Unit.PARTY,
            epsilon=epsilon,
            delta=delta,
            dataset_epsilon=_unless_auto(own.dataset_party_epsilon, epsilon),
            dataset_delta=_unless_auto(own.dataset_party_delta, delta),
            keys="party-",
        )
        return (first, second)

    def budget(self, unit: Unit) -> UnitBudget | None:
        """What the job asks for one unit; None where it asks nothing."""
        return next((each for each in self.budgets if each.unit is unit), None)

    @property
    def seed(self) -> int | None:
        """Seed of the noise, None for the operating system's entropy."""
        return None if self.run.seed == "none" else self.run.seed

    @property
    def min_survivors(self) -> int:
        """Fewest parties whose sum may be opened."""
        chosen = self.secure_aggregation.min_survivors
        parties = self.parties.count
        wanted = -(-2 * parties // 3) if chosen == "auto" else chosen
        settings = self.secure_aggregation
        if settings.dropouts == "optimistic" or not settings.confirm_survivors:
            return wanted
        # Two sums of more than (m + c)/2 parties share an honest one, so that a server that lies
        # cannot have two opened in one round (`parley.secure_agg.parameters.derive`).
        return max(wanted, (parties + self.corrupt) // 2 + 1) if parties > 1 else 1

    @property
    def corrupt(self) -> int:
        """Parties that are assumed to collude with the server."""
        chosen = self.secure_aggregation.corrupt
        return assumed_corrupt(self.parties.count) if chosen == "auto" else chosen
