"""What a section's form may ask of the job that holds it: the job imports the forms."""

from __future__ import annotations

from typing import Protocol

from parley.server.jobs.model import ModelSection
from parley.server.jobs.parties import Data, Parties
from parley.server.jobs.privacy import Privacy
from parley.server.jobs.running import DPSGD, Run


class WholeJob(Protocol):
    """A `parley.server.jobs.job.Job`, but for its algorithm."""

    @property
    def parties(self) -> Parties:
        """`[parties]`."""

    @property
    def data(self) -> Data:
        """`[data]`."""

    @property
    def model(self) -> ModelSection:
        """`[model]`."""

    @property
    def dp_sgd(self) -> DPSGD:
        """`[dp-sgd]`."""

    @property
    def privacy(self) -> Privacy:
        """`[privacy]`."""

    @property
    def run(self) -> Run:
        """`[run]`."""

    @property
    def model_form(self) -> str:
        """The key of its model in `parley.server.jobs.model.MODELS`."""

    @property
    def noise(self) -> str:
        """The noise law asked for, `default` resolved by the algorithm."""

    @property
    def rounds(self) -> int:
        """Number of releases."""

    @property
    def min_survivors(self) -> int:
        """Fewest parties whose sum may be opened."""

    @property
    def corrupt(self) -> int:
        """Parties that are assumed to collude with the server."""

    @property
    def seed(self) -> int | None:
        """Seed of the noise; None: of the operating system's entropy."""
