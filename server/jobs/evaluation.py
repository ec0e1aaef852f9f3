"""How good the model is on the parties' own held-out records: `[evaluation]`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from parley.server.jobs.section import Positive, Section, check_unchanged
from parley.server.jobs.whole import WholeJob


class Evaluation(Section):
    """How good the model is on records that the parties hold out."""

    kind: Literal["none", "federated"] = Field(
        "none",
        description="federated: after the last round the parties count the model's right and wrong "
        "answers on records that they hold out (real ones: held-out in their party.toml; a "
        "simulation deals out its held-out records); the counts are one more release, through the "
        "same secure sum, with noise and its own budget.",
    )
    epsilon: Positive = Field(
        0.1,
        description="federated: ε of that release, beside privacy.epsilon, at privacy.delta; the "
        "data's budget bears both.",
    )
    by_class: bool = Field(
        False, strict=True, description="federated: counts for each class of the label."
    )

    @property
    def asked(self) -> bool:
        """Whether there is such a release."""
        return self.kind != "none"

    def check(self, job: WholeJob) -> None:
        """Refuses jobs whose answers are not right or wrong, and keys that would do nothing."""
        if not self.asked:
            check_unchanged(job, "evaluation", (), "evaluation.kind = 'federated'")
            return
        if job.model.learns == "nothing" or job.model.metric != "accuracy":
            raise ValueError(
                "Expected a model.kind that predicts a label with evaluation.kind = 'federated', "
                f"got {job.model.kind!r}."
            )
        if job.privacy.point.private_alone:
            raise ValueError(
                "Expected privacy.noise-point = 'share' or 'server' with evaluation.kind = "
                "'federated' (a whole noise of every party would drown the counts), got "
                f"{job.privacy.noise_point!r}."
            )
        # It is the last of all that a run makes, and its noise hides one record.
        check_unchanged(job, "run", ("partial",), "evaluation.kind = 'none'")
        check_unchanged(job, "privacy", ("unit",), "evaluation.kind = 'none'")
