"""Define the parts of a plan's summary (`parley.server.records.plan_summary`)."""

from __future__ import annotations

from parley.server.records.json_record import JsonRecord, OptionalFloat


class NoiseAlternative(JsonRecord):
    """The result of another distribution or calibration; if only `refused` is set, it has the
    reason.
    """

    scale: float | None = None
    expected_norm: float | None = None
    epsilon_charged: OptionalFloat = None
    conversion: str | None = None
    refused: str | None = None


class GridSummary(JsonRecord):
    """The integers that are summed.

    Attributes:
        inflation: share that the grid adds to the sensitivity; charged.
        largest_sum: of the parties' contributions, in grid units.
        noise_tail: bound that the primary noise exceeds with probability below 2⁻⁵⁰, in the units
            in which it is drawn.
    """

    ring_bits: int
    scale_bits: int
    inflation: float
    largest_sum: int
    noise_tail: float


class SizeAlternative(JsonRecord):
    """The job's noise for another number of parties, or of records each."""

    parties: int
    min_records: int
    sensitivity: float
    scale: float
    expected_norm: float


class PlannedDpSgd(JsonRecord):
    """Training in the parties; fields of a guarantee that the job does not request are None."""

    sampling_rate: float
    expected_batch: float
    steps_per_round: int
    gradients: str
    noise_multiplier: float | None
    gradient_multiplier: float | None
    clipped_fraction_share: float
    clipped_fraction_deviation: float | None
    clip_norm: float | None
    party_clip_norm: float | None
    components_mu: float | None


class PlannedEvaluation(JsonRecord):
    """The release after the rounds: counts of held-out records.

    Attributes:
        epsilon, delta: of only this release; the guarantee's own account includes it.
        within: bound in records on the noise of all counts, at `confidence`.
    """

    epsilon: OptionalFloat
    delta: float
    law: str
    counts: int
    within: float
    confidence: float


class PlannedSecureSteps(JsonRecord):
    """Steps that are secure sums: their number, and their cost among real parties.

    Attributes:
        vector_bytes: size of one party's masked vector, in every step.
    """

    steps: int
    optimiser: str
    vector_bytes: int
    hours: float
    seconds_a_step: float


class PlannedSynthetic(JsonRecord):
    """The one release from which synthetic records are drawn.

    Attributes:
        noise: standard deviation on a coordinate of the sum, that of all shares.
        average: mean number of records per cell of the tables; None: there are no cells.
    """

    released: str
    sensitivity: float
    noise: float
    average: OptionalFloat = None
    noise_norm: float
    largest: tuple[tuple[str, int], ...] = ()
    vector_bytes: int


class PlannedSimulation(JsonRecord):
    """Estimated cost of the job on this machine with all parties in one process.

    Attributes:
        data_mib: of the records, if every party holds the minimum number.
        mapped: whether they are read from a file because they exceed `limit_mib`.
        seconds_a_round: of the parties' computation, measured on generated records of a few of
            them; absent if a few parties do not predict the cost of many.
    """

    data_mib: float
    limit_mib: int
    mapped: bool
    memory_mib: float
    seconds_a_round: OptionalFloat = None
