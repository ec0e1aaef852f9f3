"""How good the model is on the parties' own held-out records: `[evaluation]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from parley.client.algorithms.score_edges import check_edges, choose_edges
from parley.server.jobs.section_base import (
    Auto,
    JobSection,
    Positive,
    check_unchanged,
    replace_auto,
)

if TYPE_CHECKING:
    from parley.server.jobs.job import Job


class EvaluationSection(JobSection):
    """Evaluation of the model on records that the parties hold out."""

    kind: Literal["none", "federated"] = "none"
    """federated: after the last round the parties count their held-out records (real parties:
    held-out in party.toml; a simulation divides its held-out records). With two labels they count
    by label and predicted probability, with more by label and predicted label. The counts are one
    more release through the same secure sum, with noise and their own budget.
    """

    epsilon: Positive = 0.1
    """federated: ε of that release, in addition to privacy.epsilon, at privacy.delta; the data's
    budget covers both.
    """

    edges: Auto | list[Annotated[float, Field(gt=0, lt=1)]] = "auto"
    """federated, two labels: probabilities between which records are counted, always with 0.5;
    thresholds are known for these. auto: 20 even intervals, or 10 if the minimum number of the
    parties' records times epsilon is below 5000. A rare label needs edges near 0.
    """

    @property
    def is_requested(self) -> bool:
        """Whether the run has an evaluation release."""
        return self.kind != "none"

    def choose_edges(self, *, records: int) -> tuple[float, ...]:
        """Return the probabilities between intervals, for at least `records` training records."""
        auto = choose_edges(records=records, epsilon=self.epsilon)
        edges = tuple(sorted({*replace_auto(self.edges, [*auto]), 0.5}))
        check_edges(edges)
        return edges

    def check(self, job: Job) -> None:
        """Refuse jobs that predict no label, and keys without effect."""
        if not self.is_requested:
            check_unchanged(job, "evaluation", (), "evaluation.kind = 'federated'")
            return
        if job.model.learns == "nothing" or job.model.metric != "accuracy":
            raise ValueError(
                "Expected a model.kind that predicts a label with evaluation.kind = 'federated', "
                f"got {job.model.kind!r}."
            )
        if job.privacy.point.is_locally_private:
            raise ValueError(
                "Expected privacy.noise-point = 'share' or 'server' with evaluation.kind = "
                f"'federated', got {job.privacy.noise_point!r}: all of the noise from every "
                "party would hide the counts."
            )
        if not (job.data.test_fraction or job.data.test_source):
            raise ValueError(
                "Expected held-out records with evaluation.kind = 'federated' (data.test-fraction, "
                "data.test-source), got none."
            )
        self.choose_edges(records=0)
        # It is the run's last release, and its noise hides one record.
        check_unchanged(job, "run", ("partial",), "evaluation.kind = 'none'")
        check_unchanged(job, "privacy", ("unit",), "evaluation.kind = 'none'")
