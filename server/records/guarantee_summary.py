"""What a run's guarantees came to, each against whom: a part of `summary.json`."""

from __future__ import annotations

from typing import Literal

from parley.server.records.facts import Facts, Figure


class NoiseShares(Facts):
    """How the noise on a sum is split among the parties.

    Attributes:
        parties: m.
        honest, colluders: k and c; k shares are charged, of t = k + c survivors at least.
        inflation: √(m/k), the noise of all m shares over what is charged.
        scale: of one share, in the unit of the sum.
        dealt: one draw stands for all shares after the first round: a simulation.
    """

    parties: int
    honest: int
    colluders: int
    inflation: float
    scale: float
    dealt: bool


class Noise(Facts):
    """Noise as the average over the parties has it, or a party's batch with noise in the parties.

    Attributes:
        scale, scale_of_sum: of the average, and of the sum of all contributions.
        expected_norm: root of the mean squared length of the noise vector.
        point: who adds it; empty in an interrupted run, as figures are None.
        seeded: drawn from a seed, so that it protects nobody.
        shares: how it is split, with point share; `scale` is then that of the k that are charged,
            `expected_norm` that of all parties' together.
    """

    law: str
    scale: Figure
    scale_of_sum: Figure
    expected_norm: Figure
    sensitivity: Figure
    point: str
    seeded: bool | None = None
    shares: NoiseShares | None = None


class AdversaryAccount(Facts):
    """What a guarantee comes to against one adversary.

    Attributes:
        adversary: a key of `parley.server.records.words.ADVERSARIES`, or the words themselves.
        charged: this is what the ledger was charged.
    """

    adversary: str
    charged: bool
    epsilon: Figure
    delta: float


class GuaranteeSummary(Facts):
    """What one unit's guarantee came to. ε and δ were spent, by the lowest proved conversion.

    Attributes:
        accounts: the same against each adversary that is listed, the charged one first.
        calibration, clip_norm: absent where the run doesn't say.
    """

    unit: str
    neighbouring: str
    epsilon: float
    delta: float
    epsilon_budget: float
    delta_budget: float
    rho: Figure
    epsilon_by_conversion: dict[str, Figure]
    conversion: str
    accounts: tuple[AdversaryAccount, ...]
    calibration: str | None = None
    clip_norm: Figure = None
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
