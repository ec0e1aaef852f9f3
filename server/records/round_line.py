"""Define one line of `rounds.jsonl`: what a round released, and what has been spent so far."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from parley.privacy.accounting.composition import Composition, find_lowest
from parley.server.records.json_record import JsonRecord, OptionalFloat


class RoundAccount(JsonRecord):
    """The cost of the releases so far at `delta`.

    Attributes:
        round: in a plan, the round that they end with; a line of `rounds.jsonl` has it already.
        epsilon: conversion → ε, for each that is proved for these releases.
        epsilon_charged: the lowest of them, by `conversion`.
    """

    round: int | None = None
    rho: OptionalFloat
    epsilon: dict[str, OptionalFloat]
    epsilon_charged: float
    conversion: str
    delta: float

    @classmethod
    def from_composition(
        cls, spent: Composition, delta: float, *, number: int | None = None
    ) -> RoundAccount:
        """Compute the cost of the releases of `spent`, which end with round `number` of a plan."""
        epsilons = spent.compute_epsilons(delta)
        conversion, epsilon = find_lowest(epsilons)
        return cls(
            round=number,
            rho=spent.rho,
            epsilon=epsilons,
            epsilon_charged=epsilon,
            conversion=conversion,
            delta=delta,
        )


class PartyCounts(JsonRecord):
    """Numbers of parties in a release; asked is the sum of answered, declined and dropped."""

    asked: int
    answered: int
    declined: int
    dropped: int
    summed: int


class RoundLine(JsonRecord):
    """A committed round.

    A number that an algorithm releases in addition to its model has its own key.

    Attributes:
        round: number of the round, from 1.
        guarantees: ε after this round, one entry for each privacy unit of the job.
        parties: numbers of parties: asked, answered, declined, dropped and summed.
        bytes_up: bytes from all parties to the server.
        bytes_down: bytes from the server to all parties.
        seconds: time of the round.
        stage_seconds: time of each of the `stages`, if parties are real.
        clipped_fraction: share of gradients that were clipped, if the job releases it.
        absent: names of the parties that are not in the sum, if they are real.
        reasons: reason class → number of parties that declined for it.
        stages: number of exchanges of messages, one after another.
        simulation_only: loss and accuracy, if the round was evaluated; None: not finite.
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
        """Cost of the primary guarantee so far."""
        return self.guarantees[0]
