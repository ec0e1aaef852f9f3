"""Define the section [dp-sgd]: how parties train networks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from parley.server.jobs.section_base import Auto, JobSection, Positive


class DpSgdSection(JobSection):
    """How parties train networks: for algorithm.kind fedavg or distributed-dp-sgd."""

    sampling_rate: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | Auto = "auto"
    """q: every record is in a batch with this probability (Poisson). auto, like all autos of this
    section and algorithm.rounds: by a rule of public facts (docs/features.md; `parley plan` shows
    its choices).
    """

    batch_size: Annotated[int, Field(ge=1)] | Auto = "auto"
    """Expected batch of the smallest party; a number sets sampling-rate to batch-size /
    min-records.
    """

    local_epochs: Positive | Auto = "auto"
    """Passes over a party's records in a round: local-epochs / q steps. auto: local-steps applies.
    """

    local_steps: Annotated[int, Field(ge=1)] | Auto = "auto"
    """Steps in a round; a number replaces local-epochs. distributed-dp-sgd: every step is a secure
    sum, and all steps of a round are reserved and charged together.
    """

    clip_norm: Annotated[float, Field(ge=1e-12, le=1e12)] | Auto = "auto"
    """C: every record's gradient is clipped to this L2 norm (unit record or both). The rule's
    learning rate is proportional to 1/C, so that a smaller C hardly changes a model.
    """

    noise_multiplier: Positive | Auto = "auto"
    """σ: noise of standard deviation σC on the sum of a batch (unit record or both). auto:
    calibrated so that all rounds cost privacy.epsilon.
    """

    clipped_fraction_share: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.0
    """Share of every step's privacy that goes to a noisy fraction of clipped gradients, released in
    every round (unit record). ε stays the same; the noise on gradients grows by 1/√(1−share). 0.01
    makes it half a percent larger; 0 releases nothing.
    """

    party_clip_norm: Positive | Auto = "auto"
    """S: a party's update is clipped to this L2 norm (unit party or both)."""

    optimiser: Literal["sgd", "adam"] = "sgd"
    """sgd | adam: in the party, restarted every round (fedavg); at the server, over the whole run
    (distributed-dp-sgd).
    """

    learning_rate: Positive | Auto = "auto"
    """Learning rate of dp-sgd.optimiser."""

    momentum: Annotated[float, Field(ge=0, lt=1)] | Auto = "auto"
    """Momentum for sgd; adam ignores it."""

    server_optimiser: Literal["averaging", "momentum", "adam"] = "averaging"
    """How the server moves along the average update."""

    server_learning_rate: Positive = 1.0
    """Learning rate of the server's step."""

    server_momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum of the server's momentum or adam; averaging ignores it."""

    per_example_method: Literal["auto", "exact", "vmap"] = "auto"
    """How clipped sums of per-record gradients are computed. exact: in whole numbers, for chains of
    linear layers, convolutions, pools, ReLU and tanh. vmap: each record's gradient separately, for
    any other network; it rests on an assumption that is printed next to ε. auto: exact if possible,
    else vmap.
    """

    precision: Literal["auto", "float32", "float64"] = "auto"
    """Precision of forward and backward passes, except with exact, which uses float64; clipped sums
    are computed in float64. auto: float32, torch's default, for your own networks, else float64. A
    record's bound C is the same.
    """

    micro_batch: Annotated[int, Field(ge=1)] | Auto = "auto"
    """Maximum number of records whose gradients are in memory at once. auto: 64 with vmap, else
    2048.
    """

    pad_batches: bool = True
    """distributed-dp-sgd: a party by itself processes ⌈qn + 6√(qn)⌉ rows in every step, whatever
    its batch, so that its time reveals less about the batch. A simulation of all parties in one
    pass pads nothing.
    """

    @property
    def server_step(self) -> dict[str, Any]:
        """The fields of the server's step."""
        kind, rate = self.server_optimiser, self.server_learning_rate
        return {"kind": kind, "learning_rate": rate, "momentum": self.server_momentum}
