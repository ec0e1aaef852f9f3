"""Define a session's settings, which are the keys of `[session]` in a query file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from parley.analytics.answer_intervals import NO_SAMPLING_REASON
from parley.client.queries.base import QueryError
from parley.client.queries.query_batch import Clip, Counting
from parley.privacy.accounting.threat_model import NOISE_POINTS, Unit
from parley.server.jobs.external_references import FilePath, Text

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

    epsilon: float = Field(
        gt=0, allow_inf_nan=False, strict=True, description="Budget of all that is ever asked."
    )
    delta: float = Field(0.0, ge=0, lt=1, strict=True, description="At which ε is counted.")
    neighbouring: Literal["replace-one", "add-or-remove-one"] = Field(
        "replace-one", description="What one neighbour differs by: one record, in which way."
    )
    unit: Literal["record", "person", "party"] = Field(
        "record",
        description="What the noise hides: a record; all records of a person in one party; all "
        "that a party holds.",
    )
    id: Text = Field(
        "",
        description="With unit person: the column that says whose a record is, of kind ignore in "
        "the schema. Real parties name their own.",
    )
    records_per_id: int | None = Field(
        None,
        ge=1,
        le=2**31,
        strict=True,
        description="With unit person: most records of a person in one party that count; real "
        "parties must have the same.",
    )
    records_per_party: int | None = Field(
        None,
        ge=1,
        le=2**31,
        strict=True,
        description="With unit party: as many records a party counts for at most; about the size "
        "of a usual one errs least.",
    )
    parties: int | None = Field(
        None, ge=1, strict=True, description="How many, where one file is split among them."
    )
    min_survivors: int | None = Field(
        None,
        ge=1,
        strict=True,
        description="Least number of parties in a sum; "
        "default 2/3. It is raised above half of the parties and the colluders together.",
    )
    corrupt: int | None = Field(
        None, ge=0, strict=True, description="Parties that may collude with the server."
    )
    noise_point: PointName | None = Field(
        None,
        description="Who adds the noise: the server, or every party a share of it. Left out: share "
        "with real parties, server in a simulation.",
    )
    masked: bool = Field(
        False, strict=True, description="Run the masked protocol in full (slower, same bits)."
    )
    law: Literal["auto", "laplace", "gaussian"] = Field(
        "auto", description="Of the noise; auto: whichever errs less. Gaussian needs δ > 0."
    )
    simultaneous: bool = Field(
        False, strict=True, description="Intervals hold for all cells of an answer at once."
    )
    sampling: bool = Field(
        False,
        strict=True,
        description="Intervals cover sampling error beside the noise, where the query has it.",
    )
    most_records: int = Field(
        2**24,
        ge=1,
        strict=True,
        description="With add-or-remove-one: a party's sum is cut to what so many records reach.",
    )
    certificate: Literal["auto", "pure", "gaussian", "zcdp"] = Field(
        "auto",
        description="How the data's account adds up releases, fixed when it is opened "
        "(docs/budgets.md). gaussian: Σμ²; zcdp: Σρ; pure: Σε. auto: pure at delta 0; else "
        "gaussian with law gaussian, and zcdp with any other.",
    )
    reserved_delta: float | None = Field(
        None,
        ge=0,
        lt=1,
        strict=True,
        description="Part of delta that is kept for the samplers of noise and for sampled "
        "training, fixed when the account is opened; default delta/100.",
    )
    ledger: FilePath = Field(
        "", description="A shared ledger: path or URL; default the session's own."
    )
    dataset: Text = Field(
        "", description="Name of the data in the ledger, and among real parties that they serve."
    )
    deployment: FilePath = Field(
        "", description="Instead of data: the folder of a server whose parties are asked."
    )
    engine: Literal["fast", "ray"] = Field(
        "fast", description="Of a simulation: here, or dealt to workers of Ray (parley[ray])."
    )
    ray_address: FilePath = Field(
        "", description="Engine ray: the cluster, 'auto' for this machine's. Empty: here alone."
    )
    workers: int = Field(
        0, ge=0, strict=True, description="Engine ray: how many; 0: one for every core."
    )
    seed: int | None = Field(
        None, ge=0, strict=True, description="Of the noise: repeatable, and protects nobody."
    )
    faults: Text = Field("", description="Parties that drop out, as run.faults has it.")


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
            raise QueryError(f"Expected {name} with unit {unit}, and with no other, got {got}.")
    if settings.sampling and settings.unit == "party":
        raise QueryError(NO_SAMPLING_REASON)
    if settings.id and settings.unit != "person":
        raise QueryError(f"Expected id with unit person alone, got it with unit {settings.unit}.")
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
        fault = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            keys = ", ".join(Settings.model_fields)
            raise QueryError(f"Expected settings of {keys}, got {key!r}.") from None
        expected = str(fault["msg"]).removeprefix("Input should be ")
        got = "none" if fault["type"] == "missing" else repr(fault["input"])
        raise QueryError(f"{key}: Expected {expected}, got {got}.") from None
