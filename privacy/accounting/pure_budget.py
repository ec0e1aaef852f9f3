"""A budget of pure ε for questions to one data set: check, then deduct, exactly.

Amounts are decimals, kept as rationals: no float error adds up. The data set may be partitioned
into disjoint parts; a question to one part costs that part only, and what is spent is the greatest
part's (parallel composition: McSherry 2009, Theorem 4; add-or-remove-one neighbours, since
replacing a record may touch two parts), plus what was asked of the whole.

    >>> budget = PureBudget.of("1").spend("0.01").spend("0.10")
    >>> budget.left()
    Fraction(89, 100)
    >>> budget.spend("1.00")
    Traceback (most recent call last):
    parley.privacy.accounting.pure_budget.OverBudgetError: Expected epsilon ≤ 0.89 left, got 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType

from parley.privacy.accounting.rounding import exact, shown_down, shown_up

__all__ = ["Amount", "OverBudgetError", "PureBudget"]

Amount = str | int | float | Decimal | Fraction
"""An ε; a float stands for the decimal it prints as."""


class OverBudgetError(ValueError):
    """The question costs more than is left. Nothing was deducted, and it must not be answered."""


@dataclass(frozen=True, kw_only=True)
class PureBudget:
    """A total and what was spent of it. `spend` gives the budget after a question.

    Attributes:
        total: ε of everything together.
        whole: spent on questions to all records.
        parts: spent on each part, by its name.
    """

    total: Fraction
    whole: Fraction = Fraction(0)
    parts: Mapping[str, Fraction] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, total: Amount) -> PureBudget:
        """An untouched budget. Raises ValueError unless total > 0."""
        return cls(total=_positive(total))

    def left(self, part: str | None = None) -> Fraction:
        """What a question to this part, or to all records, may still cost."""
        if part is None:
            return self.total - self.whole - max(self.parts.values(), default=Fraction(0))
        return self.total - self.whole - self.parts.get(part, Fraction(0))

    def spend(self, epsilon: Amount, part: str | None = None) -> PureBudget:
        """The budget after a question at ε to one part, or to all records.

        Raises:
            OverBudgetError: ε is more than is left.
            ValueError: ε is not a positive number.
        """
        cost, left = _positive(epsilon), self.left(part)
        if cost > left:
            raise OverBudgetError(
                f"Expected epsilon ≤ {shown_down(float(left))} left, got {shown_up(float(cost))}."
            )
        if part is None:
            return replace(self, whole=self.whole + cost)
        spent = self.parts.get(part, Fraction(0)) + cost
        return replace(self, parts=MappingProxyType({**self.parts, part: spent}))


def _positive(amount: Amount) -> Fraction:
    try:
        value = exact(amount) if isinstance(amount, float) else Fraction(amount)
    except (ValueError, TypeError, OverflowError, ZeroDivisionError):
        raise ValueError(f"Expected a number, got {amount!r}.") from None
    if value <= 0:
        raise ValueError(f"Expected epsilon > 0, got {amount}.")
    return value
