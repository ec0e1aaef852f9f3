"""One line of `rounds.jsonl`: what a round's release was made of and what has been spent so far."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from parley.server.records.json_record import JsonRecord, OptionalFloat


class RoundAccount(JsonRecord):
    """What the releases so far come to at `delta`.

    Attributes:
        epsilon: conversion → ε, for each that is proved for these releases.
        epsilon_charged: the lowest of them, by `conversion`.
    """

    rho: OptionalFloat
    epsilon: dict[str, OptionalFloat]
    epsilon_charged: float
    conversion: str
    delta: float


class PartyCounts(JsonRecord):
    """Numbers of parties in a release; asked is the sum of answered, declined and dropped."""

    asked: int
    answered: int
    declined: int
    dropped: int
    summed: int


class RoundLine(JsonRecord):
    """A committed round.

    A figure that an algorithm releases beside its model is its own key, a number.

    Attributes:
        absent: names of the parties that are not in the sum, where they are real.
        reasons: reason class → how many parties declined for it.
        stages: sequential exchanges; `stage_seconds` of each of them, where they are real.
        simulation_only: loss and accuracy, where the round was evaluated; None: not finite.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float] = Field(init=False)

    format: Literal[2]
    round: int = Field(ge=1)
    guarantees: tuple[RoundAccount, ...] = Field(min_length=1)
    parties: PartyCounts
    absent: tuple[str, ...] | None = None
    reasons: dict[str, int]
    bytes_up: int
    bytes_down: int
    stages: int
    stage_seconds: tuple[float, ...] = ()
    seconds: float
    clipped_fraction: OptionalFloat = None
    simulation_only: dict[str, OptionalFloat]

    @property
    def primary(self) -> RoundAccount:
        """What the primary guarantee came to so far."""
        return self.guarantees[0]
