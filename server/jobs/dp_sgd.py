"""How parties train networks: `[dp-sgd]`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from parley.server.jobs.section import Auto, Positive, Section


class DPSGD(Section):
    """How parties train networks: for algorithm.kind fedavg or distributed-dp-sgd."""

    sampling_rate: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = Field(
        0.01, description="q: every record is in a batch with this probability (Poisson)."
    )
    batch_size: Annotated[int, Field(ge=1)] | Auto = Field(
        "auto",
        description="Expected batch of the smallest party; a number sets sampling-rate to "
        "batch-size / min-records.",
    )
    local_epochs: Positive = Field(
        1.0, description="Passes over a party's records in a round: local-epochs / q steps."
    )
    local_steps: Annotated[int, Field(ge=1)] | Auto = Field(
        "auto",
        description="Steps in a round; a number replaces local-epochs. distributed-dp-sgd: every "
        "step is a secure sum, and a round's are reserved and charged together.",
    )
    clip_norm: Annotated[float, Field(ge=1e-12, le=1e12)] = Field(
        1.0,
        description="C: every record's gradient is clipped to this L2 norm (unit record or both).",
    )
    noise_multiplier: Positive | Auto = Field(
        "auto",
        description="σ: noise of standard deviation σC on the sum of a batch (unit record or "
        "both). auto: calibrated so that all rounds cost privacy.epsilon.",
    )
    clipped_fraction_share: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = Field(
        0.0,
        description="Share of every step's privacy that goes to a noisy fraction of clipped "
        "gradients, released in every round (unit record): ε stays, the noise on gradients grows "
        "by 1/√(1−share). 0.01 makes it half a percent larger; 0 releases nothing.",
    )
    party_clip_norm: Positive = Field(
        1.0, description="S: a party's update is clipped to this L2 norm (unit party or both)."
    )
    optimiser: Literal["sgd", "adam"] = Field(
        "sgd",
        description="sgd | adam: in the party, anew every round (fedavg); at the server, over the "
        "whole run (distributed-dp-sgd).",
    )
    learning_rate: Positive = Field(0.5, description="Of that optimiser.")
    momentum: float = Field(0.9, ge=0, lt=1, description="Of sgd; adam has its own.")
    server_optimiser: Literal["averaging", "momentum", "adam"] = Field(
        "averaging", description="How the server moves along the average update."
    )
    server_learning_rate: Positive = Field(1.0, description="Of the server's step.")
    server_momentum: float = Field(
        0.9, ge=0, lt=1, description="Of the server's momentum or adam; averaging has none."
    )
    per_example_method: Literal["auto", "ghost", "vmap"] = Field(
        "auto",
        description="How clipped sums of per-record gradients are computed; auto: ghost for chains "
        "of linear layers and convolutions, vmap, each record by itself, for any other network.",
    )
    precision: Literal["float32", "float64"] = Field(
        "float64",
        description="Of forward and backward passes; clipped sums are taken in float64. float32 is "
        "faster; a record's bound of C is the same.",
    )
    micro_batch: int = Field(
        2048, ge=1, description="Most records whose gradients are held at once: bounds memory."
    )
    pad_batches: bool = Field(
        True,
        description="distributed-dp-sgd: a party by itself works on ⌈qn + 6√(qn)⌉ rows in every "
        "step, whatever it drew, so that the time it takes says less of its batch; a simulation of "
        "all parties in one pass pads nothing.",
    )
