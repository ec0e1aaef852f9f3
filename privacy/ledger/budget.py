"""The budget of a data set: a total (ε, δ) that every release on it is charged against.

A budget belongs to the data, not to a run: all releases of all runs on it are composed.

    >>> budget = DatasetBudget(
    ...     name="adult", fingerprint="sha256:0c4a", unit=Unit.RECORD,
    ...     neighbouring=Neighbouring.REPLACE_ONE, epsilon=0.5, delta=1e-5,
    ... )
    >>> budget.guarantee
    'ε = 0.5, δ = 1e-05 (unit record, replace-one)'
    >>> budget.can_admit(Composition())
    True
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from parley.privacy.accounting.account_admission import (
    BUDGET_TOLERANCE,
    AccountCertificate,
    compute_reserved_delta,
)
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.rounding import format_exact
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.ledger.block_composition import Blocks


@lru_cache(maxsize=1024)
def compute_account_epsilon(
    certificate: AccountCertificate,
    spent: Composition,
    *,
    epsilon: float,
    delta: float,
    reserved: float,
) -> float:
    """Return the ε that an account with this δ would need for `spent`; ∞ if no ε is enough.

    Args:
        epsilon, delta: the account's budget.
        reserved: δₐ, the part of δ that is reserved for approximations.
    """
    if not certificate.is_adaptive:
        return spent.compute_lowest_epsilon(delta)[1]
    from parley.privacy.accounting.privacy_filters import compute_filter_epsilon  # noqa: PLC0415 - spares its code for the account of one planned run

    return compute_filter_epsilon(
        certificate, spent, epsilon=epsilon, delta=delta, reserved=reserved
    )


def check_name(value: str, what: str) -> str:
    """Return `value` if it is a printable name of 1 to 200 characters; else raise ValueError."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError(f"Expected {what} to be printable text, got {value!r}.")
    if len(value) > 200:
        raise ValueError(f"Expected {what} of at most 200 characters, got {len(value)}.")
    return value


_NOT_STORED = ("contents", "rows", "reads", "insists")
_TERMS = ("certificate", "reserved_delta")
"""Keys written since accounts have certificates; an account without them keeps its old rules."""


class BudgetKey(NamedTuple):
    """The name of a budget in a ledger: the data, and the unit of privacy that it protects.

    >>> print(BudgetKey("adult", Unit.PARTY))
    'adult' (unit party)
    """

    dataset: str
    unit: Unit

    def __str__(self) -> str:
        return f"{self.dataset!r} (unit {self.unit})"


