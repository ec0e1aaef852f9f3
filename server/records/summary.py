"""What a run comes to: `summary.json`, the one object that terminal, report and model read."""

from __future__ import annotations

from typing import Literal

from parley.server.records.facts import Facts, Figure
from parley.server.records.round_line import Counts

__all__ = ["PartyLevel", "RecordBounds", "RunSummary", "SecureAggregation"]


class LedgerHead(Facts):
    """The end of the ledger's chain as this run left it."""

    records: int
    hash: str


class Noise(Facts):
    """Noise as the average over the parties has it, or a party's batch with noise in the parties.

    Attributes:
        scale, scale_of_sum: of the average, and of the sum of all contributions.
        expected_norm: root of the mean squared length of the noise vector.
        point: who adds it; empty in an interrupted run, as figures are None.
        seeded: drawn from a seed, so that it protects nobody.
    """

    law: str
    scale: Figure
    scale_of_sum: Figure
    expected_norm: Figure
    sensitivity: Figure
    point: Literal["server", "share", "party", ""]
    seeded: bool | None = None


class SecureAggregation(Facts):
    """The secure sum that ran.

    Attributes:
        inflation: share that the grid adds to the sensitivity; charged.
        masked_check: what was compared with the masked protocol, in words; empty: nothing.
    """

    ring_bits: int | None
    scale_bits: int | None
    inflation: Figure
    min_survivors: int | None
    bytes_up: int
    bytes_down: int
    mode: str
    masked_check: str = ""
    setup_bytes_up: int | None = None
    setup_bytes_down: int | None = None
    setup_stage_seconds: tuple[float, ...] | None = None


class PartyLevel(Facts):
    """The second guarantee: everything that one party holds."""

    unit: str
    neighbouring: str
    epsilon: float
    delta: float
    epsilon_budget: float
    delta_budget: float
    rho: Figure
    epsilon_by_conversion: dict[str, Figure]
    conversion: str
    clip_norm: Figure
    noise: Noise


class Bound(Facts):
    """An ε that is proved, and by what."""

    epsilon: Figure
    conversion: str


class RecordBounds(Facts):
    """ε of one record by the noise in its party (inner) and by the noise on the sum (outer)."""

    charged: Literal["inner", "outer"]
    inner: Bound
    outer: Bound


class Components(Facts):
    """The release of the principal components, ahead of the rounds."""

    survivors: int
    parties: Counts
    reasons: dict[str, int]
    bytes_up: int
    bytes_down: int
    stages: int


class ClippedFraction(Facts):
    """The released fraction of clipped gradients; deviations are its noise's."""

    last: float
    deviation: float
    mean: float
    mean_deviation: float


class PartyAccount(Facts):
    """What one party's DP-SGD came to: conversion → ε."""

    party: int
    records: int
    releases: int
    steps: int
    epsilon: dict[str, Figure]


class DpSgd(Facts):
    """DP-SGD party by party, known to a simulation alone."""

    sampling_rate: float
    noise_multiplier: float
    gradient_multiplier: float
    clipped_share: float
    clip_norm: float
    steps_per_round: int
    parties_by_releases: dict[str, int]
    largest: dict[str, Figure]
    parties: tuple[PartyAccount, ...]
    precision: str
    device: str


class Skew(Facts):
    """Total variation distance between parties' label shares and those of all records."""

    mean: float
    largest: float


class Partition(Facts):
    """Who holds which labels (`parley.simulations.data.spread`), known to a simulation alone."""

    kind: str
    alpha: float | None = None
    column: str | int | None = None
    labels: tuple[str, ...]
    numeric: bool
    overall: tuple[float, ...]
    skew: Skew
    quantiles: tuple[float, ...]
    commonest: tuple[float, ...]
    sizes: tuple[float, ...]
    counts: tuple[tuple[int, ...], ...] | None = None
    shares: tuple[tuple[float, ...], ...] | None = None


class RunSummary(Facts):
    """What a run came to. ε and δ are what was spent, by the lowest proved conversion.

    Attributes:
        format: of this file; one without it is of Parley 0.1.0, which had the same keys.
        metric: what `accuracy` measures: accuracy or R² on held-out records.
        rounds: planned; `rounds_done` were committed.
        simulation_only: names of the figures that a real run could not know.
        loss, baseline_loss, excess_loss, accuracy, baseline_accuracy, majority_accuracy: would
            each be a release of its own; None in a real run, or where not finite.
        components, clipped_fraction, party_level, record_bounds, dp_sgd, partition, deployment:
            absent where the run has none.
    """

    format: Literal[1] = 1
    run_dir: str
    run_id: str
    ledger: str
    ledger_head: LedgerHead | None
    created: str
    parley_version: str
    engine: str
    status: str
    reason: str
    algorithm: str
    model: str
    metric: Literal["accuracy", "r2"]
    data: str
    parties: int
    records_by_party: tuple[int, ...]
    min_records: int
    dimension: int | None
    rounds: int
    rounds_done: int
    epsilon: float
    delta: float
    epsilon_budget: float
    delta_budget: float
    rho: Figure
    epsilon_by_conversion: dict[str, Figure]
    conversion: str
    unit: str
    neighbouring: str
    calibration: str
    noise: Noise
    secure_aggregation: SecureAggregation
    loss: Figure
    baseline_loss: Figure
    excess_loss: Figure
    accuracy: Figure
    baseline_accuracy: Figure
    majority_accuracy: Figure
    seconds: Figure
    seconds_per_round: Figure
    simulation_only: tuple[str, ...]
    advice: tuple[str, ...]
    deployment: str | None = None
    party_level: PartyLevel | None = None
    record_bounds: RecordBounds | None = None
    components: Components | None = None
    clipped_fraction: ClippedFraction | None = None
    dp_sgd: DpSgd | None = None
    partition: Partition | None = None
