"""The facts of a release that a ledger stores: `FACTS` is the table of their keys.

They contain everything that is needed to recompute a charge (§4 of the privacy specification:
mechanism, unit, neighbouring relation, public n, norm, Δ, G or C, λ convention, τ or step
certificate, grid and inflation, noise law and parameter, honest threshold, q and sampler,
accountant and version). The event next to them is what is charged: no ε depends on how the facts
are read.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from parley.privacy.accounting.threat_model import Adversary, Unit
from parley.privacy.ledger.hash_chain import check_json


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _is_whole(value: object, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _is_account_list(value: object) -> bool:
    """Return whether it lists accounts of distinct adversaries, one of them charged, or none."""
    if not isinstance(value, list) or not all(_is_account(each) for each in value):
        return False
    adversaries = {each["adversary"] for each in value}
    charged = [each["charged"] for each in value].count(True)
    return len(adversaries) == len(value) and charged == min(1, len(value))


def _is_account(value: object) -> bool:
    names = {"adversary", "charged", "epsilon", "delta"}
    if not isinstance(value, Mapping) or value.keys() != names:
        return False
    adversary, epsilon, delta = value["adversary"], value["epsilon"], value["delta"]
    return (
        isinstance(adversary, str)
        and adversary in set(Adversary)
        and isinstance(value["charged"], bool)
        and (_is_number(epsilon) or (epsilon is None and not value["charged"]))
        and _is_number(delta)
        and delta < 1
    )


@dataclass(frozen=True)
class _FactKind:
    expected: str
    is_valid: Callable[[Any], bool]


_TEXT = _FactKind("text", lambda value: isinstance(value, str) and value != "")
_NUMBER = _FactKind("a number ≥ 0", _is_number)
_COUNT = _FactKind("a whole number ≥ 1", lambda value: _is_whole(value, 1))
_WHOLE = _FactKind("a whole number ≥ 0", lambda value: _is_whole(value, 0))
_RATE = _FactKind("a number in (0, 1]", lambda value: _is_number(value) and 0 < value <= 1)
_FLAG = _FactKind("true or false", lambda value: isinstance(value, bool))
_OBJECT = _FactKind("an object", lambda value: isinstance(value, Mapping))
_TEXTS = _FactKind(
    "a list of texts", lambda value: isinstance(value, list) and all(map(_TEXT.is_valid, value))
)
_UNIT = _FactKind(" or ".join(Unit), lambda value: isinstance(value, str) and value in set(Unit))
_ACCOUNTS = _FactKind(
    f"a list of objects with adversary ({', '.join(Adversary)}, each once), charged, epsilon "
    "(or null: no bound) and delta, one of them charged",
    _is_account_list,
)


_REQUIRED: dict[str, tuple[str, _FactKind]] = {
    "mechanism": ("what was released", _TEXT),
    "unit": ("the unit of privacy", _UNIT),
    "neighbouring": ("the neighbouring relation", _TEXT),
    "norm": ("the norm of the sensitivity", _TEXT),
    "sensitivity": ("Δ in that norm, of the sum or mean that is noised", _NUMBER),
    "noise_law": ("the noise law", _TEXT),
    "noise_parameter": ("its parameter: σ, b or t", _NUMBER),
    "accountant": ("software that composed and converted", _TEXT),
    "accountant_version": ("its version", _TEXT),
}


FACTS: dict[str, tuple[str, _FactKind]] = _REQUIRED | {
    "sensitivity_l1": ("Δ₁ of the same, if the noise is scaled to it", _NUMBER),
    "noise_point": ("where the noise was added", _TEXT),
    "honest_shares": ("k, shares of the noise that are charged", _COUNT),
    "colluders": ("c, parties that may give their share to the server", _WHOLE),
    "share_parameter": ("parameter of one share of the noise: σ, b or t", _NUMBER),
    "summed_shares": ("r, shares in a sum with the minimum number of survivors", _COUNT),
    "seeded": ("whether the noise came from a seed (simulation)", _FLAG),
    "calibration": ("how the noise was scaled to the budget", _TEXT),
    "dimension": ("d", _COUNT),
    "parties": ("m", _COUNT),
    "public_n": ("the public number of records, n₍₁₎ or N", _COUNT),
    "total_records": ("N, the public total, which sets Δ with weights by size", _COUNT),
    "weights": ("uniform or size", _TEXT),
    "lipschitz": ("G, if the loss bounds the gradient", _NUMBER),
    "clip_norm": ("C, if clipping bounds the gradient", _NUMBER),
    "objective_epsilon": ("ε of noise inside the parties' objectives", _NUMBER),
    "lambda": ("the regularisation λ", _NUMBER),
    "lambda_convention": ("(λ/2)‖θ‖² or λ‖θ‖²", _TEXT),
    "gradient_tolerance": ("τ, the certified gradient norm", _NUMBER),
    "step_certificate": ("steps and rate, if those bound Δ", _OBJECT),
    "grid_scale": ("s, grid units per model unit", _NUMBER),
    "grid_inflation": ("how much the grid grew Δ, relative", _NUMBER),
    "min_survivors": ("minimum number of contributions in an opened sum", _COUNT),
    "sampling_rate": ("q", _RATE),
    "sampler": ("how records were sampled", _TEXT),
    "clipped_share": ("share of 1/σ² for a released count of clipped gradients", _RATE),
    "bound": ("which bound is charged, if more than one is proved", _TEXT),
    # For noise that parties add in shares, adversaries differ in the noise they cannot subtract,
    # and so do the accounts of the release. The entry's event is that of the charged account.
    "accounts": ("ε and δ of this one release, by adversary", _ACCOUNTS),
    "assumptions": ("assumptions of the ε beyond its proof", _TEXTS),
}
"""Key of an entry's facts → its meaning, and its type."""


def check_facts(facts: Mapping[str, Any]) -> None:
    """Raise ValueError if a fact is missing, unknown, or of another type."""
    for key, value in facts.items():
        if key not in FACTS:
            near = difflib.get_close_matches(str(key), FACTS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise ValueError(f"Expected a known fact, got {key!r}{hint}")
        check_json(value, f"facts.{key}")
        _, kind = FACTS[key]
        if not kind.is_valid(value):
            raise ValueError(f"Expected facts.{key} to be {kind.expected}, got {value!r}.")
    missing = [key for key in _REQUIRED if key not in facts]
    if missing:
        raise ValueError(f"Expected the facts {', '.join(missing)}, which are missing.")
