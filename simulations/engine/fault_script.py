"""Parse scripts of simulated faults: parties that drop out or decline, by a seed.

    >>> faults = parse_faults("drop:0.2, decline:0.1@3-5")
    >>> faults.sample_faults(round_number=1, attempt=0, parties=10).declined.tolist()
    []
    >>> len(faults.sample_faults(round_number=3, attempt=0, parties=10).declined)
    1

A script is a comma-separated list of `kind:fraction[@stage][@rounds]`. The kinds are `drop` (a
party becomes silent) and `decline` (it answers that it will not take part). Stages of `drop` are
`before-vector`, `after-vector`, `before-unmask`, or each of them in turn if none is named.
`fraction` is of all parties, rounded to the nearest whole number. `rounds` is `a` or `a-b`; 0 is a
release ahead of the rounds (private components). A rule without rounds holds for all of them. The
choice depends only on the seed, the round and the attempt.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.interface import DropStage

_STAGES: Final = {stage.value: stage for stage in DropStage}
_RULE: Final = re.compile(
    r"(?P<kind>drop|decline):(?P<fraction>[0-9.]+)(?:@(?P<stage>[a-z][a-z-]+))?"
    r"(?:@(?P<first>\d+)(?:-(?P<last>\d+))?)?"
)


class FaultScriptError(ValueError):
    """A fault script that cannot be parsed."""


@dataclass(frozen=True, kw_only=True)
class Faults:
    """The faults of one round.

    Attributes:
        declined: indices of the parties that decline.
        dropped: party index → the stage at which it becomes silent.
    """

    declined: NDArray[np.int64]
    dropped: dict[int, DropStage]


_NOBODY = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class _Rule:
    kind: str
    fraction: float
    stage: DropStage | None
    first: int
    last: float


@dataclass(frozen=True, kw_only=True)
class FaultScript:
    """A parsed script with its seed."""

    rules: tuple[_Rule, ...]
    seed: int = 0

    @property
    def max_fraction(self) -> float:
        """Largest fraction of the parties that any round can lose."""
        return min(1.0, sum(rule.fraction for rule in self.rules))

    def sample_faults(self, *, round_number: int, attempt: int, parties: int) -> Faults:
        """Sample the faults of one attempt at one round among `parties` parties."""
        if not self.rules:
            return Faults(declined=_NOBODY, dropped={})
        rng = np.random.default_rng([self.seed, round_number, attempt])
        order = rng.permutation(parties)
        declined: list[int] = []
        dropped: dict[int, DropStage] = {}
        for rule in self.rules:
            if not rule.first <= round_number <= rule.last:
                continue
            take = min(round(rule.fraction * parties), len(order))
            chosen, order = order[:take], order[take:]
            if rule.kind == "decline":
                declined.extend(chosen.tolist())
            else:
                stages = [rule.stage] if rule.stage else list(DropStage)
                dropped |= {int(p): stages[i % len(stages)] for i, p in enumerate(chosen)}
        return Faults(declined=np.array(sorted(declined), dtype=np.int64), dropped=dropped)


def parse_faults(script: str, *, seed: int = 0) -> FaultScript:
    """Parse a fault script; the empty one has no faults.

    Raises:
        FaultScriptError: a rule that is not `kind:fraction[@stage][@rounds]`.
    """
    rules = []
    for text in filter(None, (part.strip() for part in script.split(","))):
        match = _RULE.fullmatch(text)
        if match is None:
            raise FaultScriptError(
                "Expected run.faults like 'drop:0.2', 'drop:0.1@before-vector' or "
                f"'decline:0.1@3-5', got {text!r}."
            )
        try:
            fraction = float(match["fraction"])
        except ValueError:
            fraction = math.nan
        if not 0 <= fraction <= 1:
            raise FaultScriptError(f"Expected a fraction in [0, 1] in {text!r}.")
        stage = match["stage"]
        if stage is not None and match["kind"] == "decline":
            raise FaultScriptError(
                "Expected no stage with decline, because a declining party sends nothing; got "
                f"{text!r}."
            )
        if match["last"] and int(match["last"]) < int(match["first"]):
            raise FaultScriptError(f"Expected rounds from low to high, got {text!r}.")
        if stage is not None and stage not in _STAGES:
            raise FaultScriptError(f"Expected a stage of {', '.join(_STAGES)} in {text!r}.")
        first = int(match["first"] or 0)
        last = int(match["last"]) if match["last"] else (first if match["first"] else math.inf)
        rules.append(
            _Rule(
                kind=match["kind"],
                fraction=fraction,
                stage=_STAGES[stage] if stage else None,
                first=first,
                last=last,
            )
        )
    return FaultScript(rules=tuple(rules), seed=seed)
