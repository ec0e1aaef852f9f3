"""What a guarantee comes to, planned or spent, and against whom."""

from __future__ import annotations

from typing import Literal

from parley.privacy.accounting.threat_model import Adversary, Neighbouring, SampledAdversary, Unit
from parley.server.records.json_record import Epsilon, JsonRecord, OptionalFloat
from parley.server.records.round_line import RoundAccount


class BlockAccount(JsonRecord):
    """What is left of a block of the data's records: ε at the budget's δ.

    Attributes:
        name: empty: every block that no job named yet.
        after: the same after one such job.
    """

    name: str
    left: float
    after: float


class DataAccount(JsonRecord):
    """One budget (ε, δ) of a data set, for one unit, as a ledger has it.

    Of a job that reads some blocks of the records, of the one of them that has least.

    Attributes:
        spent: ε of all releases of all runs on the data, at δ; None where none is proved finite.
        held: releases to come of runs that are not over.
        left: ε at δ that nobody holds, by the account's certificate.
        jobs: how many more jobs of this kind fit, at most 1000.
        blocks: each that a job named, and all others; none where none was named.
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
        honest, colluders: k and c; k shares are charged, of t = k + c survivors at least.
        inflation: √(m/k), the noise of all m shares over what is charged.
        dealt: one draw stands for all shares after the first round: a simulation.
    """

    parties: int
    honest: int
    colluders: int
    inflation: float
    scale: float
    dealt: bool


class NoiseSummary(JsonRecord):
    """Noise as the average over the parties has it, or a party's batch with noise in the parties.

    Attributes:
        scale, scale_of_sum: of the average, and of the sum of all contributions. With shares
            `scale` is that of the k that are charged, `expected_norm` that of all together.
        point: who adds it; empty in an interrupted run, as figures are None.
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
    """What a guarantee comes to against one adversary; one of them is `charged` to the ledger."""

    adversary: Adversary | SampledAdversary
    charged: bool
    epsilon: OptionalFloat
    delta: float


class AttackerRate(JsonRecord):
    """At most how often so many `members` together are recognised.

    Attributes:
        alarms: of cases in which they are not there (or are others), a share.
        rate: of cases in which they are there.
    """

    members: int
    alarms: float
    rate: float


class GuaranteeSummary(JsonRecord):
    """One unit's guarantee, planned or spent; `accounts` have it by adversary, the charged first.

    Attributes:
        assumptions: what it rests on beyond its proof; None where that is not known.
        epsilon: by `conversion`, the lowest that is proved, of all releases.
        found: what an attacker finds, of one of the unit and of groups.
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


class AccountAfterRound(RoundAccount):
    """What the releases up to a round come to."""

    round: int


class PlannedGuarantee(GuaranteeSummary):
    """What all releases of a plan come to, and those up to each round."""

    description: str
    epsilon_by_round: tuple[AccountAfterRound, ...]


class EpsilonBound(JsonRecord):
    """An ε that is proved, and by what."""

    epsilon: OptionalFloat
    conversion: str


class RecordBounds(JsonRecord):
    """ε of one record by the noise in its party (inner) and by the noise on the sum (outer)."""

    charged: Literal["inner", "outer"]
    inner: EpsilonBound
    outer: EpsilonBound
