"""The noise-free sums of two neighbouring worlds, by the product's own code without its noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.privacy.accounting.guarantee import Neighbouring
from parley.privacy.sampling.randomness import Randomness
from parley.simulations.audit.audited import Audited
from parley.simulations.audit.blocks import Block
from parley.simulations.audit.neighbours import Neighbours
from parley.simulations.audit.scores import Hypotheses


def hypotheses(audited: Audited, worlds: Neighbours) -> Hypotheses:
    """What an attacker who knows every other record expects of either world."""
    inside, outside = (
        _noise_free(audited, worlds, world) for world in (worlds.inside, worlds.outside)
    )
    apart = audited.guarantee.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE
    shown = int(np.argmax(worlds.weights))
    apart_by = inside - outside
    return Hypotheses(
        inside=inside,
        outside=outside,
        base=outside if apart else (inside + outside) / 2,
        # In a round that hides the canary, the way that it would have pulled.
        towards=np.where(worlds.weights[:, None] < 0, apart_by[shown], apart_by),
        scale=audited.charged.mechanism.scale * unit_scale(audited),
        mechanism=audited.charged.mechanism,
        taken=1 / audited.sampling_rate if audited.before_server else 1.0,
        weights=worlds.weights,
    )


def reach(audited: Audited, given: Hypotheses) -> float | None:
    """‖f(D) − f(D′)‖/Δ: how much of the sensitivity the canaries use, the grid's share included.

    None where noise is not added to what the records say, but inside an objective.
    """
    mechanism = audited.charged.mechanism
    if mechanism.objective is not None:
        return None
    steps = mechanism.training
    # Of a training: all records were taken, in each of the steps; a contribution is divided by q.
    taken = 1.0 if steps is None else steps.sampling_rate * steps.steps
    moved, sensitivity = given.distance, mechanism.sensitivity
    if mechanism.bound_l1 is not None:
        moved, sensitivity = given.distance_l1, mechanism.bound_l1
    return moved / (sensitivity * unit_scale(audited) * taken)


def unit_scale(audited: Audited) -> float:
    """One unit of the mechanism's scale, in that of a contribution."""
    steps = audited.charged.mechanism.training
    if steps is not None:
        training: Any = getattr(audited.algorithm, "training")  # noqa: B009 - a network's alone
        # v = −η·(sum)/(q·n); here for all records, q is left to the score.
        records = audited.shape.records
        return float(training.learning_rate / (steps.sampling_rate * records))
    return 1 / audited.charged.units(2.0**audited.plan.encoding.scale_bits)


def _noise_free(audited: Audited, worlds: Neighbours, world: Block) -> NDArray[np.float64]:
    """`[T, d]`: sums of what the parties contribute, without noise, at the state of each round."""
    algorithm = audited.answer.quiet(audited.algorithm)
    sums = []
    for number in range(1, audited.sums + 1):
        state = worlds.start if worlds.sent is None else worlds.sent(number)
        plan = audited.plan_of(number)
        values = algorithm.local(state, world, plan, Randomness.from_entropy()).values
        if plan.weights == "size":
            values = values * (world.sizes / plan.mean_records)[:, None]
        total = values[: audited.summed].sum(axis=0)
        # A released count of clipped gradients is left to the noise.
        sums.append(np.pad(total, (0, plan.dimension - total.size)))
    return np.stack(sums)
