"""Define three sections: how a job is run, sums contributions and trains networks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from parley.client.contract.removed_options import ConfirmSurvivors, Dropouts, KeyExchange
from parley.server.jobs.external_references import FilePath, Text
from parley.server.jobs.section_base import Auto, JobSection, Positive


class SecureAggregationSection(JobSection):
    """How contributions are summed."""

    backend: Literal["ideal", "masked"] = Field(
        "ideal",
        description="ideal: the ring sum the protocol computes, without the masks (simulation); "
        "masked: the whole protocol. Both give the same bits.",
    )
    dropouts: Dropouts = Field(
        "robust", description="Always robust: double masks, so that rounds survive dropouts."
    )
    confirm_survivors: ConfirmSurvivors = Field(
        True,
        description="Always true: the parties confirm the survivors' list to each other before "
        "they unmask, so that a server that lies about dropouts gains nothing.",
    )
    key_exchange: KeyExchange = Field(
        "hybrid",
        description="Always hybrid: masks stay secret as long as X25519 or ML-KEM-768 holds.",
    )
    min_survivors: int | Auto = Field(
        "auto",
        description="Minimum number of survivors whose sum may be unmasked; auto: ⌈2m/3⌉. It is "
        "raised above (m + corrupt)/2; key shares may need more.",
    )
    corrupt: int | Auto = Field(
        "auto",
        description="Parties that may collude with the server; auto: a tenth, at least one of "
        "three or more. Degree and threshold follow from it. A party declines a run that "
        "assumes fewer than its policy does.",
    )
    ring_bits: Literal[16, 32, 64] | Auto = Field("auto", description="16 | 32 | 64 | auto.")
    scale_bits: Annotated[int, Field(ge=0, le=52)] | Auto = Field(
        "auto",
        description="Grid of 2^scale-bits steps per unit; auto: the finest that fits. Real parties "
        "decline a coarser one unless insist-on-fine-grid is false.",
    )
    masked_check: bool = Field(
        True,
        description="With backend = 'ideal', compare the first round with the masked protocol "
        "for (at most 64) parties drawn at random.",
    )


class DpSgdSection(JobSection):
    """How parties train networks: for algorithm.kind fedavg or distributed-dp-sgd."""

    sampling_rate: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | Auto = Field(
        "auto",
        description="q: every record is in a batch with this probability (Poisson). auto, like "
        "all autos of this section and algorithm.rounds: by a rule of public facts "
        "(docs/methods.md; `parley plan` shows its choices).",
    )
    batch_size: Annotated[int, Field(ge=1)] | Auto = Field(
        "auto",
        description="Expected batch of the smallest party; a number sets sampling-rate to "
        "batch-size / min-records.",
    )
    local_epochs: Positive | Auto = Field(
        "auto",
        description="Passes over a party's records in a round: local-epochs / q steps. auto: "
        "local-steps applies.",
    )
    local_steps: Annotated[int, Field(ge=1)] | Auto = Field(
        "auto",
        description="Steps in a round; a number replaces local-epochs. distributed-dp-sgd: "
        "every step is a secure sum, and all steps of a round are reserved and charged "
        "together.",
    )
    clip_norm: Annotated[float, Field(ge=1e-12, le=1e12)] | Auto = Field(
        "auto",
        description="C: every record's gradient is clipped to this L2 norm (unit record or "
        "both). The rule's learning rate is proportional to 1/C, so that a smaller C hardly "
        "changes a model.",
    )
    noise_multiplier: Positive | Auto = Field(
        "auto",
        description="σ: noise of standard deviation σC on the sum of a batch (unit record or "
        "both). auto: calibrated so that all rounds cost privacy.epsilon.",
    )
    clipped_fraction_share: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = Field(
        0.0,
        description="Share of every step's privacy that goes to a noisy fraction of clipped "
        "gradients, released in every round (unit record). ε stays the same; the noise on "
        "gradients grows by 1/√(1−share). 0.01 makes it half a percent larger; 0 releases "
        "nothing.",
    )
    party_clip_norm: Positive | Auto = Field(
        "auto", description="S: a party's update is clipped to this L2 norm (unit party or both)."
    )
    optimiser: Literal["sgd", "adam"] = Field(
        "sgd",
        description="sgd | adam: in the party, restarted every round (fedavg); at the server, "
        "over the whole run (distributed-dp-sgd).",
    )
    learning_rate: Positive | Auto = Field("auto", description="Of that optimiser.")
    momentum: Annotated[float, Field(ge=0, lt=1)] | Auto = Field(
        "auto", description="Momentum for sgd; adam ignores it."
    )
    server_optimiser: Literal["averaging", "momentum", "adam"] = Field(
        "averaging", description="How the server moves along the average update."
    )
    server_learning_rate: Positive = Field(1.0, description="Learning rate of the server's step.")
    server_momentum: float = Field(
        0.9,
        ge=0,
        lt=1,
        description="Momentum of the server's momentum or adam; averaging ignores it.",
    )
    per_example_method: Literal["auto", "exact", "vmap"] = Field(
        "auto",
        description="How clipped sums of per-record gradients are computed. exact: in whole "
        "numbers, for chains of linear layers, convolutions, pools, ReLU and tanh. vmap: "
        "each record's gradient separately, for any other network; it rests on an "
        "assumption that is printed next to ε. auto: exact if possible, else vmap.",
    )
    precision: Literal["auto", "float32", "float64"] = Field(
        "auto",
        description="Precision of forward and backward passes, except with exact, which uses "
        "float64; clipped sums are computed in float64. auto: float32, torch's default, for "
        "your own networks, else float64. A record's bound C is the same.",
    )
    micro_batch: Annotated[int, Field(ge=1)] | Auto = Field(
        "auto",
        description="Maximum number of records whose gradients are in memory at once. auto: 64 "
        "with vmap, else 2048.",
    )
    pad_batches: bool = Field(
        True,
        description="distributed-dp-sgd: a party by itself processes ⌈qn + 6√(qn)⌉ rows in "
        "every step, whatever its batch, so that its time reveals less about the batch. A "
        "simulation of all parties in one pass pads nothing.",
    )


def is_in_process(engine: str) -> bool:
    """Return whether the engine's parties are arrays in one process or a few."""
    return engine in {"fast", "ray"}


