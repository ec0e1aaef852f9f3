"""How a job is run: `[run]`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from parley.server.jobs.naming import FilePath, Text
from parley.server.jobs.section import Auto, Section


def in_process(engine: str) -> bool:
    """Whether the parties of an engine are arrays, of one process or of a few."""
    return engine in {"fast", "ray"}


class Run(Section):
    """How it is run."""

    engine: Literal["fast", "ray", "flower", "processes"] = Field(
        "fast",
        description="fast: all parties in this process; ray: dealt to workers of Ray, on this "
        "machine or a cluster (parley[ray]); flower: Flower's simulation (parley[ray]); "
        "processes: a real server and one real process a party on this machine, with TLS, node "
        "authentication and the masked protocol.",
    )
    stage_timeout: float = Field(
        120.0,
        ge=1,
        le=86_400,
        description="Seconds that a party has to answer one request; then it counts as dropped "
        "(engines flower and processes, and deployments).",
    )
    seed: Annotated[int, Field(ge=0)] | Literal["none"] = Field(
        "none",
        description="none: noise from the operating system's entropy; a number: reproducible, "
        "and the noise then protects nobody.",
    )
    noise_shares: Literal["auto", "deal", "full"] = Field(
        "auto",
        description="noise-point = 'share', fast engine with backend = 'ideal'. deal: after the "
        "first round the sum of the shares is one draw, of the same law; full: every party's share "
        "is drawn, equal to real parties' to the last bit with a seed. auto: deal without a seed, "
        "full with one.",
    )
    out: FilePath = Field("runs", description="Folder that run folders are made in.")
    faults: Text = Field(
        "",
        description="Simulated faults, e.g. 'drop:0.2' (fraction lost each round at any stage), "
        "'decline:0.1', 'drop:0.1@before-vector'; comma-separated. Private components are a "
        "release like a round's, named @0.",
    )
    evaluate_every: Annotated[int, Field(ge=0)] | Auto = Field(
        "auto",
        description="Rounds between the simulation's evaluations; 0: only the last; auto: every "
        "round where that is cheap, else every tenth.",
    )
    partial: bool = Field(
        False,
        strict=True,
        description="Begin also where the data's budget won't last for all rounds: as many as fit. "
        "The noise is that of all rounds, so that fewer rounds are worse than a job of fewer.",
    )
    memory: Annotated[int, Field(ge=1)] | Auto = Field(
        "auto",
        description="MiB of records that a simulation holds in memory; more of them are written to "
        "a file once and read through a memory map. auto: half of this machine's memory.",
    )
    prepared: FilePath = Field(
        "",
        description="Folder in which prepared rows are kept, named by their content, for other "
        "runs and sweeps of the same data; as closed as the data are. Empty: rows are kept where "
        "they exceed run.memory alone, in the folder 'prepared' of run.out.",
    )
    ray_address: FilePath = Field(
        "",
        description="Engine ray: the cluster, 'auto' for the one that this machine is part of. "
        "Empty: workers on this machine alone.",
    )
    workers: int = Field(
        0, ge=0, description="Engine ray: how many workers; 0: one for every core of the cluster."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where networks train (fedavg); auto: cuda where present."
    )

    @property
    def in_process(self) -> bool:
        """Whether the parties are arrays, of this process or of a few."""
        return in_process(self.engine)

    @property
    def here(self) -> bool:
        """Whether all parties are arrays of this process alone."""
        return self.engine == "fast"

    @property
    def deals(self) -> bool:
        """Whether a simulation may draw the sum of shares instead of each."""
        if self.noise_shares == "auto":
            return self.seed == "none"
        return self.noise_shares == "deal"
