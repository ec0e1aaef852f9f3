"""Define `summary.json`, the one object that terminal, report and model read about a run."""

from __future__ import annotations

from typing import Literal

from parley.privacy.accounting.rounding import format_exact
from parley.safe_io.plurals import format_noun
from parley.server.records.evaluation import ClassifierMetrics, RegressionMetrics
from parley.server.records.json_record import JsonRecord, OptionalFloat
from parley.server.records.round_line import PartyCounts
from parley.server.records.summary_base import JobSummary

IMAGE_GRID = "grid"
"""Tensor of a model file: `[K, n, …]` some images of every class, from 0 to 255."""


class SyntheticSummary(JsonRecord):
    """A table that was drawn from what a run released; drawing costs no privacy.

    Every metric below `records` looks at the records, and exists only in a simulation. An AUC or
    accuracy is that of a model that was fitted to a table and predicts held-out records: logistic
    regression on the codes, and boosted trees. TV is total variation, the mean over columns or
    pairs.

    Attributes:
        path: of the records, within the run's folder.
        rows, seed: number of drawn rows, and their public seed.
        tables, classes: number of released tables, or of classes with a sum of random features.
        records: N̂, the number of records according to the release.
        tv1, tv2: between the table and the training records, of columns and of pairs.
        held_out_tv2, independent_tv2: of held-out records, and of independent columns.
        twin_auc: fitted to the table that the same release without noise gives.
        independent_auc: fitted to columns drawn independently of each other, without noise.
        tstr_accuracy, real_accuracy: likewise; twin_accuracy: of arrays.
        copies, held_out_copies: share of the rows that equal one of some training records, and one
            of the same number of held-out records: information, but no evidence of privacy, like
            the metrics below.
        nearest, held_out_nearest: mean distance of a row to the closest of them: the share of
            columns that differ; for arrays, the root mean square of the entries' difference.
        membership_auc: how well a record's distance to the closest row separates training records
            from held-out ones: 0.5 is chance.
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
    """The end of the ledger's chain after this run."""

    records: int
    hash: str


class SecureSumSummary(JsonRecord):
    """The secure sum that ran.

    Attributes:
        backend: ideal or masked; empty if an interrupted run has no record of it.
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
    """The released fraction of clipped gradients; deviations are those of its noise."""

    last: float
    deviation: float
    mean: float
    mean_deviation: float


class PartyAccount(JsonRecord):
    """The cost of one party's DP-SGD: conversion → ε."""

    party: int
    records: int
    releases: int
    steps: int
    epsilon: dict[str, OptionalFloat]


class DpSgdSummary(JsonRecord):
    """DP-SGD by party, which only a simulation knows."""

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
"""Name for all labels beyond the 12 most common ones."""


class PartitionSummary(JsonRecord):
    """Who holds which labels, which only a simulation knows.

    `parley.simulations.metrics.heterogeneity_figures` computes it.

    Attributes:
        kind: the rule that split the records; its `alpha` or `column` if it has one.
        labels: names, the 12 most common and "other"; fifths of numbers with `numeric`.
        commonest: quantiles of the share of a party's most common label; `quantiles` names them.
        counts: `[B][K]`, for few parties.
        shares: for many parties, quantiles of each label's share over the parties.
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
    """The result of a run's canaries: a lower bound on ε, from guesses of their coins.

    Attributes:
        canaries: K, extra records; coins decided which of two each is, or whether it is present.
        epsilon_lower: without any assumption.
        ceiling: maximum that this number of canaries could have shown.
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
    """How good a real run's model is on public records: no release, no cost."""

    records: int
    judgement: ClassifierMetrics | RegressionMetrics | None = None


class EvaluationSummary(JsonRecord):
    """The model's metrics on records that the parties hold out: a release after the rounds.

    Attributes:
        epsilon, delta: of only this release; the run's own account includes it.
        within: bound on the noise of one count, at `confidence`; in records.
        counts: the release. For two labels `[B, 2]` by interval of probability and label, for K
            `[K, K]` by true and predicted label; empty: see `reason`.
        edges: probabilities between intervals.
        judgement: metrics from the counts, with intervals at `confidence`; None: the noise leaves
            nothing of them.
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


class RunSummary(JobSummary):
    """The result of a run.

    Attributes:
        status: complete, budget-exhausted, too-few-survivors, party-failed; or interrupted, which
            is never written: it is the status before a run ends.
        model_digest: SHA-256 of the file of your own model; absent for Parley's models.
        metric: what `accuracy` measures: accuracy or R² on held-out records.
        loss, baseline_loss, excess_loss, accuracy, baseline_accuracy, majority_accuracy,
            records_by_party: each would be another release; absent in a real run, and present even
            if not finite otherwise.
        verdict: why the model should not be used as it is, and what would give a better one; empty:
            no objection is known.
        peak_mib: of a simulation's process, with mapped files; `data_mib` of that are records.
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
    model_digest: str | None = None
    metric: Literal["accuracy", "r2"]
    data: str
    records_by_party: tuple[int, ...] = ()
    weights: str
    rounds_done: int
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
    deployment: str | None = None
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

    def __repr__(self) -> str:
        budget = format_exact(self.primary.epsilon_budget)
        return (
            f"<RunSummary {self.model.rpartition(':')[2]}, {self.parties} "
            f"{format_noun(self.parties, 'party')}, epsilon={budget}, {self.status}>"
        )

    __str__ = __repr__
