"""`DatasetConfig`: a data set that a party serves, as in `party.toml`: source, reading, budgets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from parley.client.contract.refusals import Declined, Reason
from parley.client.data.block_selection import Division
from parley.client.data.data_sources import SqlQuery
from parley.client.models.integer_gradients import MAX_RECORDS
from parley.privacy.accounting.account_admission import (
    AccountCertificate,
    compute_reserved_delta,
)
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.ledger.block_composition import Blocks
from parley.privacy.ledger.budget import DatasetBudget
from parley.safe_io.boolean_for_number import is_truth_for_number

APP_DATA, APP_KNOWS = "app", "elsewhere"
"""Label reading for records that only the party's own app reads; app-data if it knows where."""

PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SectionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]


class PolicySection(BaseModel):
    """Base of all parts of `party.toml`: frozen, kebab-case keys, unknown keys refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=lambda name: name.replace("_", "-")
    )

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth_value(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true where a number is expected; a budget of true would be 1."""
        if is_truth_for_number(value, cls.model_fields[str(info.field_name)].annotation):
            raise PydanticCustomError("truth_value", "Input should be a number, no truth value")
        return value


@dataclass(frozen=True, kw_only=True)
class BudgetTotal:
    """The total budget for one privacy unit.

    Attributes:
        epsilon_per_job: the largest ε of one job, at the same δ.
    """

    neighbouring: Neighbouring
    epsilon: float
    delta: float
    epsilon_per_job: float