class RunSection(JobSection):
    """How the job is run."""

    engine: Literal["fast", "ray", "flower", "processes"] = Field(
        "fast",
        description="fast: all parties in this process. ray: sharded among Ray workers, on this "
        "machine or a cluster (parley[ray]). flower: Flower's simulation (parley[ray]). "
        "processes: a real server and one real process per party on this machine, with TLS, "
        "node authentication and the masked protocol.",
    )
    stage_timeout: float = Field(
        120.0,
        ge=1,
        le=86_400,
        description="Seconds that a party has to answer one request; then it counts as dropped "
        "(engines flower and processes, and deployments).",
    )
    approval_timeout: float = Field(
        86_400.0,
        ge=0,
        le=31_536_000,
        description="Seconds to wait, before anything is charged, for owners of parties whose "
        "party.toml has approval-above. A party without approval by then takes no part.",
    )
    seed: Annotated[int, Field(ge=0)] | Literal["none"] = Field(
        "none",
        description="none: noise from the operating system's entropy. A number: reproducible "
        "noise, which then protects nobody.",
    )
    noise_shares: Literal["auto", "deal", "full"] = Field(
        "auto",
        description="noise-point = 'share', fast engine with backend = 'ideal'. deal: after the "
        "first round the sum of the shares is one draw, of the same distribution. full: "
        "every party's share is drawn; with a seed, equal to real parties' shares to the "
        "last bit. auto: deal without a seed, full with one.",
    )
    out: FilePath = Field("runs", description="Folder for new run folders.")
    faults: Text = Field(
        "",
        description="Simulated faults, e.g. 'drop:0.2' (fraction lost each round at any stage), "
        "'decline:0.1', 'drop:0.1@before-vector'; comma-separated. Private components are a "
        "release like a round's, with the number 0 (@0).",
    )
    evaluate_every: Annotated[int, Field(ge=0)] | Auto = Field(
        "auto",
        description="Rounds between the simulation's evaluations; 0: only the last. auto: every "
        "round if that is cheap, else every tenth.",
    )
    baseline: bool = Field(
        True,
        strict=True,
        description="Train the same model without privacy, for comparison (only in "
        "simulations), after the private model is written. For a network it takes as long "
        "as the run itself.",
    )
    partial: bool = Field(
        False,
        strict=True,
        description="Start even if the data's budget does not last for all rounds, and run "
        "those that fit. The noise is calibrated for all rounds, so that the model is worse "
        "than that of a job with fewer rounds.",
    )
    memory: Annotated[int, Field(ge=1)] | Auto = Field(
        "auto",
        description="MiB of records that a simulation holds in memory; larger data are written "
        "to a file once and read through a memory map. auto: half of this machine's memory.",
    )
    prepared: FilePath = Field(
        "",
        description="Folder that caches prepared rows by their content, for other runs and "
        "sweeps of the same data. Protect it as strictly as the data. Empty: rows are only "
        "cached if they exceed run.memory, in the folder 'prepared' of run.out.",
    )
    ray_address: FilePath = Field(
        "",
        description="Engine ray: the cluster; 'auto' for the one that this machine is part of. "
        "Empty: workers only on this machine.",
    )
    workers: int = Field(
        0, ge=0, description="Engine ray: number of workers; 0: one per core of the cluster."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Device for training networks (fedavg); auto: cuda if available."
    )

    @property
    def in_process(self) -> bool:
        """Whether the parties are arrays in one process or a few."""
        return is_in_process(self.engine)

    @property
    def is_one_process(self) -> bool:
        """Whether all parties are arrays in this process."""
        return self.engine == "fast"

    @property
    def draws_central_noise(self) -> bool:
        """Whether a simulation may draw the sum of the shares instead of each share."""
        if self.noise_shares == "auto":
            return self.seed == "none"
        return self.noise_shares == "deal"
