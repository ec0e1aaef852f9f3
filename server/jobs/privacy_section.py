"""Define `[privacy]`, what a run may cost, and the budget of each unit that follows from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from parley.privacy.accounting.account_admission import (
    AccountCertificate,
    compute_reserved_delta,
)
from parley.privacy.accounting.threat_model import NOISE_POINTS, NoisePoint, Unit
from parley.privacy.ledger.database_url import check_no_password
from parley.privacy.mechanisms.registry import MECHANISMS
from parley.server.jobs.external_references import FilePath, Text
from parley.server.jobs.section_base import Auto, JobSection, Positive, replace_auto

if TYPE_CHECKING:
    NoiseName = str
    PointName = str
else:
    NoiseName = Literal[("default", *MECHANISMS, "auto")]
    PointName = Literal[tuple(NOISE_POINTS)]


_SHARED_CERTIFICATES = (AccountCertificate.GAUSSIAN, AccountCertificate.ZCDP)


@dataclass(frozen=True, kw_only=True)
class UnitBudget:
    """A job's budget for one unit of privacy.

    Attributes:
        epsilon, delta: of this job's rounds, and of the releases before them.
        total: ε of all that the job releases.
        dataset_epsilon: total of the unit's data, fixed at their first release.
        dataset_delta: δ of that total; None for the plan's δ.
        certificate: the test by which the unit's account admits releases.
        reserved_delta: δₐ, the part of δ that a shared account keeps for approximations.
        key_prefix: text before "epsilon" and "delta" in the job's keys for this unit.
    """

    unit: Unit
    epsilon: float
    total: float
    delta: float
    dataset_epsilon: float
    dataset_delta: float | None
    certificate: AccountCertificate = AccountCertificate.PLAN
    reserved_delta: float = 0.0
    key_prefix: str = ""

    @property
    def noise_delta(self) -> float:
        """δ for calibrating noise: the δ at which a shared account charges ε."""
        return self.delta - self.reserved_delta if self.is_shared else self.delta

    @property
    def is_shared(self) -> bool:
        """Whether the account adds up μ² or ρ, together with other runs."""
        return self.certificate in _SHARED_CERTIFICATES


class PrivacySection(JobSection):
    """The privacy budget of a run."""

    epsilon: Positive = 1.0
    """Budget ε of this job: record-level, replace-one neighbours."""

    delta: float = Field(1e-5, ge=0, lt=1)
    """Budget δ, well below 1 over the number of records (of parties, if they are protected). 0
    needs laplace-l1, exact to the last bit, or l2-laplace, which is pure except for its sampler's
    distance, stated as δ = 2^-40.
    """

    calibration: Literal["exact", "zcdp", "cks20", "as-printed"] = "exact"
    """Gaussian noise: exact (analytic), zcdp, cks20 (tighter zCDP conversion), as-printed (σ² =
    8G²T·ln(1/δ)/(m²n²ε²)).
    """

    noise: NoiseName = "default"
    """default: gaussian for gradients, l2-laplace for models. auto: the proved distribution with
    the lower expected norm. laplace-as-printed reproduces the paper and is charged what it costs,
    √d·ε.
    """

    noise_point: PointName = "share"
    """Who adds the noise on a sum. share: every party adds a share of it before masking, so that no
    one ever holds the sum without noise. server: a trusted server, which sees that sum before it
    adds the noise. party (linear models): every party adds all of it, so that what it sends is
    private by itself, and the average has √m times the noise. The noise of DP-SGD inside the
    parties (fedavg, unit record) is none of these.
    """

    unit: Literal["record", "party", "both"] = "record"
    """What is protected: one record, or (fedavg) everything that one party holds, or both, each
    with its own budget: DP-SGD in the parties and, on the sum of their clipped updates, the
    server's noise.
    """

    party_epsilon: Positive | Auto = "auto"
    """unit both: budget ε of this job for everything that one party holds, replace-one neighbours;
    auto: privacy.epsilon, which is then the record's.
    """

    party_delta: Annotated[float, Field(gt=0, lt=1)] | Auto = "auto"
    """unit both: δ of that budget; auto: privacy.delta."""

    record_bound: Literal["lower", "inner"] = "lower"
    """unit both: which noise a record is charged by. inner: the noise of its party's own training,
    which holds against the server too. lower: that or the server's noise on the sum, whichever
    costs less; real parties decline it unless insist-on-inner is false.
    """

    neighbouring: Literal["replace-one", "add-or-remove-one"] = "replace-one"
    """Neighbours differ by replacing one record (party), or (networks) by adding or removing one,
    which needs about half the noise and promises less. A party itself stays: what it holds is added
    or removed. With unit both, parties are always replaced.
    """

    ledger: FilePath = ""
    """Ledger file or postgresql:// URL that several runs share: each run reserves what its rounds
    need, or is refused. Empty: the run folder's own ledger.sqlite.
    """

    dataset: Text = ""
    """Name of the data in the ledger; empty: data.source."""

    dataset_epsilon: Positive | Auto = "auto"
    """Budget of the data over all runs; auto: this job's epsilon."""

    dataset_delta: Annotated[float, Field(ge=0, lt=1)] | Auto = "auto"
    """δ of that budget; auto: this job's delta."""

    dataset_party_epsilon: Positive | Auto = "auto"
    """unit both: budget of the data over all runs for everything that one party holds; auto: this
    job's party-epsilon.
    """

    dataset_party_delta: Annotated[float, Field(gt=0, lt=1)] | Auto = "auto"
    """δ of that budget; auto: this job's party-delta."""

    certificate: Literal["auto", "pure", "gaussian", "zcdp", "plan"] = "auto"
    """How the data's account adds up releases, fixed when it is opened (docs/budgets.md). gaussian:
    Σμ²; zcdp: Σρ; pure: Σε; plan: only this run, with its own ledger. auto: plan without
    privacy.ledger, else gaussian (pure at delta 0).
    """

    reserved_delta: Annotated[float, Field(ge=0, lt=1)] | Auto = "auto"
    """Part of delta that a shared account reserves for sampled training and for the noise samplers,
    fixed when it is opened. auto: delta/100, or delta/10 if this job trains networks.
    """

    @model_validator(mode="after")
    def _check(self) -> PrivacySection:
        check_no_password(self.ledger, "a privacy.ledger URL (the job is stored in the run folder)")
        if self.certificate == "plan" and self.ledger:
            raise ValueError(
                "Expected no privacy.ledger with privacy.certificate = 'plan', which holds for "
                "only one run, got one. To share a ledger between runs, use gaussian, zcdp or pure."
            )
        if self.chosen_certificate in _SHARED_CERTIFICATES and self.delta == 0:
            raise ValueError(
                f"Expected privacy.delta > 0 with privacy.certificate = '{self.certificate}', "
                "got 0. Use 'pure' at 0."
            )
        return self

    @property
    def point(self) -> NoisePoint:
        """Where the noise on a sum is added."""
        return NOISE_POINTS[self.noise_point]

    @property
    def units(self) -> tuple[Unit, ...]:
        """The protected units; first the unit of ε and δ."""
        return _UNITS_BY_NAME[self.unit]

    @property
    def has_private_sizes(self) -> bool:
        """Whether a party's number of records is part of what is protected."""
        return self.neighbouring == "add-or-remove-one" or Unit.PARTY in self.units

    @property
    def chosen_certificate(self) -> AccountCertificate:
        """The certificate, with `auto` resolved."""
        if self.certificate != "auto":
            return AccountCertificate(self.certificate)
        if not self.ledger:
            return AccountCertificate.PLAN
        return AccountCertificate.GAUSSIAN if self.delta else AccountCertificate.PURE

    def compute_reserved_delta(self, delta: float) -> float:
        """Return δₐ for a budget's δ."""
        if self.reserved_delta == "auto":
            return compute_reserved_delta(delta)
        return self.reserved_delta * delta / self.delta if self.delta else 0.0

    @property
    def budgets(self) -> tuple[UnitBudget, ...]:
        """The budget of each unit, in the units' order."""
        first = UnitBudget(
            unit=self.units[0],
            epsilon=self.epsilon,
            total=self.epsilon,
            delta=self.delta,
            dataset_epsilon=replace_auto(self.dataset_epsilon, self.epsilon),
            dataset_delta=None if self.dataset_delta == "auto" else self.dataset_delta,
            certificate=self.chosen_certificate,
            reserved_delta=self.compute_reserved_delta(self.delta),
        )
        epsilon = replace_auto(self.party_epsilon, self.epsilon)
        delta = replace_auto(self.party_delta, self.delta)
        second = replace(
            first,
            unit=Unit.PARTY,
            epsilon=epsilon,
            total=epsilon,
            delta=delta,
            dataset_epsilon=replace_auto(self.dataset_party_epsilon, epsilon),
            dataset_delta=replace_auto(self.dataset_party_delta, delta),
            reserved_delta=self.compute_reserved_delta(delta),
            key_prefix="party-",
        )
        return (first, second)[: len(self.units)]


_UNITS_BY_NAME = {
    "record": (Unit.RECORD,),
    "party": (Unit.PARTY,),
    "both": (Unit.RECORD, Unit.PARTY),
}
