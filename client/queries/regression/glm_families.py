"""Families of regression: what an outcome is, and how it answers to covariates.

A row of `FAMILIES` each: which keys of a query are its own, what its outcome column must be, where
its base begins, and slopes and curvatures of records (`parley.client.models.response_likelihoods`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from parley.client.data.raw_party_block import RawPartyBlock
from parley.client.data.schema import Schema
from parley.client.models.response_likelihoods import (
    Both,
    compute_count_terms,
    compute_hazard_terms,
    compute_logistic_terms,
)
from parley.client.queries.base import Numbers, QueryError, get_range
from parley.client.queries.survival import Survival, check_event, find_events
from parley.privacy.accounting.threat_model import Neighbouring


@dataclass(frozen=True, kw_only=True)
class RegressionOutcome:
    """The keys of a query that say what its outcome is: see `RegressionQuery`."""

    column: str
    event: str = ""
    occurred: str = ""
    bins: int = 0
    end: float = 0.0
    edges: tuple[float, ...] = ()
    exposure: str = ""
    cap: float = 0.0
    dispersion: float = 0.0

    def to_survival(self) -> Survival:
        """The same outcome as `survival` has it. Raises QueryError."""
        own = ("column", "event", "occurred", "bins", "end", "edges")
        return Survival(**{name: getattr(self, name) for name in own})

    def get_cap(self, schema: Schema) -> float:
        """At which counts are cut."""
        return self.cap or get_range(schema, self.column).high


class OutcomeFamily(ABC):
    """One family.

    Attributes:
        ratio: what e to a coefficient is.
        keys: of an outcome, beside its column.
    """

    ratio: ClassVar[str]
    keys: ClassVar[frozenset[str]]

    def check_keys(self, outcome: RegressionOutcome) -> None:
        """Refuses keys that do not go together. Raises QueryError."""
        del outcome

    @abstractmethod
    def check(self, outcome: RegressionOutcome, schema: Schema) -> None:
        """Refuses columns that are no such outcome. Raises QueryError, SchemaError."""

    def count_intervals(self, outcome: RegressionOutcome, schema: Schema) -> int:
        """K: how many γ there are."""
        del outcome, schema
        return 1

    def get_initial_base(self, outcome: RegressionOutcome, schema: Schema) -> float:
        """Each γ at the first step."""
        del outcome, schema
        return 0.0

    def get_slope_unit(self, outcome: RegressionOutcome, schema: Schema) -> float:
        """What slopes are in units of."""
        del outcome, schema
        return 1.0

    @abstractmethod
    def compute_derivatives(
        self, outcome: RegressionOutcome, block: RawPartyBlock, base: Numbers, margins: Numbers
    ) -> Both:
        """`[N, K]` slopes, and curvatures."""


class LogisticFamily(OutcomeFamily):
    """Whether something happened."""

    ratio = "odds ratio"
    keys = frozenset({"occurred"})

    def check(self, outcome: RegressionOutcome, schema: Schema) -> None:
        """See `Family.check`."""
        check_event(schema, outcome.column, outcome.occurred)

    def compute_derivatives(
        self, outcome: RegressionOutcome, block: RawPartyBlock, base: Numbers, margins: Numbers
    ) -> Both:
        """See `OutcomeFamily.compute_derivatives`."""
        happens = find_events(block, outcome.column, outcome.occurred)
        return compute_logistic_terms(base, margins, happens.astype(np.float64))


class PoissonFamily(OutcomeFamily):
    """How often, with a variance like the mean; intervals hold with any other."""

    ratio = "rate ratio"
    keys = frozenset({"exposure", "cap"})

    def check(self, outcome: RegressionOutcome, schema: Schema) -> None:
        """See `Family.check`."""
        known = get_range(schema, outcome.column)
        if known.low < 0 or not 0 <= outcome.cap <= known.high or known.high <= 0:
            raise QueryError(
                f"Expected counts from 0 on and a cap within their range, got {outcome.column!r} "
                f"in [{known.low:g}, {known.high:g}] and cap {outcome.cap:g}."
            )
        if outcome.exposure and not get_range(schema, outcome.exposure).low > 0:
            raise QueryError(
                f"Expected an exposure > 0, got {outcome.exposure!r} from "
                f"{get_range(schema, outcome.exposure).low:g} on: say its range in the schema."
            )

    def get_initial_base(self, outcome: RegressionOutcome, schema: Schema) -> float:
        """A mean of an eighth of the cap."""
        known = get_range(schema, outcome.exposure) if outcome.exposure else None
        usual = (known.low + known.high) / 2 if known else 1.0
        return math.log(outcome.get_cap(schema) / 8 / usual)

    def get_slope_unit(self, outcome: RegressionOutcome, schema: Schema) -> float:
        """The cap."""
        return outcome.get_cap(schema)

    def compute_derivatives(
        self, outcome: RegressionOutcome, block: RawPartyBlock, base: Numbers, margins: Numbers
    ) -> Both:
        """See `OutcomeFamily.compute_derivatives`."""
        exposed = block.columns[outcome.exposure] if outcome.exposure else np.ones(len(margins))
        cap, values = outcome.get_cap(block.schema), block.columns[outcome.column]
        spread = {"cap": cap, "dispersion": outcome.dispersion}
        return compute_count_terms(base, margins, values, exposures=exposed, **spread)


class NegativeBinomialFamily(PoissonFamily):
    """How often, with a variance of μ + α·μ²."""

    keys = frozenset({"exposure", "cap", "dispersion"})

    def check_keys(self, outcome: RegressionOutcome) -> None:
        """See `Family.check_keys`."""
        if not 0 < outcome.dispersion <= _MAX_DISPERSION:
            raise QueryError(
                f"Expected a dispersion in (0, {_MAX_DISPERSION:g}], got {outcome.dispersion:g}; "
                "poisson needs none, and its intervals hold whatever it is."
            )


class HazardFamily(OutcomeFamily):
    """When something happened, in K intervals."""

    ratio = "hazard ratio"
    keys = frozenset({"event", "occurred", "bins", "end", "edges"})

    def check_keys(self, outcome: RegressionOutcome) -> None:
        """See `Family.check_keys`."""
        outcome.to_survival()

    def check(self, outcome: RegressionOutcome, schema: Schema) -> None:
        """See `Family.check`."""
        outcome.to_survival().check(schema, Neighbouring.REPLACE_ONE)

    def count_intervals(self, outcome: RegressionOutcome, schema: Schema) -> int:
        """See `OutcomeFamily.count_intervals`."""
        return len(outcome.to_survival().list_interval_ends(schema)) - 1

    def get_initial_base(self, outcome: RegressionOutcome, schema: Schema) -> float:
        """All together a half."""
        return -math.log(2 * self.count_intervals(outcome, schema))

    def compute_derivatives(
        self, outcome: RegressionOutcome, block: RawPartyBlock, base: Numbers, margins: Numbers
    ) -> Both:
        """See `OutcomeFamily.compute_derivatives`."""
        codes, count = outcome.to_survival().build_axis(block.schema).codes(block), len(base)
        events = codes < count
        at_risk = np.where(events, codes + 1, codes - count)
        return compute_hazard_terms(base, margins, at_risk, events.astype(np.float64))


_MAX_DISPERSION = 1000.0

FAMILIES: dict[str, OutcomeFamily] = {
    "logistic": LogisticFamily(),
    "poisson": PoissonFamily(),
    "negative-binomial": NegativeBinomialFamily(),
    "hazards": HazardFamily(),
}
"""Name → the family."""