@dataclass(frozen=True, kw_only=True)
class DatasetBudget:
    """The total (ε, δ) of a data set for one unit, fixed when it is first registered.

    Data may have one budget per unit. These share name and fingerprint. A ledger charges every
    release on such data to all of their budgets, or to none (`reservations.reserve`): a release
    without a bound for one of the units would make that unit's ε untrue.

    Attributes:
        fingerprint: identifies the data (a digest, or a chosen label).
        contents: a digest of the parsed rows, which identifies data that were saved in another
            form; empty if it is unknown. It is not part of the budget: the ledger stores it
            separately (`account.BudgetAccount.known`).
        rows: `[N, 3]` digests by which rows are recognised (`parley.client.data.multiset_digest`),
            if the account continues when rows change; not part of the budget either.
        reads: the blocks that are now read; empty: all.
        epsilon, delta: totals of everything ever released on the data: ε > 0, δ in [0, 1).
        certificate: the test by which releases are admitted, from the first record on; default:
            `pure` at δ = 0, else `zcdp`.
        reserved_delta: δₐ, the part of δ that is reserved for approximations; default δ/100.
        insists: whether the certificate was chosen by name, so that no other one is accepted.
    """

    name: str
    fingerprint: str
    unit: Unit
    neighbouring: Neighbouring
    epsilon: float
    delta: float
    contents: str = field(default="", compare=False)
    rows: NDArray[np.uint64] | None = field(default=None, compare=False, repr=False)
    reads: Blocks = field(default=(), compare=False)
    certificate: AccountCertificate = None  # type: ignore[assignment]  # chosen when it is built
    reserved_delta: float = None  # type: ignore[assignment]
    insists: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        check_name(self.name, "the data set's name")
        check_name(self.fingerprint, "the data set's fingerprint")
        if self.contents:
            check_name(self.contents, "the digest of the data set's rows")
        object.__setattr__(self, "unit", Unit(self.unit))
        object.__setattr__(self, "neighbouring", Neighbouring(self.neighbouring))
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise ValueError(f"Expected a budget with finite epsilon > 0, got {self.epsilon}.")
        if not 0 <= self.delta < 1:
            raise ValueError(f"Expected a budget with delta in [0, 1), got {self.delta}.")
        usual = AccountCertificate.ZCDP if self.delta else AccountCertificate.PURE
        object.__setattr__(self, "certificate", AccountCertificate(self.certificate or usual))
        given = self.reserved_delta
        reserved = compute_reserved_delta(self.delta) if given is None else float(given)
        if not 0 <= reserved <= self.delta or (reserved == self.delta and self.delta):
            raise ValueError(f"Expected reserved-delta from 0 to below delta, got {reserved}.")
        object.__setattr__(self, "reserved_delta", reserved)

    @property
    def key(self) -> BudgetKey:
        """The key of the budget in a ledger."""
        return BudgetKey(self.name, self.unit)

    @property
    def digests(self) -> frozenset[str]:
        """Digests that together show that the same rows were read before."""
        return frozenset({self.fingerprint, self.contents} - {""})

    @property
    def reading_digest(self) -> str:
        """Digest that shows that the same blocks of the rows were read; empty without blocks."""
        if self.rows is None or not self.rows[:, 2:].any():
            return ""
        # The assignment of rows to blocks, independent of their order.
        placed = (self.rows[:, 0] * (2 * self.rows[:, 2] + 1)).sum(dtype=np.uint64)
        text = "\0".join([self.contents, str(placed), *self.reads])
        return sha256(text.encode()).hexdigest()

    @property
    def guarantee(self) -> str:
        """The budget in words, with unit and neighbouring relation."""
        return (
            f"ε = {format_exact(self.epsilon)}, δ = {format_exact(self.delta)} "
            f"(unit {self.unit}, {self.neighbouring})"
        )

    @property
    def description(self) -> str:
        """All facts about the data set in one phrase."""
        return (
            f"{self.name!r} (fingerprint {self.fingerprint}) with {self.guarantee}, certificate "
            f"{self.certificate}"
        )

    def can_admit(self, spent: Composition) -> bool:
        """Return whether the composition is within the budget, to a relative 1e-9 of ε."""
        return self.compute_epsilon(spent) <= self.epsilon * (1 + BUDGET_TOLERANCE)

    def compute_epsilon(self, spent: Composition) -> float:
        """Return the ε that `spent` uses of the budget, by its certificate; ∞ if none is enough."""
        return compute_account_epsilon(
            self.certificate,
            spent,
            epsilon=self.epsilon,
            delta=self.delta,
            reserved=self.reserved_delta,
        )

    def compute_used_delta(self, spent: Composition) -> float:
        """Return the used part of δₐ."""
        from parley.privacy.accounting.privacy_filters import compute_used_delta  # noqa: PLC0415 - likewise

        return compute_used_delta(spent, epsilon=self.epsilon, reserved=self.reserved_delta)

    def compute_next_delta(self, spent: Composition) -> float:
        """Return the δ′ of the next planned job.

        The first job gets 1/2 of δₐ, the k-th gets 1/(k·(k + 1)). These add up to δₐ, so there is
        room for any number of jobs.
        """
        left = self.reserved_delta - self.compute_used_delta(spent)
        return left * (left / (left + self.reserved_delta)) if left > 0 else 0.0

    def compute_remaining(self, spent: Composition) -> float:
        """Return ε minus what is spent, at the same δ; less than a billionth of ε counts as 0."""
        left = self.epsilon - self.compute_epsilon(spent)
        return left if left > 1e-9 * self.epsilon else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, which `from_json` reads back unchanged."""
        texts = {"unit": str(self.unit), "neighbouring": str(self.neighbouring)}
        without: tuple[str, ...] = _NOT_STORED
        if self.certificate is AccountCertificate.LOWEST_BOUND:
            without += _TERMS
        else:
            texts["certificate"] = str(self.certificate)
        return {name: v for name, v in vars(self).items() if name not in without} | texts

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Parse the result of `to_json`; budgets older than certificates have none."""
        return cls(**{"certificate": AccountCertificate.LOWEST_BOUND, **value})
