"""Families of regression: the kind of outcome, and how it depends on covariates.

`FAMILIES` has a row for each. A family defines its own keys of a query, the conditions on its
outcome column, its initial base, and slopes and curvatures of records
(`parley.client.queries.regression.response_likelihoods`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from parley.client.data.query_party_block import RawPartyBlock
from parley.client.data.schema import Schema
from parley.client.queries.base import Numbers, QueryError, get_range
from parley.client.queries.regression.response_likelihoods import (
    Both,
    compute_count_terms,
    compute_hazard_terms,
    compute_logistic_terms,
)
from parley.client.queries.survival import Survival, check_event, find_events
from parley.privacy.accounting.threat_model import Neighbouring


@dataclass(frozen=True, kw_only=True)
class RegressionOutcome:
    """The keys of a query that define its outcome.

    Attributes:
        column: the outcome: whether an event happened, a count, or a time.
        event, occurred, bins, end, edges: see `Survival`; only `occurred` with logistic.
        exposure: for counts: a column of numbers > 0 to which the mean is proportional; empty:
            none.
        cap: value at which counts are cut; 0: the end of their range.
        dispersion: α of a negative binomial's variance μ + α·μ².
    """

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
        """Return the same outcome in the form of `survival`. Raises QueryError."""
        own = ("column", "event", "occurred", "bins", "end", "edges")
        return Survival(**{name: getattr(self, name) for name in own})

    def get_cap(self, schema: Schema) -> float:
        """Return the value at which counts are cut."""
        return self.cap or get_range(schema, self.column).high


class OutcomeFamily(ABC):
    """One family.

    Attributes:
        ratio: name of e to the power of a coefficient.
        keys: keys of an outcome in addition to its column.
    """

    ratio: ClassVar[str]
    keys: ClassVar[frozenset[str]]

    def check_keys(self, outcome: RegressionOutcome) -> None:
        """Raise QueryError if keys do not go together."""
        del outcome

    @abstractmethod
    def check(self, outcome: RegressionOutcome, schema: Schema) -> None:
        """Raise QueryError or SchemaError if the columns are no such outcome."""

    def count_intervals(self, outcome: RegressionOutcome, schema: Schema) -> int:
        """Return K, the number of γ."""
        return 1

    def get_initial_base(self, outcome: RegressionOutcome, schema: Schema) -> float:
        """Return the value of each γ at the first step."""
        return 0.0

    def get_slope_unit(self, outcome: RegressionOutcome, schema: Schema) -> float:
        """Return the unit of slopes."""
        return 1.0

    @abstractmethod
    def compute_derivatives(
        self, outcome: RegressionOutcome, block: RawPartyBlock, base: Numbers, margins: Numbers
    ) -> Both:
        """Return `[N, K]` slopes, and curvatures."""


class LogisticFamily(OutcomeFamily):
    """Whether an event happened."""

    ratio = "odds ratio"
    keys = frozenset({"occurred"})

    def check(self, outcome: RegressionOutcome, schema: Schema) -> None:
        """Check the outcome as in `OutcomeFamily.check`."""
        check_event(schema, outcome.column, outcome.occurred)

    def compute_derivatives(
        self, outcome: RegressionOutcome, block: RawPartyBlock, base: Numbers, margins: Numbers
    ) -> Both:
        """Return slopes and curvatures as in `OutcomeFamily.compute_derivatives`."""
        happens = find_events(block, outcome.column, outcome.occurred)
        return compute_logistic_terms(base, margins, happens.astype(np.float64))


class PoissonFamily(OutcomeFamily):
    """How often an event happened, with a variance like the mean.

    Its intervals hold for any variance.
    """

    ratio = "rate ratio"
    keys = frozenset({"exposure", "cap"})

    def check(self, outcome: RegressionOutcome, schema: Schema) -> None:
        """Check the outcome as in `OutcomeFamily.check`."""
        known = get_range(schema, outcome.column)
        if known.low < 0 or not 0 <= outcome.cap <= known.high or known.high <= 0:
            got = f"{outcome.column!r} in [{known.low:g}, {known.high:g}] and cap {outcome.cap:g}"
            raise QueryError(f"Expected counts from 0 on and a cap within their range, got {got}.")
        if outcome.exposure and not get_range(schema, outcome.exposure).low > 0:
            got = f"{outcome.exposure!r} from {get_range(schema, outcome.exposure).low:g} on"
            raise QueryError(f"Expected an exposure > 0, got {got}. Set its range in the schema.")

    def get_initial_base(self, outcome: RegressionOutcome, schema: Schema) -> float:
        """Return the base for a mean of an eighth of the cap."""
        known = get_range(schema, outcome.exposure) if outcome.exposure else None
        usual = (known.low + known.high) / 2 if known else 1.0
        return math.log(outcome.get_cap(schema) / 8 / usual)

    def get_slope_unit(self, outcome: RegressionOutcome, schema: Schema) -> float:
        """Return the cap."""
        return outcome.get_cap(schema)

    def compute_derivatives(
        self, outcome: RegressionOutcome, block: RawPartyBlock, base: Numbers, margins: Numbers
    ) -> Both:
        """Return slopes and curvatures as in `OutcomeFamily.compute_derivatives`."""
        exposed = block.columns[outcome.exposure] if outcome.exposure else np.ones(len(margins))
        cap, values = outcome.get_cap(block.schema), block.columns[outcome.column]
        spread = {"cap": cap, "dispersion": outcome.dispersion}
        return compute_count_terms(base, margins, values, exposures=exposed, **spread)


class NegativeBinomialFamily(PoissonFamily):
    """How often an event happened, with a variance of μ + α·μ²."""

    keys = frozenset({"exposure", "cap", "dispersion"})

    def check_keys(self, outcome: RegressionOutcome) -> None:
        """Check the keys as in `OutcomeFamily.check_keys`."""
        if not 0 < outcome.dispersion <= _MAX_DISPERSION:
            expected = f"Expected a dispersion in (0, {_MAX_DISPERSION:g}]"
            why = "poisson needs none, and its intervals hold for any"
            raise QueryError(f"{expected}, got {outcome.dispersion:g}; {why}.")


class HazardFamily(OutcomeFamily):
    """When an event happened, in K intervals."""

    ratio = "hazard ratio"
    keys = frozenset({"event", "occurred", "bins", "end", "edges"})

    def check_keys(self, outcome: RegressionOutcome) -> None:
        """Check the keys as in `OutcomeFamily.check_keys`."""
        outcome.to_survival()

    def check(self, outcome: RegressionOutcome, schema: Schema) -> None:
        """Check the outcome as in `OutcomeFamily.check`."""
        outcome.to_survival().check(schema, Neighbouring.REPLACE_ONE)

    def count_intervals(self, outcome: RegressionOutcome, schema: Schema) -> int:
        """Return K as in `OutcomeFamily.count_intervals`."""
        return len(outcome.to_survival().list_interval_ends(schema)) - 1

    def get_initial_base(self, outcome: RegressionOutcome, schema: Schema) -> float:
        """Return the base for hazards that sum to a half."""
        return -math.log(2 * self.count_intervals(outcome, schema))

    def compute_derivatives(
        self, outcome: RegressionOutcome, block: RawPartyBlock, base: Numbers, margins: Numbers
    ) -> Both:
        """Return slopes and curvatures as in `OutcomeFamily.compute_derivatives`."""
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
