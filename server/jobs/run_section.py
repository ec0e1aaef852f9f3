"""Define the section [run]: how and where a job runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from parley.server.jobs.external_references import FilePath, Text, WorkingPath
from parley.server.jobs.section_base import Auto, JobSection


def is_in_process(engine: str) -> bool:
    """Return whether the engine's parties are arrays in one process or a few."""
    return engine in {"fast", "ray"}


class RunSection(JobSection):
    """How the job is run."""

    engine: Literal["fast", "ray", "flower", "processes"] = "fast"
    """fast: all parties in this process. ray: sharded among Ray workers, on this machine or a
    cluster (parley[ray]). flower: Flower's simulation (parley[ray]). processes: a real server and
    one real process per party on this machine, with TLS, node authentication and the masked
    protocol.
    """

    stage_timeout: float = Field(120.0, ge=1, le=86_400)
    """Seconds that a party has to answer one request; then it counts as dropped (engines flower and
    processes, and deployments).
    """

    approval_timeout: float = Field(86_400.0, ge=0, le=31_536_000)
    """Seconds to wait, before anything is charged, for owners of parties whose party.toml has
    approval-above. A party without approval by then takes no part.
    """

    seed: Annotated[int, Field(ge=0)] | Literal["none"] = "none"
    """none: noise from the operating system's entropy. A number: reproducible noise, which then
    protects nobody.
    """

    noise_shares: Literal["auto", "deal", "full"] = "auto"
    """noise-point = 'share', fast engine with backend = 'ideal'. deal: after the first round the
    sum of the shares is one draw, of the same distribution. full: every party's share is drawn;
    with a seed, equal to real parties' shares to the last bit. auto: deal without a seed, full with
    one.
    """

    out: WorkingPath = "runs"
    """Folder for new run folders; a relative one is below the folder in which you run the command.
    """

    faults: Text = ""
    """Simulated faults, e.g. 'drop:0.2' (fraction lost each round at any stage), 'decline:0.1',
    'drop:0.1@before-vector'; comma-separated. Private components are a release like a round's, with
    the number 0 (@0).
    """

    evaluate_every: Annotated[int, Field(ge=0)] | Auto = "auto"
    """Rounds between the simulation's evaluations; 0: only the last. auto: every round if that is
    cheap, else every tenth.
    """

    baseline: bool = Field(True, strict=True)
    """Train the same model without privacy, for comparison (only in simulations), after the private
    model is written. For a network it takes as long as the run itself.
    """

    partial: bool = Field(False, strict=True)
    """Start even if the data's budget does not last for all rounds, and run those that fit. The
    noise is calibrated for all rounds, so that the model is worse than that of a job with fewer
    rounds.
    """

    memory: Annotated[int, Field(ge=1)] | Auto = "auto"
    """MiB of records that a simulation holds in memory; larger data are written to a file once and
    read through a memory map. auto: half of this machine's memory.
    """

    prepared: FilePath = ""
    """Folder that caches prepared rows by their content, for other runs and sweeps of the same
    data. Protect it as strictly as the data. Empty: rows are only cached if they exceed run.memory,
    in the folder 'prepared' of run.out.
    """

    ray_address: WorkingPath = ""
    """Engine ray: the cluster; 'auto' for the one that this machine is part of. Empty: workers only
    on this machine.
    """

    workers: int = Field(0, ge=0)
    """Engine ray: number of workers; 0: one per core of the cluster."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device for training networks (fedavg); auto: cuda if available."""

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
