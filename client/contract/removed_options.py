"""Keys of job and policy files that have only one value left.

Older files still contain them. The remaining value is accepted. Any other value is refused with the
reason, so that a run never protects less than its file states.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator


def _require(expected: Any, reason: str) -> BeforeValidator:
    """Return a validator that accepts only `expected`."""

    def check(value: Any) -> Any:
        if value != expected or type(value) is not type(expected):
            both = (expected, value)
            kept, got = (str(v).lower() if isinstance(v, bool) else repr(v) for v in both)
            remedy = f"Delete the key or write {kept}"
            raise ValueError(f"Expected {kept}, got {got}. {reason} {remedy}.")
        return value

    return BeforeValidator(check)


Dropouts = Annotated[
    Literal["robust"],
    _require("robust", "Optimistic rounds were removed: a single dropout voided the round."),
]
ConfirmSurvivors = Annotated[
    Literal[True],
    _require(
        True,
        "Unconfirmed rounds were removed: a lying server could have two sums opened and learn "
        "their difference.",
    ),
]
KeyExchange = Annotated[
    Literal["hybrid"],
    _require(
        "hybrid",
        "X25519 without ML-KEM-768 was removed: recorded traffic could be read later with a "
        "quantum computer.",
    ),
]
