"""Define `[algorithm]` of jobs that create synthetic records from one noisy sum.

Only the public schema determines what is summed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from parley.client.algorithms import kernel_mean_embedding
from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.pair_tables import (
    MAX_CELLS,
    PairTables,
    compute_cell_count,
    list_pairs,
)
from parley.client.data.record_discretization import (
    build_coded_columns,
    find_array_column,
    list_class_names,
)
from parley.client.data.schema import Schema, SchemaError
from parley.privacy.accounting.threat_model import Neighbouring
from parley.server.jobs.algorithm_base import (
    PARTY_BUDGET_KEYS,
    AlgorithmSection,
    PlanDetail,
    UnusedKeys,
    check_private_sizes,
)
from parley.server.jobs.external_references import Text
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.section_base import Auto, JobError

if TYPE_CHECKING:
    from parley.server.jobs.job import Job

_MAX_RECORDS = 2.0**24
"""Number of a party's records above which its sum is clipped, if that number is private."""

_TABLE_SCALE = 2.0
_ARRAY_SCALE = math.sqrt(105 / 784)
"""Length scale per √cell: √105 for 28×28 (arXiv:2002.11603), proportional to the square root of the
number of cells.
"""


class _OneSumSection(AlgorithmSection):
    """One noisy sum over all records, and a generator that is fitted to it."""

    models: ClassVar[tuple[str, ...]] = ("table",)
    laws: ClassVar[tuple[str, ...]] = ("gaussian", "discrete-gaussian")
    releases: ClassVar[int | None] = 1
    rounds: ClassVar[int] = 1
    unused_keys: ClassVar[UnusedKeys] = {
        "dp_sgd": (),
        "run": ("device",),
        "privacy": ("unit", *PARTY_BUDGET_KEYS),
        "parties": ("weights",),
    }
    unused_needs: ClassVar[str] = "an algorithm that trains a model"

    rows: Annotated[int, Field(ge=1, le=10**9)] | Auto = "auto"
    """Number of synthetic records to write; auto: the released number."""

    seed: int = Field(0, ge=0, lt=2**63)
    """Public seed of the fit and the rows (and of random features); the noise does not depend on
    it.
    """

    def check(self, job: Job) -> None:
        """Check the base's conditions, and what noise on a sum needs."""
        super().check(job)
        check_private_sizes(job)
        if not job.privacy.delta:
            raise ValueError(f"Expected privacy.delta > 0 with {self.kind}, got 0.")

    def build_algorithm(self, job: Job, model: Any, parties: Federation) -> FederatedAlgorithm:
        """Build the sum for the parties' schema; raises JobError."""
        if not parties.schema:
            raise JobError(
                f"Expected the parties' schema with {self.kind}, got none: it determines which "
                "values are summed. Set data.schema to a copy of it at the server."
            )
        private = job.privacy.neighbouring == "add-or-remove-one"
        bound = max(_MAX_RECORDS if private else float(parties.max_records), 1.0)
        try:
            return self.build_sum(
                Schema.from_toml(parties.schema),
                columns=model.features,
                neighbouring=Neighbouring(job.privacy.neighbouring),
                bound=bound,
            )
        except JobError:
            raise
        except (SchemaError, ValueError) as error:
            raise JobError(str(error)) from error

    def build_sum(
        self, schema: Schema, *, columns: int, neighbouring: Neighbouring, bound: float
    ) -> FederatedAlgorithm:
        """Build the sum; `bound` holds for each entry of a party. Raises JobError, SchemaError."""
        raise NotImplementedError


def _check_columns(expected: int, columns: int, kind: str) -> None:
    if columns != expected:
        raise JobError(
            f"Expected records of {expected} {kind}, as in data.schema, got {columns}. Give the "
            "server a copy of the parties' schema."
        )


