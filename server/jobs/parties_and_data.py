"""Define `[parties]` and `[data]`: the parties of a run and the records they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from parley.module_loading.plugin_table import load_attribute
from parley.privacy.ledger.block_composition import parse_blocks
from parley.privacy.ledger.database_url import check_source
from parley.server.jobs.external_references import DataSource, FilePath, FileTables, Text
from parley.server.jobs.section_base import AtLeastOne, Auto, JobSection, Positive

_FILES = "parley.client.data.file_format_overrides"
"""Imported only for a job that lists files."""


class PartiesSection(JobSection):
    """The parties of a run."""

    count: int = Field(5, ge=1, le=1_000_000)
    """Number of parties, m."""

    min_records: AtLeastOne | Auto = "auto"
    """Public lower bound on every party's number of records; it determines the noise. A smaller
    party is refused. If sizes are private (unit party or both, or add-or-remove-one), it is a
    public number that stands for them and bounds none. auto: the smallest party of this simulation.
    """

    weights: Literal["uniform", "size"] = "uniform"
    """uniform: every party counts the same. size: by its number of records, which is then public
    and never needs more noise.
    """

    per_round: float | int | Literal["all"] = "all"
    """Which parties are in a round's sum (fedavg and distributed-dp-sgd). all. p, as 0.01: every
    party by its own coin, hidden by the masks. k, as 100: this number of parties, drawn in public.
    Every party answers every round; one that is not in the sum sends zero and its share of the
    noise (docs/sampled-parties.md).
    """

    presence: Literal["hidden", "known"] | Auto = "auto"
    """With per-round and unit party, which account is charged. hidden: against an attacker who does
    not know which rounds a party was in. known: against one who does, for the rounds that its coins
    may put it in (all of them with a number). Both are printed. auto: hidden with coins, known with
    a number. A record has one account, against both.
    """

    @field_validator("per_round", mode="before")
    @classmethod
    def _check_per_round(cls, value: object) -> object:
        number = type(value) is int and value >= 1
        rate = type(value) is float and 2.0**-32 <= value <= 1
        if value != "all" and not number and not rate:
            raise ValueError(
                "Expected per-round = 'all', a probability in (0, 1] like 0.01, or a whole "
                f"number of parties like 100, got {value!r}."
            )
        return value

    @property
    def hides_presence(self) -> bool:
        """Whether unit party is charged as if only the party knew its coins."""
        coins = isinstance(self.per_round, float)
        return coins if self.presence == "auto" else self.presence == "hidden"

    @model_validator(mode="after")
    def _check_sampled(self) -> PartiesSection:
        asked, key = self.per_round, "parties.per-round"
        if asked == "all":
            if self.presence != "auto":
                raise ValueError(
                    f"Expected presence = 'auto' (it needs {key}), got {self.presence!r}."
                )
        elif isinstance(asked, int):
            if asked > self.count:
                raise ValueError(f"Expected {key} ≤ parties.count = {self.count}, got {asked}.")
            if self.presence == "hidden":
                raise ValueError(
                    f"Expected parties.presence = 'known' with {key} = {asked}, got 'hidden': a "
                    "number of parties is drawn in public. With a probability, such as "
                    f"{asked / self.count:g}, each party has its own coin."
                )
        elif asked * self.count < 1:
            raise ValueError(
                f"Expected {key} of at least 1/parties.count = {1 / self.count:g}, got "
                f"{asked:g}: most rounds would contain only noise."
            )
        return self


class DataSection(JobSection):
    """The records that the parties hold."""

    source: DataSource = "breast-cancer"
    """A bundled name (breast-cancer, digits, synthetic), a file (.csv, .csv.gz, .parquet, .npz), a
    glob with one file per party, or a database: sqlite:///FILE, or env:NAME, an environment
    variable that holds a postgresql:// URL. Empty (the default if there is a schema): none. `parley
    plan` needs none.
    """

    files: FileTables = Field([])
    """Instead of source: one file per party, for files that are written differently. A list of
    tables with path and, if a file differs from the schema's [file], its keys: { path =
    "south.csv", separator = ";", decimal = "," }.
    """

    query: Text = ""
    """With a database: the SELECT whose rows are the records."""

    query_timeout: float = Field(600.0, gt=0, le=86400)
    """Maximum seconds that the query may take in total."""

    data_schema: FilePath = Field("", alias="schema")
    """Schema file with public ranges, categories and label. Needed for files; `parley schema infer
    FILE` writes a first one to review. With real parties, your copy of theirs: the model file then
    describes how its rows are read.
    """

    partition: Literal["iid", "column", "dirichlet", "sizes"] = "iid"
    """How one file is split among the parties: iid | column | dirichlet | sizes."""

    partition_column: Text = ""
    """Column that names the party (partition column)."""

    dirichlet_alpha: Positive = 0.5
    """Label skew: small values are extreme (partition dirichlet)."""

    sizes: list[AtLeastOne] = Field([])
    """Records of each party (partition sizes)."""

    block_column: Text = ""
    """A public column of kind ignore that divides the records (such as the year of admission), for
    data.blocks in a simulation. Real parties set their own in party.toml.
    """

    blocks: list[Text] = Field([])
    """Values of the block column: only records of these blocks are read and charged (unit record).
    [] for all records, including those of future blocks (docs/budgets.md).
    """

    records: int = Field(0, ge=0)
    """Sample this number of records first; 0 takes all."""

    test_source: FilePath = ""
    """A file of held-out records, instead of test-fraction (which is then 0). With real parties:
    public records at the server, which evaluate the final model at no cost.
    """

    test_schema: FilePath = ""
    """Its schema, if it is not data.schema; with real parties it is always theirs."""

    test_fraction: float = Field(0.2, ge=0, lt=1)
    """Fraction held out before the split, for the simulation's metrics."""

    seed: int = Field(0, ge=0)
    """Seed of the sample and the split (never of the noise)."""

    @field_validator("files", mode="before")
    @classmethod
    def _check_files(cls, given: Any) -> Any:
        if not isinstance(given, list | tuple):
            return given
        files = [load_attribute(f"{_FILES}:parse_file_table")(each) for each in given]
        return [{"path": file.name, **file.keys} for file in files]

    @field_validator("blocks")
    @classmethod
    def _check_blocks(cls, names: list[str]) -> list[str]:
        return list(parse_blocks(names))

    @model_validator(mode="before")
    @classmethod
    def _clear_default_source(cls, given: Any) -> Any:
        """Do not read the default source by the schema of other data, or next to files."""
        named = isinstance(given, Mapping) and (given.get("schema") or given.get("files"))
        if named and "source" not in given:
            return {**given, "source": ""}
        return given

    @model_validator(mode="after")
    def _check(self) -> DataSection:
        check_source(self.source, self.query)
        if self.files and self.source:
            raise ValueError(f"Expected source or files, got both: {self.source!r}, and a list.")
        if self.files and not self.data_schema:
            raise ValueError(
                "Expected schema with files, got none. It names the columns of all files: "
                "`parley schema infer` drafts one from one of them."
            )
        if self.query and not self.source.startswith(("env:", "sqlite://")):
            raise ValueError(
                "Expected source = 'env:NAME' for PostgreSQL in a job, got a URL. Put the URL "
                "in an environment variable: a job or run folder must not decide to which host "
                "a machine connects and sends its password."
            )
        if self.partition == "column" and not self.partition_column:
            raise ValueError("Expected partition-column with partition = 'column', got none.")
        if self.test_source and not (self.test_schema or self.data_schema):
            raise ValueError(
                "Expected data.test-schema with data.test-source, got none. With real parties it "
                "is the server's copy of their schema file."
            )
        if self.partition == "sizes" and not self.sizes:
            raise ValueError("Expected sizes = [n1, n2, …] with partition = 'sizes', got none.")
        if self.test_source and self.test_fraction:
            raise ValueError(
                f"Expected test-fraction = 0 with test-source, got {self.test_fraction}."
            )
        if self.test_schema and not self.test_source:
            raise ValueError("Expected a test-source with a test-schema, got none.")
        return self

    @property
    def has_several_files(self) -> bool:
        """Whether there is one file per party: a list, or a glob as the source."""
        several = not self.query and any(mark in self.source for mark in "*?[")
        return several or bool(self.files)

    @property
    def name(self) -> str:
        """Name of the records in texts and in a ledger; empty if the job names none."""
        if not self.files:
            return self.source
        return str(load_attribute(f"{_FILES}:name_files")(self.files))
