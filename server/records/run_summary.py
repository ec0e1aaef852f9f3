"""What a run comes to: `summary.json`, the one object that terminal, report and model read."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from parley.server.records.evaluation import ClassifierMetrics, RegressionMetrics
from parley.server.records.guarantee_facts import DataAccount, GuaranteeSummary, RecordBounds
from parley.server.records.json_record import JsonRecord, OptionalFloat
from parley.server.records.round_line import PartyCounts

IMAGE_GRID = "grid"
"""Tensor of a model file: `[K, n, …]` some images of every class, from 0 to 255."""


class SyntheticSummary(JsonRecord):
    """A table that was drawn from what a run released: drawing costs nothing.

    Every figure below `records` looks at the records, and is a simulation's alone. An AUC or an
    accuracy is that of a model which was fitted to a table and is asked about held-out records:
    logistic regression on the codes, and boosted trees. TV is total variation, the mean over
    columns or pairs.

    Attributes:
        path: of the records, within the run's folder.
        rows, seed: how many were drawn, and from which public seed.
        tables, classes: how many tables were released, or classes with a sum of random features.
        records: N̂, how many records there are as the release says.
        tv1, tv2: between the table and the training records, of columns and of pairs.
        held_out_tv2, independent_tv2: of held-out records, and of independent columns.
        twin_auc: fitted to the table that the same release without noise gives.
        independent_auc: fitted to columns drawn independently of each other, without noise.
        tstr_accuracy, real_accuracy: likewise; twin_accuracy: of arrays.
        copies, held_out_copies: share of the rows that equal one of some training records, and one
            of as many held-out records: information, and no evidence of privacy, as what follows.
        nearest, held_out_nearest: mean distance of a row to the closest of them: the share of
            columns that differ, of arrays the root mean square of the entries' difference.
        membership_auc: how well a record's distance to the closest row tells training records from
            held-out ones: .5 is chance.
    """

    path: str
    rows: int
    seed: int
    tables: int = 0
    classes: int = 0
    records: float
    tv1: OptionalFloat = None
    tv2: OptionalFloat = None
    tstr_auc: OptionalFloat = None
    tstr_trees_auc: OptionalFloat = None
    real_auc: OptionalFloat = None
    real_trees_auc: OptionalFloat = None
    twin_auc: OptionalFloat = None
    independent_auc: OptionalFloat = None
    copies: OptionalFloat = None
    held_out_copies: OptionalFloat = None
    held_out_tv2: OptionalFloat = None
    independent_tv2: OptionalFloat = None
    tstr_accuracy: OptionalFloat = None
    real_accuracy: OptionalFloat = None
    twin_accuracy: OptionalFloat = None
    majority_accuracy: OptionalFloat = None
    nearest: OptionalFloat = None
    held_out_nearest: OptionalFloat = None
    membership_auc: OptionalFloat = None


class LedgerHead(JsonRecord):
    """The end of the ledger's chain as this run left it."""

    records: int
    hash: str


class SecureSumSummary(JsonRecord):
    """The secure sum that ran.

    Attributes:
        backend: ideal or masked; empty where an interrupted run doesn't say.
        inflation: share that the grid adds to the sensitivity; charged.
        masked_check: what was compared with the masked protocol, in words; empty: nothing.
    """

    ring_bits: int | None
    scale_bits: int | None
    inflation: OptionalFloat
    min_survivors: int | None
    bytes_up: int
    bytes_down: int
    backend: str
    masked_check: str = ""
    setup_bytes_up: int | None = None
    setup_bytes_down: int | None = None
    setup_stage_seconds: tuple[float, ...] | None = None


class ComponentsSummary(JsonRecord):
    """The release of the principal components, ahead of the rounds."""

    survivors: int
    parties: PartyCounts
    reasons: dict[str, int]
    bytes_up: int
    bytes_down: int
    stages: int
    noise_point: str | None = None


class ClippedFraction(JsonRecord):
    """The released fraction of clipped gradients; deviations are its noise's."""

    last: float
    deviation: float
    mean: float
    mean_deviation: float


class PartyAccount(JsonRecord):
    """What one party's DP-SGD came to: conversion → ε."""

    party: int
    records: int
    releases: int
    steps: int
    epsilon: dict[str, OptionalFloat]


class DpSgdSummary(JsonRecord):
    """DP-SGD party by party, known to a simulation alone."""

    sampling_rate: float
    noise_multiplier: float
    gradient_multiplier: float
    clipped_share: float
    clip_norm: float
    steps_per_round: int
    parties_by_releases: dict[str, int]
    largest: dict[str, OptionalFloat]
    parties: tuple[PartyAccount, ...]
    precision: str
    device: str


class LabelSkew(JsonRecord):
    """Total variation distance between parties' label shares and those of all records."""

    mean: float
    largest: float


OTHER_LABELS = "other"
"""What labels beyond the commonest 12 are called together."""


