"""`[algorithm]` of jobs that make synthetic records from one noisy sum."""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from parley.server.jobs.algorithm_section import (
    BOTH_KEYS,
    KIND,
    AlgorithmSection,
    Idle,
    check_private_sizes,
)
from parley.server.jobs.naming import Text
from parley.server.jobs.section import Auto
from parley.server.jobs.whole import WholeJob


class _OneSum(AlgorithmSection):
    """One noisy sum over all records, and a generator that is fitted to it."""

    models: ClassVar[tuple[str, ...]] = ("table",)
    laws: ClassVar[tuple[str, ...]] = ("gaussian", "discrete-gaussian")
    releases: ClassVar[int | None] = 1
    rounds: ClassVar[int] = 1
    idle: ClassVar[Idle] = MappingProxyType(
        {
            "dp_sgd": (),
            "run": ("device",),
            "privacy": ("unit", *BOTH_KEYS),
            "parties": ("weights",),
        }
    )
    idle_needs: ClassVar[str] = "an algorithm that trains a model"

    rows: Annotated[int, Field(ge=1, le=10**9)] | Auto = Field(
        "auto", description="Synthetic records written; auto: the released number."
    )
    seed: int = Field(
        0,
        ge=0,
        lt=2**63,
        description="Of the fit and the rows (and of random features), public; the noise has none "
        "of it.",
    )

    def check(self, job: WholeJob) -> None:
        """And what noise on a sum needs."""
        super().check(job)
        check_private_sizes(job)
        if not job.privacy.delta:
            raise ValueError(f"Expected privacy.delta > 0 with {self.kind}, got 0.")


class Marginals(_OneSum):
    """Noisy two-way tables of all records, once, and synthetic rows from them."""

    kind: Literal["marginals"] = Field("marginals", description=KIND)
    pairs: Literal["all", "label"] | list[tuple[Text, Text]] = Field(
        "all",
        description="marginals: columns that are counted together: all pairs, each with the label, "
        "or a list of pairs of names.",
    )
    components: int = Field(
        300, ge=1, le=10_000, description="marginals: products of distributions that are fitted."
    )
    steps: int = Field(400, ge=1, le=100_000, description="Steps of the fit.")


class RandomFeatures(_OneSum):
    """The noisy sum of random features by class, once, and synthetic records from it."""

    kind: Literal["random-features"] = Field("random-features", description=KIND)
    frequencies: int = Field(
        1000, ge=1, le=1 << 20, description="random-features: F, cosines and as many sines."
    )
    length_scale: Annotated[float, Field(gt=0, le=1e6)] | Auto = Field(
        "auto",
        description="random-features: ℓ of the kernel, public; auto: 2 for a table, √105 for "
        "28×28 images, and in proportion to the root of an array's size.",
    )
    steps: int = Field(500, ge=1, le=100_000, description="Steps of the fit.")
