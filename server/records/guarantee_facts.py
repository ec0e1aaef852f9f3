"""Define what a guarantee costs, planned or spent, and against which adversary."""

from __future__ import annotations

from typing import Literal

from parley.privacy.accounting.threat_model import Adversary, Neighbouring, SampledAdversary, Unit
from parley.server.records.json_record import Epsilon, JsonRecord, OptionalFloat
from parley.server.records.round_line import RoundAccount


class BlockAccount(JsonRecord):
    """Remaining budget of a block of the data's records: ε at the budget's δ.

    Attributes:
        name: empty: every block that no job named yet.
        after: the remaining budget after one such job.
    """

    name: str
    left: float
    after: float


class DataAccount(JsonRecord):
    """One budget (ε, δ) of a data set, for one unit, from a ledger.

    For a job that reads some blocks of the records, it is that of the block with the least left.

    Attributes:
        spent: ε of all releases of all runs on the data, at δ; None if no finite one is proved.
        held: future releases of runs that are not over.
        left: ε at δ that is not reserved, by the account's certificate.
        jobs: how many more jobs of this kind fit, at most 1000.
        blocks: each block that a job named, and all others; empty if none was named.
        certificate: the test by which its account admits releases; empty in older records.
    """

    name: str
    unit: Unit
    neighbouring: Neighbouring
    epsilon: float
    delta: float
    spent: OptionalFloat
    releases: int
    held: int
    left: float
    jobs: int
    blocks: tuple[BlockAccount, ...] = ()
    certificate: str = ""


class NoiseShares(JsonRecord):
    """How the noise on a sum is split among the m parties.

    Attributes:
        honest, colluders: k and c; k shares are charged, of at least t = k + c survivors.
        inflation: √(m/k), the noise of all m shares relative to what is charged.
        dealt: whether one draw replaces all shares after the first round, in a simulation.
    """

    parties: int
    honest: int
    colluders: int
    inflation: float
    scale: float
    dealt: bool


class NoiseSummary(JsonRecord):
    """Noise on the average over the parties, or on a party's batch with noise in the parties.

    Attributes:
        scale, scale_of_sum: of the average, and of the sum of all contributions. With shares,
            `scale` is that of the k charged shares, and `expected_norm` that of all shares
            together.
        point: who adds it; empty in an interrupted run, in which numbers are None.
    """

    law: str
    scale: OptionalFloat
    scale_of_sum: OptionalFloat
    expected_norm: OptionalFloat
    sensitivity: OptionalFloat
    point: str
    seeded: bool | None = None
    shares: NoiseShares | None = None


class AdversaryAccount(JsonRecord):
    """The cost of a guarantee against one adversary; one account is `charged` to the ledger."""

    adversary: Adversary | SampledAdversary
    charged: bool
    epsilon: OptionalFloat
    delta: float


class AttackerRate(JsonRecord):
    """Maximum rate at which `members` together are recognised.

    Attributes:
        alarms: share of the cases in which they are not present (or are others).
        rate: share of the cases in which they are present.
    """

    members: int
    alarms: float
    rate: float


class GuaranteeSummary(JsonRecord):
    """One unit's guarantee, planned or spent, with `accounts` by adversary, the charged one first.

    Attributes:
        assumptions: what it depends on beyond its proof; None if that is not known.
        epsilon: of all releases, by `conversion`, the lowest that is proved.
        found: an attacker's rates, for one of the unit and for groups.
        description, epsilon_by_round: only of a plan: its noise in words, and the cost of all
            releases up to each round.
    """

    unit: Unit
    neighbouring: Neighbouring
    delta: float
    accounts: tuple[AdversaryAccount, ...]
    assumptions: tuple[str, ...] | None = None
    calibration: str | None = None
    clip_norm: OptionalFloat = None
    conversion: str
    epsilon: Epsilon
    epsilon_budget: float
    delta_budget: float
    rho: OptionalFloat
    epsilon_by_conversion: dict[str, OptionalFloat]
    found: tuple[AttackerRate, ...] | None = None
    noise: NoiseSummary
    description: str | None = None
    epsilon_by_round: tuple[RoundAccount, ...] | None = None


class EpsilonBound(JsonRecord):
    """An ε and the conversion that proves it."""

    epsilon: OptionalFloat
    conversion: str


class RecordBounds(JsonRecord):
    """ε of one record by the noise in its party (inner) and by the noise on the sum (outer)."""

    charged: Literal["inner", "outer"]
    inner: EpsilonBound
    outer: EpsilonBound