class MarginalsSection(_OneSumSection):
    """Noisy two-way tables of all records, once, and synthetic rows from them."""

    plan_detail: ClassVar[PlanDetail] = "tables"

    pairs: Literal["all", "label"] | list[tuple[Text, Text]] = "all"
    """marginals: pairs of columns that are counted: all, each column with the label, or a list of
    pairs of names.
    """

    components: int = Field(300, ge=1, le=10_000)
    """marginals: number of products of distributions that are fitted."""

    steps: int = Field(400, ge=1, le=100_000)
    """Number of steps of the fit."""

    def build_sum(
        self, schema: Schema, *, columns: int, neighbouring: Neighbouring, bound: float
    ) -> FederatedAlgorithm:
        """Build the sum of the tables."""
        coded = build_coded_columns(schema)
        sizes = tuple(column.size for column in coded)
        _check_columns(sum(sizes[:-1]), columns, "codes")
        pairs = self._list_pairs([column.name for column in coded])
        cells = compute_cell_count(sizes, pairs)
        if cells > MAX_CELLS:
            widest = sorted(coded, key=lambda column: -column.size)[:3]
            named = ", ".join(f"{column.name} ({column.size:,} values)" for column in widest)
            raise JobError(
                f"Expected at most {MAX_CELLS:,} cells in all tables, got {cells:,}. The largest "
                f"columns are {named}. Use fewer bins or categories, or algorithm.pairs = 'label'."
            )
        return PairTables(sizes=sizes, pairs=pairs, neighbouring=neighbouring, bound=bound)

    def _list_pairs(self, names: list[str]) -> tuple[tuple[int, ...], ...]:
        if isinstance(self.pairs, str):
            return list_pairs(self.pairs, len(names))
        pairs = []
        for pair in self.pairs:
            if unknown := [name for name in pair if name not in names]:
                raise JobError(
                    "Expected algorithm.pairs to name the schema's columns "
                    f"({', '.join(names)}), got {unknown[0]!r}."
                )
            i, j = sorted(names.index(name) for name in pair)
            if i == j or (i, j) in pairs:
                raise JobError(f"Expected different pairs of two columns, got {list(pair)}.")
            pairs.append((i, j))
        if not pairs:
            raise JobError("Expected at least one pair in algorithm.pairs, got none.")
        return tuple(sorted(pairs))


class RandomFeaturesSection(_OneSumSection):
    """The noisy sum of random features by class, once, and synthetic records from it."""

    plan_detail: ClassVar[PlanDetail] = "features"

    frequencies: int = Field(1000, ge=1, le=1 << 20)
    """random-features: F, the number of cosines, and of sines."""

    length_scale: Annotated[float, Field(gt=0, le=1e6)] | Auto = "auto"
    """random-features: ℓ of the kernel, public. auto: 2 for a table, √105 for 28×28 images, and
    proportional to the square root of an array's size.
    """

    steps: int = Field(500, ge=1, le=100_000)
    """Number of steps of the fit."""

    def build_sum(
        self, schema: Schema, *, columns: int, neighbouring: Neighbouring, bound: float
    ) -> FederatedAlgorithm:
        """Build the sum of the features; raises JobError also if an image is not square."""
        array = find_array_column(schema)
        sizes = () if array else tuple(each.size for each in build_coded_columns(schema)[:-1])
        wide = array[1].width if array else sum(sizes)
        _check_columns(wide, columns, "codes or cells")
        if array and (len(array[1].shape) > 2 or len(set(array[1].shape)) != 1):
            raise JobError(
                f"Expected an array with one axis, or square images, got {array[0]!r} of shape "
                f"{list(array[1].shape)}."
            )
        scale = self.length_scale
        if scale == "auto":
            scale = _ARRAY_SCALE * math.sqrt(wide) if array else _TABLE_SCALE
        chosen = kernel_mean_embedding.RandomFeatures(
            features=wide,
            sizes=sizes,
            classes=len(list_class_names(schema)),
            frequencies=self.frequencies,
            length_scale=scale,
            seed=self.seed,
            digest="",
            neighbouring=neighbouring,
            bound=bound,
        )
        # Draw W only once its size is known to fit a machine.
        compute_digest = kernel_mean_embedding.compute_waves_digest
        return replace(chosen, digest=compute_digest(wide, self.frequencies, scale, self.seed))