class PartitionSummary(JsonRecord):
    """Who holds which labels (`parley.simulations.data.heterogeneity`), known to a simulation
    alone.

    Attributes:
        kind: the rule that split the records; its `alpha` or `column` where it has one.
        labels: names, the commonest 12 and "other"; fifths of numbers with `numeric`.
        commonest: quantiles of the share of a party's own commonest label; `quantiles` names them.
        counts: `[B][K]`, of few parties.
        shares: of many, quantiles of each label's share over the parties.
    """

    kind: str = ""
    alpha: float | None = None
    column: str | int | None = None
    labels: tuple[str, ...]
    numeric: bool
    overall: tuple[float, ...]
    skew: LabelSkew
    quantiles: tuple[float, ...]
    commonest: tuple[float, ...]
    sizes: tuple[float, ...]
    parties: tuple[str, ...] | None = None
    counts: tuple[tuple[int, ...], ...] | None = None
    shares: tuple[tuple[float, ...], ...] | None = None


class SelfAudit(JsonRecord):
    """What a run's canaries showed: a lower bound on ε, by guesses of their coins.

    Attributes:
        canaries: K, extra records; coins decided which of two each is, or whether it is there.
        epsilon_lower: assumes nothing.
        ceiling: the most that so many canaries could have shown.
    """

    canaries: int
    coins: Literal["in-out", "one-of-two"]
    guesses: int
    right: int
    confidence: float
    epsilon_lower: float
    epsilon_lower_on_gaussian_curve: float
    ceiling: float
    method: Literal["one-run"]


class PublicTest(JsonRecord):
    """How good a real run's model is on records that are public: no release, no cost."""

    records: int
    judgement: ClassifierMetrics | RegressionMetrics | None = None


class EvaluationSummary(JsonRecord):
    """The model measured on records that the parties hold out: a release after the rounds.

    Attributes:
        epsilon, delta: of this release alone; the run's own account has it in it.
        within: what the noise on one count does not exceed, at `confidence`; in records.
        counts: the release, of two labels `[B, 2]` by interval of probability and label, of K
            `[K, K]` by true and predicted label; empty: see `reason`.
        edges: probabilities between intervals.
        judgement: what follows from the counts, with intervals at `confidence`; None: the noise
            leaves nothing of them.
    """

    epsilon: float
    delta: float
    law: str
    scale: float
    within: float
    confidence: float
    summed: int = 0
    asked: int
    counts: tuple[tuple[float, ...], ...] = ()
    edges: tuple[float, ...] = ()
    judgement: ClassifierMetrics | None = None
    reason: str = ""


class RunSummary(JsonRecord):
    """What a run came to.

    Attributes:
        status: complete, budget-exhausted, too-few-survivors, party-failed; or interrupted, which
            is never written: it is what is known before a run ends.
        model_digest: SHA-256 of the file of your own model; absent where it is no file of your own.
        metric: what `accuracy` measures: accuracy or R² on held-out records.
        loss, baseline_loss, excess_loss, accuracy, baseline_accuracy, majority_accuracy,
            records_by_party: each would be another release; absent in a real run, and a figure
            where it is not finite.
        verdict: why the model is not to be used as it is, and what would give a better one; empty:
            nothing is known against it.
        peak_mib: of a simulation's process, mapped files among it; `data_mib` of that are records.
    """

    format: Literal[2]
    run_dir: str
    run_id: str
    ledger: str
    ledger_head: LedgerHead | None = None
    created: str
    parley_version: str
    engine: str
    status: str
    reason: str = ""
    algorithm: str
    algorithm_title: str = ""
    model: str
    model_digest: str | None = None
    metric: Literal["accuracy", "r2"]
    data: str
    parties: int
    records_by_party: tuple[int, ...] = ()
    min_records: int | None = None
    weights: str
    dimension: int | None = None
    rounds: int
    rounds_done: int
    guarantees: tuple[GuaranteeSummary, ...] = Field(min_length=1)
    secure_aggregation: SecureSumSummary
    loss: OptionalFloat = None
    baseline_loss: OptionalFloat = None
    excess_loss: OptionalFloat = None
    accuracy: OptionalFloat = None
    baseline_accuracy: OptionalFloat = None
    majority_accuracy: OptionalFloat = None
    seconds: OptionalFloat = None
    seconds_per_round: OptionalFloat = None
    peak_mib: OptionalFloat = None
    data_mib: OptionalFloat = None
    simulation_only: tuple[str, ...] = ()
    verdict: str = ""
    advice: tuple[str, ...] = ()
    features: str | None = None
    class_weights: tuple[float, ...] | None = None
    deployment: str | None = None
    record_bounds: RecordBounds | None = None
    components: ComponentsSummary | None = None
    clipped_fraction: ClippedFraction | None = None
    dp_sgd: DpSgdSummary | None = None
    partition: PartitionSummary | None = None
    self_audit: SelfAudit | None = None
    evaluation: EvaluationSummary | None = None
    public_test: PublicTest | None = None
    judgement: ClassifierMetrics | RegressionMetrics | None = None
    baseline_judgement: ClassifierMetrics | RegressionMetrics | None = None
    synthetic: SyntheticSummary | None = None
    data_accounts: tuple[DataAccount, ...] | None = None

    @property
    def primary(self) -> GuaranteeSummary:
        """The guarantee that the job's own ε and δ are asked for."""
        return self.guarantees[0]
