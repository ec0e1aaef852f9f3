"""Run trials and reduce them to an attacker's observations: a score each, and the noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.audit.noise_scale import Residuals
from parley.privacy.sampling.random_stream import Randomness
from parley.simulations.audit.attack_scores import (
    Hypotheses,
    Scores,
    get_noise_scoring,
    get_sampling_rate,
    score_releases,
)
from parley.simulations.audit.audit_job_shrinking import HIDDEN
from parley.simulations.audit.audit_target import AuditTarget
from parley.simulations.audit.canary_pool import Block
from parley.simulations.audit.neighbouring_worlds import NeighbouringWorlds, count_hidden_layers
from parley.simulations.audit.world_batch import WorldRandomness, simulate_releases

_KEPT = 1 << 18
"""Number of residual values that are stored for tests of their shape."""

_UNUSED = 2
"""Number of features that a canary or the state uses: all others contain only noise."""

_FINE = 2.0**10
"""Minimum number of grid steps per scale of the noise."""


def build_hypotheses(target: AuditTarget, worlds: NeighbouringWorlds) -> Hypotheses:
    """Return what an attacker who knows every other record expects of either trial."""
    inside, outside = (
        _compute_noise_free(target, worlds, world) for world in (worlds.inside, worlds.outside)
    )
    apart = target.guarantee.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE
    shown, mechanism = int(np.argmax(worlds.weights)), target.charged.mechanism
    apart_by = inside - outside
    return Hypotheses(
        inside=inside,
        outside=outside,
        base=outside if apart else (inside + outside) / 2,
        # In a round that hides the canary, use the direction in which it would have pulled.
        difference=np.where(worlds.weights[:, None] < 0, apart_by[shown], apart_by),
        scale=mechanism.scale * compute_unit_scale(target),
        mechanism=mechanism,
        sampling_rate=1 / get_sampling_rate(mechanism) if target.before_server else 1.0,
        weights=worlds.weights,
    )


def compute_reach(target: AuditTarget, hypotheses: Hypotheses) -> float | None:
    """Return ‖f(D) − f(D′)‖/Δ: the share of the sensitivity that the canaries use, with the grid's
    part.

    It is None if noise is inside an objective, and not added to the parties' values.
    """
    mechanism = target.charged.mechanism
    if mechanism.objective is not None:
        return None
    steps = mechanism.training
    # In a training, all records were in each of the steps; a contribution is divided by q.
    taken = 1.0 if steps is None else steps.sampling_rate * steps.steps
    moved, sensitivity = hypotheses.distance, mechanism.sensitivity
    if mechanism.bound_l1 is not None:
        moved, sensitivity = hypotheses.distance_l1, mechanism.bound_l1
    return moved / (sensitivity * compute_unit_scale(target) * taken)


def compute_unit_scale(target: AuditTarget) -> float:
    """Return one unit of the mechanism's scale, in that of a contribution."""
    steps = target.charged.mechanism.training
    if steps is not None:
        training: Any = getattr(target.algorithm, "training")  # noqa: B009 - a network's alone
        # v = −η·(sum)/(q·n), here for all records; the score accounts for q.
        return float(training.learning_rate / (steps.sampling_rate * target.shape.records))
    return 1 / target.charged.compute_unit_scale(2.0**target.plan.encoding.scale_bits)


def _compute_noise_free(
    target: AuditTarget, worlds: NeighbouringWorlds, world: Block
) -> NDArray[np.float64]:
    """Return `[T, d]`: noise-free sums of the parties' contributions, at each round's state."""
    algorithm = target.response.remove_noise(target.algorithm)
    sums = []
    for number in range(1, target.sums + 1):
        state = worlds.start if worlds.get_sent_state is None else worlds.get_sent_state(number)
        plan = target.get_plan(number)
        given = algorithm.local(state, world, plan, Randomness.from_entropy())
        total = given.apply_weights(plan, world.sizes)[: target.summed].sum(axis=0)
        # A released count of clipped gradients is left to the noise.
        sums.append(np.pad(total, (0, plan.dimension - total.size)))
    return np.stack(sums)


