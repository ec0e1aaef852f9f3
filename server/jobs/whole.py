"""What a section's form may ask of the job that holds it, when it checks that job."""

from __future__ import annotations

from typing import Protocol

from parley.server.jobs.model import Model
from parley.server.jobs.parties import Parties
from parley.server.jobs.privacy import Privacy
from parley.server.jobs.running import Run


class WholeJob(Protocol):
    """A `parley.server.jobs.job.Job`, which imports the forms: they know it by these alone."""

    @property
    def parties(self) -> Parties:
        """`[parties]`."""

    @property
    def model(self) -> Model:
        """`[model]`."""

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
