"""The facts of one release, as a ledger keeps them.

An entry says everything that is needed to recompute its charge (§4 of the privacy
specification: mechanism, unit, neighbouring relation, public n, norm, Δ, G or C, λ convention, τ
or step certificate, grid and inflation, noise law and parameter, honest threshold, q and sampler,
accountant and version). `FACTS` is the table of these keys; the survivors of the round, known only
after it, belong to the outcome.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from parley.privacy.accounting.events import Event, parse_event
from parley.privacy.ledger.budget import checked_name
from parley.privacy.ledger.chain import canonical_json, checked_json

__all__ = ["FACTS", "Entry", "Fact"]


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One key of an entry's facts: what it means, what it must be, whether it must be there."""

    meaning: str
    expected: str
    holds: Callable[[object], bool]
    required: bool = False


def _text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _fact(meaning: str, kind: Callable[[object], bool], *, required: bool = False) -> Fact:
    return Fact(meaning=meaning, expected=_EXPECTED[kind], holds=kind, required=required)


def _rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _object(value: object) -> bool:
    return isinstance(value, Mapping)


_EXPECTED: dict[Callable[[object], bool], str] = {
    _text: "text",
    _number: "a number ≥ 0",
    _count: "a whole number ≥ 1",
    _rate: "a number in (0, 1]",
    _flag: "true or false",
    _object: "an object",
}

FACTS: Mapping[str, Fact] = MappingProxyType(
    {
        "mechanism": _fact("what was released", _text, required=True),
        "unit": _fact("the unit of privacy", _text, required=True),
        "neighbouring": _fact("the neighbouring relation", _text, required=True),
        "norm": _fact("the norm of the sensitivity", _text, required=True),
        "sensitivity": _fact(
            "Δ in that norm, of the sum or mean that is noised", _number, required=True
        ),
        "noise_law": _fact("the noise law", _text, required=True),
        "noise_parameter": _fact("its parameter: σ, b or t", _number, required=True),
        "accountant": _fact("what composed and converted", _text, required=True),
        "accountant_version": _fact("its version", _text, required=True),
        "noise_point": _fact("where the noise was added", _text),
        "seeded": _fact("whether the noise came from a seed (simulation)", _flag),
        "calibration": _fact("how the noise was scaled to the budget", _text),
        "dimension": _fact("d", _count),
        "parties": _fact("m", _count),
        "public_n": _fact("the public number of records, n₍₁₎ or N", _count),
        "total_records": _fact("N, the public total, which sets Δ with weights by size", _count),
        "weights": _fact("uniform or size", _text),
        "lipschitz": _fact("G, where the loss bounds the gradient", _number),
        "clip_norm": _fact("C, where clipping does", _number),
        "lambda": _fact("the regularisation λ", _number),
        "lambda_convention": _fact("(λ/2)‖θ‖² or λ‖θ‖²", _text),
        "gradient_tolerance": _fact("τ, the certified gradient norm", _number),
        "step_certificate": _fact("steps and rate, where those bound Δ", _object),
        "grid_scale": _fact("s, grid units per model unit", _number),
        "grid_inflation": _fact("how much the grid grew Δ, relative", _number),
        "min_survivors": _fact("the least number of contributions whose sum is opened", _count),
        "honest_threshold": _fact("min_survivors in ledgers of Parley 0.1.0", _count),
        "sampling_rate": _fact("q", _rate),
        "sampler": _fact("how records were sampled", _text),
        "clipped_share": _fact(
            "share of 1/σ² for a count of clipped gradients, released too", _rate
        ),
        "bound": _fact("which bound is charged, where more than one is proved", _text),
    }
)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One release to be charged. `(run_id, dataset, index)` names it.

    Attributes:
        run_id: the run that releases.
        dataset: the name of a registered data set.
        party: who releases: a party's name, or `"server"` for the sum.
        index: which release of the run on this data set; rounds count from 1.
        event: what it charges.
        facts: keys of `FACTS`, plain JSON values; the required ones must be there.

    Raises:
        ValueError: a fact is unknown (the nearest known one is named), missing or of another type.
    """

    run_id: str
    dataset: str
    party: str
    index: int
    event: Event
    facts: Mapping[str, Any]

    def __post_init__(self) -> None:
        checked_name(self.run_id, "run_id")
        checked_name(self.dataset, "dataset")
        checked_name(self.party, "party")
        if not isinstance(self.index, int) or isinstance(self.index, bool) or self.index < 0:
            raise ValueError(f"Expected index to be a whole number ≥ 0, got {self.index!r}.")
        for key, value in self.facts.items():
            if key not in FACTS:
                near = difflib.get_close_matches(str(key), FACTS, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else "."
                raise ValueError(f"Expected a known fact, got {key!r}{hint}")
            checked_json(value, f"facts.{key}")
            if not FACTS[key].holds(value):
                raise ValueError(
                    f"Expected facts.{key} to be {FACTS[key].expected}, got {value!r}."
                )
        missing = [key for key, fact in FACTS.items() if fact.required and key not in self.facts]
        if missing:
            raise ValueError(f"Expected the facts {', '.join(missing)}, which are missing.")
        frozen = json.loads(canonical_json(dict(self.facts)))
        object.__setattr__(self, "facts", MappingProxyType(frozen))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives the same entry back."""
        return {
            "run_id": self.run_id,
            "dataset": self.dataset,
            "party": self.party,
            "index": self.index,
            "event": self.event.to_json(),
            "facts": dict(self.facts),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(**{**value, "event": parse_event(value["event"])})