@dataclass(frozen=True, kw_only=True)
class ObservedWorlds:
    """Observations of many trials.

    Attributes:
        scores: `[n]`, of each.
        residuals: size of the noise, in units of the claimed scale; None if no noise is observable.
        residual_vectors: `[k, r]` the first residual vectors, in units of the claimed scale.
    """

    scores: Scores
    residuals: Residuals | None = None
    residual_vectors: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 1)))


Pair = tuple[ObservedWorlds, ObservedWorlds]
"""Observations of trials with the canary, and of trials without."""


def run_worlds(
    target: AuditTarget,
    worlds: NeighbouringWorlds,
    hypotheses: Hypotheses,
    *,
    inside: bool,
    count: int,
    source: WorldRandomness,
) -> ObservedWorlds:
    """Run `count` trials and return what an attacker computes from them."""
    scores, done = np.empty(count), 0
    kept: list[NDArray[np.float64]] = []
    total: Residuals | None = None
    values = 0
    for released in simulate_releases(target, worlds, inside=inside, count=count, source=source):
        scores[done : done + len(released)] = score_releases(released, hypotheses)
        done += len(released)
        bare = _compute_residuals(target, hypotheses, released, inside=inside)
        if bare is None:
            continue
        own = Residuals.of(get_noise_scoring(hypotheses.mechanism).shape, bare)
        total = own if total is None else total + own
        if values < _KEPT:
            kept.append(bare[: max(1, (_KEPT - values) // bare.shape[1])])
            values += kept[-1].size
    return ObservedWorlds(
        scores=scores,
        residuals=total,
        residual_vectors=np.concatenate(kept) if kept else np.empty((0, 1)),
    )


def has_bare_noise(target: AuditTarget) -> bool:
    """Return whether the attacker sees coordinates of only the charged noise, at its scale."""
    steps = target.charged.mechanism.training
    if steps is not None and (steps.clipped_share or steps.attendance < 1):
        return False  # An absent party has no noise.
    # Shares of more parties than are charged add up to more noise, with another shape.
    if target.against is not target.charged.against:
        return False
    if target.charged.mechanism.objective is not None or target.records is not None:
        return False  # It is not added to what the attacker sees.
    if not target.trains_with_draws:
        # On a coarser grid the noise is not continuous: counts get whole numbers.
        return target.charged.mechanism.scale >= _FINE
    if target.unit is not Unit.RECORD or target.shape.features <= _UNUSED:
        return False
    # A contribution with a party's own noise may also have its share of the sum's noise. If the
    # sum's noise is charged, the party's own is there too.
    mechanism = target.charged.mechanism
    alone = mechanism.training is not None and target.plan.shared_guarantee is None
    return (alone and not _is_clipped_later(target)) or mechanism.sampled is not None


def _is_clipped_later(target: AuditTarget) -> bool:
    """Return whether clipping the whole update, with unit both, may cut noise inside a party."""
    algorithm: Any = target.algorithm
    training = algorithm.training
    steps = training.steps * target.plan.parameters
    spread = compute_unit_scale(target) * target.charged.mechanism.scale / training.sampling_rate
    return bool(algorithm.both and 2 * spread * steps**0.5 > algorithm.update_bound)


def _compute_residuals(
    target: AuditTarget, hypotheses: Hypotheses, released: NDArray[np.float64], *, inside: bool
) -> NDArray[np.float64] | None:
    """Return `[W·T, r]` only noise, in units of the claimed scale.

    If batches are sampled, it is that of the coordinates that no record moves: features that none
    has.
    """
    if not has_bare_noise(target):
        return None
    if not target.trains_with_draws:
        expected = hypotheses.inside if inside else hypotheses.outside
        bare = (released - expected) / hypotheses.scale
        return bare.reshape(-1, bare.shape[-1])
    steps, features = hypotheses.mechanism.training, target.shape.features
    units = HIDDEN if count_hidden_layers(target) else 2
    columns = [row * features + at for row in range(units) for at in range(_UNUSED, features)]
    # Only one contribution of several steps inside a party is visible.
    inside_party = 1 if steps is None else steps.steps
    bare = released[:, :, columns] / (hypotheses.scale * inside_party**0.5)
    return np.asarray(bare.reshape(-1, len(columns)))
