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
from parley.privacy.accounting.guarantee import Adversary, Unit
from parley.privacy.ledger.budget import BudgetKey, checked_name
from parley.privacy.ledger.chain import canonical_json, checked_json


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


def _unit(value: object) -> bool:
    return isinstance(value, str) and value in set(Unit)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _accounts(value: object) -> bool:
    """Whether it lists accounts, one an adversary, of which one is charged unless it is empty."""
    if not isinstance(value, list) or not all(_account(each) for each in value):
        return False
    adversaries = {each["adversary"] for each in value}
    charged = [each["charged"] for each in value].count(True)
    return len(adversaries) == len(value) and charged == min(1, len(value))


def _account(value: object) -> bool:
    if not isinstance(value, Mapping) or value.keys() != _ACCOUNT:
        return False
    adversary, epsilon, delta = value["adversary"], value["epsilon"], value["delta"]
    return (
        isinstance(adversary, str)
        and adversary in set(Adversary)
        and _flag(value["charged"])
        and (_number(epsilon) or (epsilon is None and not value["charged"]))
        and _number(delta)
        and delta < 1
    )


_ACCOUNT = {"adversary", "charged", "epsilon", "delta"}


_EXPECTED: dict[Callable[[object], bool], str] = {
    _text: "text",
    _number: "a number ≥ 0",
    _count: "a whole number ≥ 1",
    _rate: "a number in (0, 1]",
    _flag: "true or false",
    _object: "an object",
    _unit: " or ".join(Unit),
    _whole: "a whole number ≥ 0",
    _accounts: (
        f"a list of objects with adversary ({', '.join(Adversary)}, each once), charged, epsilon "
        "(or null: no bound) and delta, one of them charged"
    ),
}

FACTS: Mapping[str, Fact] = MappingProxyType(
    {
        "mechanism": _fact("what was released", _text, required=True),
        "unit": _fact("the unit of privacy", _unit, required=True),
        "neighbouring": _fact("the neighbouring relation", _text, required=True),
        "norm": _fact("the norm of the sensitivity", _text, required=True),
        "sensitivity": _fact(
            "Δ in that norm, of the sum or mean that is noised", _number, required=True
        ),
        "sensitivity_l1": _fact("Δ₁ of the same, where the noise is scaled to it", _number),
        "noise_law": _fact("the noise law", _text, required=True),
        "noise_parameter": _fact("its parameter: σ, b or t", _number, required=True),
        "accountant": _fact("what composed and converted", _text, required=True),
        "accountant_version": _fact("its version", _text, required=True),
        "noise_point": _fact("where the noise was added", _text),
        "honest_shares": _fact("k, shares of the noise that are charged", _count),
        "colluders": _fact("c, parties that may give their share to the server", _whole),
        "share_parameter": _fact("of one share of the noise: σ, b or t", _number),
        "summed_shares": _fact("r, shares in a sum of the least number of survivors", _count),
        "seeded": _fact("whether the noise came from a seed (simulation)", _flag),
        "calibration": _fact("how the noise was scaled to the budget", _text),
        "dimension": _fact("d", _count),
        "parties": _fact("m", _count),
        "public_n": _fact("the public number of records, n₍₁₎ or N", _count),
        "total_records": _fact("N, the public total, which sets Δ with weights by size", _count),
        "weights": _fact("uniform or size", _text),
        "lipschitz": _fact("G, where the loss bounds the gradient", _number),
        "clip_norm": _fact("C, where clipping does", _number),
        "objective_epsilon": _fact("ε of noise inside the parties' objectives", _number),
        "lambda": _fact("the regularisation λ", _number),
        "lambda_convention": _fact("(λ/2)‖θ‖² or λ‖θ‖²", _text),
        "gradient_tolerance": _fact("τ, the certified gradient norm", _number),
        "step_certificate": _fact("steps and rate, where those bound Δ", _object),
        "grid_scale": _fact("s, grid units per model unit", _number),
        "grid_inflation": _fact("how much the grid grew Δ, relative", _number),
        "min_survivors": _fact("the least number of contributions whose sum is opened", _count),
        "sampling_rate": _fact("q", _rate),
        "sampler": _fact("how records were sampled", _text),
        "clipped_share": _fact(
            "share of 1/σ² for a count of clipped gradients, released too", _rate
        ),
        "bound": _fact("which bound is charged, where more than one is proved", _text),
        # Noise that parties add in shares: what each adversary can't subtract differs, and so do
        # the accounts of the release. The entry's event is the charged one's.
        "accounts": _fact("ε and δ of this one release, by adversary", _accounts),
    }
)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One release to be charged to one budget. Run, dataset, unit and index name it.

    Attributes:
        run_id: the run that releases.
        dataset: the name of a data set that has a budget for the unit in `facts`.
        party: who releases: a party's name, or `"server"` for the sum.
        index: which release of the run; rounds count from 1.
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

    @property
    def key(self) -> BudgetKey:
        """The budget that is charged: the data's, for the unit that the facts name."""
        return BudgetKey(self.dataset, Unit(self.facts["unit"]))

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