class DatasetConfig(PolicySection):
    """One data set that the party serves, under the name of its section, with its budget."""

    path: str = ""
    """File of records (.csv, .csv.gz, .parquet, .npz), relative to this folder."""

    data_schema: str = Field("", alias="schema")
    """The file's schema: ranges, categories and label."""

    source: str = ""
    """Instead of path: a database as sqlite:///FILE, postgresql://USER@HOST/NAME, or env:NAME for
    an environment variable that contains such a URL. Never write a password here. Put it into that
    variable, into PGPASSWORD, or into ~/.pgpass or the file that PGPASSFILE names (mode 600).
    """

    query: str = ""
    """With source: the SELECT that returns the records. It is read in one snapshot when a run
    inspects the data, and held until the run is over.
    """

    query_timeout: float = Field(600.0, gt=0, le=86400)
    """Maximum seconds for the query of source, in total."""

    prepared: str = ""
    """Instead of path and schema: an .npz of prepared rows, as Parley's launcher writes it: arrays
    `features` (norm at most 1) and `labels`.
    """

    app_data: str = ""
    """Instead of path, with unit = party: a file or folder that only your own Flower app reads
    (docs/flower.md); 'elsewhere': the app knows where its records are.
    """

    held_out: str = ""
    """A file like path (or prepared), or a query of source, with records that no model learns from.
    Jobs with evaluation.kind = 'federated' count them by label and by the model's predictions,
    within the same budget. Default: such counts are declined.
    """

    classes: int = Field(0, ge=0)
    """Number of classes of a prepared label; 0 for -1/+1 and for targets."""

    map: str = Field("", pattern=r"^([0-9a-f]{64})?$")
    """With prepared: the digest of the public map that computed its rows. Jobs must name it. Empty:
    no map.
    """

    epsilon: PositiveFloat
    """Total epsilon of all releases (noisy results) from this data set, ever. Fixed at its first
    use.
    """

    delta: float = Field(ge=0, lt=1)
    """Total delta, at which epsilon is counted. Probabilities may pass the limit of epsilon by at
    most delta. Fixed at its first use.
    """

    epsilon_per_job: PositiveFloat | None = None
    """Largest epsilon of one job, at the same delta, counted as if its releases were fixed
    beforehand. Default: the total.
    """

    approval_above: float | None = Field(None, ge=0, allow_inf_nan=False)
    """A job needs your approval if it would raise the total spent from this data set above this
    epsilon (parley owner page DIR). 0: every job. Default: no job.
    """

    certificate: Literal["auto", "pure", "gaussian", "zcdp", "plan"] = "auto"
    """How its account adds up releases; fixed at its first use (docs/budgets.md). auto: pure at
    delta 0; otherwise gaussian if a training job or a session with law = "gaussian" opens it, zcdp
    if another session does.
    """

    reserved_delta: float | None = Field(None, ge=0, lt=1)
    """Part of delta that is reserved for sampled training and for the noise samplers; fixed at its
    first use. Default: delta/100, or delta/10 if a DP-SGD job opens the account.
    """

    account: str = ""
    """Another data set whose budget pays for this one, because records of one are also in the
    other. Both need the same totals and approval-above. `parley party DIR --check` finds such
    records.
    """

    unit: Unit = Unit.RECORD
    """What the budget protects: record, party, or person. person: all records of one person in this
    data set, only for queries.
    """

    id: str = ""
    """With unit = person: the column that identifies a record's person, of kind ignore in the
    schema.
    """

    records_per_id: int | None = Field(None, ge=1, le=2**31)
    """With unit = person: maximum number of records per person. A keyed hash chooses among more."""

    block_column: str = ""
    """A public column, of kind ignore in the schema, that divides the records, such as a year of
    admission. A job that names some of its values (data.blocks) reads and charges only those; see
    docs/budgets.md#by-block. It needs unit = record and replace-one: a replaced record stays in its
    block, and the number of records per block is public.
    """

    neighbouring: Neighbouring = Neighbouring.REPLACE_ONE
    """How the protected unit may differ: replaced by another (replace-one), or added or removed
    (add-or-remove-one).
    """

    most_records: int = Field(1_000_000, ge=1, le=MAX_RECORDS)
    """If the number of records is private (unit party, party-epsilon, or add-or-remove-one): a
    public upper bound on it. It decides whether a map of features fits this machine's memory, so
    that no answer reveals the number itself.
    """

    most_releases: int = Field(10_000, ge=1)
    """Maximum number of releases that a record is in, over all jobs, however little each costs. It
    limits the ledger's size, and the time to check it.
    """

    deleted_records: int = Field(0, ge=0)
    """With block-column: how many records you deleted from charged blocks while another block has
    an equal record. `parley party DIR --check` counts them. It cannot distinguish them from records
    that changed their block, which must never count here.
    """

    party_epsilon: PositiveFloat | None = None
    """With unit = record: a second total, which protects all records of this party in the data set.
    With it, only jobs with privacy.unit = 'both' are accepted, and they charge both totals. Without
    it, such jobs are declined.
    """

    party_delta: float | None = Field(None, gt=0, lt=1)
    """The delta at which party-epsilon is counted."""

    party_epsilon_per_job: PositiveFloat | None = None
    """Largest epsilon of one job at party-delta. Default: the total."""

    @model_validator(mode="after")
    def _check(self) -> DatasetConfig:
        if [self.path, self.prepared, self.source, self.app_data].count("") != 3:
            expected = "Expected one of path, source, prepared and app-data"
            raise ValueError(f"{expected}, got several or none.")
        if self.app_data and (self.unit is not Unit.PARTY or self.held_out or self.classes):
            raise ValueError("Expected unit = party, and no held-out or classes, with app-data.")
        if self.source:
            SqlQuery(database=self.source, query=self.query)
        elif self.query:
            raise ValueError("Expected source, a database, with query, got only query.")
        if self.is_raw != bool(self.data_schema):
            raise ValueError("Expected a schema with path or source, and only with them.")
        if self.classes == 1 or (self.classes and self.is_raw):
            raise ValueError("Expected classes >= 2, and only with prepared: a schema lists them.")
        if self.held_out and self.held_out in {self.path, self.prepared, self.query}:
            expected = "Expected held-out to be other records than those that models learn from"
            raise ValueError(f"{expected}, got the same.")
        if self.map and self.is_raw:
            raise ValueError("Expected map only with prepared rows: otherwise the job names it.")
        if (self.party_epsilon is None) != (self.party_delta is None):
            raise ValueError("Expected party-epsilon and party-delta together, got one of them.")
        if self.party_epsilon_per_job is not None and self.party_epsilon is None:
            raise ValueError("Expected party-epsilon with party-epsilon-per-job, got none.")
        if self.party_epsilon is not None and self.unit is not Unit.RECORD:
            raise ValueError(f"Expected unit = record with party-epsilon, got {self.unit}.")
        other_unit = self.has_private_size or self.unit != Unit.RECORD
        if self.block_column and (self.prepared or other_unit):
            raise ValueError(
                "Expected path or source, unit = record, replace-one and no "
                "party-epsilon with block-column: a party or a person has records in "
                "several blocks, and sizes are public."
            )
        self._check_persons()
        return self

    def get_division(self, blocks: Blocks) -> Division | None:
        """Return how its records are divided into blocks, and which blocks a job reads.

        Raises:
            Declined: a job names blocks, but the data set has none.
        """
        if blocks and not self.block_column:
            expected = "Expected no blocks for a data set without block-column"
            raise Declined(Reason.UNKNOWN_DATASET, f"{expected}, got some.")
        return Division(column=self.block_column, read=blocks) if self.block_column else None

    def _check_persons(self) -> None:
        present = bool(self.id), self.records_per_id is not None
        is_person = self.unit is Unit.PERSON
        if present != (is_person, is_person):
            raise ValueError(
                "Expected both id and records-per-id with unit = person, and neither "
                "with another unit."
            )
        if is_person and not self.is_raw:
            raise ValueError("Expected path or source with unit = person, got prepared rows.")

    @property
    def is_raw(self) -> bool:
        """Whether a schema reads its records. Otherwise they were prepared elsewhere."""
        return not (self.prepared or self.app_data)

    def locate_records(self, folder: Path) -> Path | SqlQuery:
        """Return the location of its records. `folder` is the party's folder."""
        if self.source:
            limit = self.query_timeout
            return SqlQuery(database=self.source, query=self.query, folder=folder, timeout_s=limit)
        return folder / (self.path or self.prepared or self.app_data)

    def to_held_out(self) -> DatasetConfig:
        """Return the same data set with its held-out records in place of those it learns from.

        Raises:
            Declined: it holds out no records.
        """
        if not self.held_out:
            expected = "Expected held-out in the data set's section"
            raise Declined(Reason.DATA_UNREADABLE, f"{expected}, got none.")
        key = "path" if self.path else "query" if self.source else "prepared"
        return self.model_copy(update={key: self.held_out, "held_out": ""})

    @property
    def has_private_size(self) -> bool:
        """Whether its budgets hide its number of records."""
        can_add_records = self.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE
        return can_add_records or Unit.PARTY in self.totals

    @property
    def private_size_bound(self) -> int:
        """Upper bound on a private number of records; 0: the number is public."""
        return self.most_records if self.has_private_size else 0

    @property
    def totals(self) -> dict[Unit, BudgetTotal]:
        """The total budget of all releases from it, per unit that has one."""
        totals = {
            self.unit: BudgetTotal(
                neighbouring=self.neighbouring,
                epsilon=self.epsilon,
                delta=self.delta,
                epsilon_per_job=self.epsilon_per_job or self.epsilon,
            )
        }
        if self.party_epsilon is not None and self.party_delta is not None:
            totals[Unit.PARTY] = BudgetTotal(
                neighbouring=Neighbouring.REPLACE_ONE,
                epsilon=self.party_epsilon,
                delta=self.party_delta,
                epsilon_per_job=self.party_epsilon_per_job or self.party_epsilon,
            )
        return totals

    def build_budgets(
        self, *, queries: bool = False, sampled: bool = False, **facts: Any
    ) -> tuple[DatasetBudget, ...]:
        """Return the budgets that the party's ledger registers for it: one per unit with a total.

        Args:
            facts: `DatasetBudget`'s name, fingerprint, contents, rows and reads.
            queries, sampled: what opens the account, if this call does: queries of a session with a
                non-Gaussian law, or steps of DP-SGD.
        """
        return tuple(
            DatasetBudget(
                **facts,
                unit=unit,
                neighbouring=total.neighbouring,
                epsilon=total.epsilon,
                delta=total.delta,
                certificate=self._choose_certificate(total.delta, queries=queries),
                reserved_delta=self._compute_reserved_delta(total.delta, sampled=sampled),
                insists=self.certificate != "auto",
            )
            for unit, total in self.totals.items()
        )

    def _choose_certificate(self, delta: float, *, queries: bool) -> AccountCertificate:
        if self.certificate != "auto":
            return AccountCertificate(self.certificate)
        if not delta:
            return AccountCertificate.PURE
        return AccountCertificate.ZCDP if queries else AccountCertificate.GAUSSIAN

    def _compute_reserved_delta(self, delta: float, *, sampled: bool) -> float:
        if self.reserved_delta is None:
            return compute_reserved_delta(delta, sampled=sampled)
        return self.reserved_delta * (delta / self.delta) if self.delta else 0.0
