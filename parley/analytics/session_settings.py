"""Define a session's settings, which are the keys of `[session]` in a query file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from parley.analytics.answer_intervals import NO_SAMPLING_REASON
from parley.client.queries.base import QueryError
from parley.client.queries.query_batch import Clip, Counting
from parley.privacy.accounting.threat_model import NOISE_POINTS, Unit
from parley.server.jobs.external_references import FilePath, Text, WorkingPath

if TYPE_CHECKING:
    PointName = str
else:  # noise on the sum, added at once or in shares
    PointName = Literal[
        tuple(n for n, point in NOISE_POINTS.items() if not point.is_locally_private)
    ]

_CLIPS: dict[str, Clip] = {"party": "l1"}
"""Norm by which a party's sum is clipped before a noise distribution is chosen."""


class Settings(BaseModel):
    """A session's settings, which are the keys of `[session]` in a query file."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )

    epsilon: float = Field(gt=0, allow_inf_nan=False, strict=True)
    """Total budget, over all queries ever asked of these data."""

    delta: float = Field(0.0, ge=0, lt=1, strict=True)
    """δ at which ε is stated."""

    neighbouring: Literal["replace-one", "add-or-remove-one"] = "replace-one"
    """Difference between neighbouring data sets: one record is replaced, or added or removed."""

    unit: Literal["record", "person", "party"] = "record"
    """What the noise protects: a record; all records of a person in one party; all that a party
    holds.
    """

    id: Text = ""
    """With unit person: the column that identifies a record's person, of kind ignore in the schema.
    Real parties name their own.
    """

    records_per_id: int | None = Field(None, ge=1, le=2**31, strict=True)
    """With unit person: maximum records of a person in one party that count; real parties must use
    the same.
    """

    records_per_party: int | None = Field(None, ge=1, le=2**31, strict=True)
    """With unit party: maximum records for which a party counts; about the usual party size has the
    least error.
    """

    parties: int | None = Field(None, ge=1, strict=True)
    """Number of parties, if one file is split among them."""

    min_survivors: int | None = Field(None, ge=1, strict=True)
    """Minimum number of parties in a sum; default 2/3. It is raised above half of the parties plus
    the colluders.
    """

    corrupt: int | None = Field(None, ge=0, strict=True)
    """Parties that may collude with the server."""

    noise_point: PointName | None = None
    """Who adds the noise: the server, or each party a share of it. Default: share with real
    parties, server in a simulation.
    """

    masked: bool = Field(False, strict=True)
    """Run the masked protocol in full (slower, same bits)."""

    law: Literal["auto", "laplace", "gaussian"] = "auto"
    """Noise distribution; auto: the one with less error. Gaussian needs δ > 0."""

    simultaneous: bool = Field(False, strict=True)
    """Intervals hold for all cells of an answer at once."""

    sampling: bool = Field(False, strict=True)
    """Intervals also cover sampling error, if the query supports it."""

    most_records: int = Field(2**24, ge=1, strict=True)
    """With add-or-remove-one: a party's sum is clipped to the range of this many records."""

    certificate: Literal["auto", "pure", "gaussian", "zcdp"] = "auto"
    """How the data's account adds up releases, fixed when it is opened (docs/budgets.md). gaussian:
    Σμ²; zcdp: Σρ; pure: Σε. auto: pure at delta 0; else gaussian with law gaussian, and zcdp with
    any other.
    """

    reserved_delta: float | None = Field(None, ge=0, lt=1, strict=True)
    """Part of delta reserved for the noise samplers and for subsampled training, fixed when the
    account is opened; default delta/100.
    """

    ledger: FilePath = ""
    """A shared ledger, as path or URL; default: the session's own."""

    dataset: Text = ""
    """Name of the data in the ledger; with real parties, their name for it."""

    deployment: FilePath = ""
    """Instead of data: the folder of a server whose parties are asked."""

    engine: Literal["fast", "ray"] = "fast"
    """Engine of a simulation: fast (this process), or ray (Ray workers; parley[ray])."""

    ray_address: WorkingPath = ""
    """Engine ray: the cluster's address, 'auto' for this machine's. Empty: a local one."""

    workers: int = Field(0, ge=0, strict=True)
    """Engine ray: number of workers; 0: one per core."""

    seed: int | None = Field(None, ge=0, strict=True)
    """Seed of the noise: repeatable, without any protection."""

    faults: Text = ""
    """Parties that drop out, in the format of run.faults."""


def build_counting(settings: Settings) -> Counting:
    """Return how records count, by a session's unit.

    Raises:
        QueryError: a unit lacks its number of records, or has another unit's.
    """
    most = {"person": settings.records_per_id, "party": settings.records_per_party}
    wanted = {"person": "records_per_id", "party": "records_per_party"}
    for unit, name in wanted.items():
        if (most[unit] is not None) != (settings.unit == unit):
            got = "none" if most[unit] is None else f"one with unit {settings.unit}"
            raise QueryError(f"Expected {name} with unit {unit}, and only with it, got {got}.")
    if settings.sampling and settings.unit == "party":
        raise QueryError(NO_SAMPLING_REASON)
    if settings.id and settings.unit != "person":
        raise QueryError(f"Expected id only with unit person, got it with unit {settings.unit}.")
    unit, clip = Unit(settings.unit), _CLIPS.get(settings.unit, "")
    return Counting(unit=unit, most=most.get(settings.unit) or 1, clip=clip)


def parse_settings(values: dict[str, Any]) -> Settings:
    """Return checked settings from a person's values.

    Raises:
        QueryError: a key or value is not valid.
    """
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        # An unknown key first: it may be a known one, misspelt, that is then missing.
        fault = next((each for each in faults if each["type"] == "extra_forbidden"), faults[0])
        key = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            keys = ", ".join(Settings.model_fields)
            raise QueryError(f"Expected one of the settings {keys}, got {key!r}.") from None
        if fault["type"] == "missing":
            raise QueryError(f"Expected {key} in the settings, got none.") from None
        expected = str(fault["msg"]).removeprefix("Input should be ")
        raise QueryError(f"{key}: Expected {expected}, got {fault['input']!r}.") from None
