"""Worlds as an attacker expects them, without noise, and sees them: a score each, and the noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.audit.noise_scale import Residuals
from parley.privacy.sampling.random_stream import Randomness
from parley.simulations.audit.attack_scores import Hypotheses, Scores, law_of, sampling_rate, score
from parley.simulations.audit.audit_target import Audited
from parley.simulations.audit.canary_pool import Block
from parley.simulations.audit.federation_templates import HIDDEN
from parley.simulations.audit.neighbouring_worlds import Neighbours, hidden_layers
from parley.simulations.audit.world_batch import Source, releases

_KEPT = 1 << 18
"""Residual values that are kept for tests of their shape."""

_UNUSED = 2
"""Features that a canary or the state uses: those beyond move with nothing but noise."""

_FINE = 2.0**10
"""Steps of the grid in one of the noise's scale."""


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
        taken=1 / sampling_rate(audited.charged.mechanism) if audited.before_server else 1.0,
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
        given = algorithm.local(state, world, plan, Randomness.from_entropy())
        values = given.weighed(plan, world.sizes)
        total = values[: audited.summed].sum(axis=0)
        # A released count of clipped gradients is left to the noise.
        sums.append(np.pad(total, (0, plan.dimension - total.size)))
    return np.stack(sums)


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What is kept of many worlds.

    Attributes:
        scores: `[n]`, of each.
        residuals: the noise's size, in units of the claimed scale; None where none is bare.
        kept: `[k, r]` the first residual vectors, in units of the claimed scale.
    """

    scores: Scores
    residuals: Residuals | None = None
    kept: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 1)))


Pair = tuple[Observed, Observed]
"""Of worlds with the canary, and of worlds without."""


def observe(
    audited: Audited,
    worlds: Neighbours,
    given: Hypotheses,
    *,
    inside: bool,
    count: int,
    source: Source,
) -> Observed:
    """Runs `count` worlds and keeps what an attacker computes of them."""
    scores, done = np.empty(count), 0
    kept: list[NDArray[np.float64]] = []
    total: Residuals | None = None
    values = 0
    for released in releases(audited, worlds, inside=inside, count=count, source=source):
        scores[done : done + len(released)] = score(released, given)
        done += len(released)
        bare = _residuals(audited, given, released, inside=inside)
        if bare is None:
            continue
        own = Residuals.of(law_of(given.mechanism).shape, bare)
        total = own if total is None else total + own
        if values < _KEPT:
            kept.append(bare[: max(1, (_KEPT - values) // bare.shape[1])])
            values += kept[-1].size
    return Observed(
        scores=scores,
        residuals=total,
        kept=np.concatenate(kept) if kept else np.empty((0, 1)),
    )


def bare_noise(audited: Audited) -> bool:
    """Whether what is seen has coordinates of the charged noise alone, at its own scale."""
    steps = audited.charged.mechanism.training
    if steps is not None and (steps.clipped_share or steps.attendance < 1):
        return False  # an absent party has no noise
    # With shares of more parties than are charged for, there is more noise, of another shape.
    if audited.against is not audited.charged.against:
        return False
    if audited.charged.mechanism.objective is not None or audited.records is not None:
        return False  # it is not added to what is seen
    if not audited.trains_with_draws:
        # On a coarser grid it is no continuous law's: counts are noised in whole numbers.
        return audited.charged.mechanism.scale >= _FINE
    if audited.unit is not Unit.RECORD or audited.shape.features <= _UNUSED:
        return False
    # A contribution of a party's own noise may bear its share of the sum's noise beside; and where
    # the sum's is charged, there is the party's own.
    mechanism = audited.charged.mechanism
    alone = mechanism.training is not None and audited.plan.shared is None
    return (alone and not _clipped_afterwards(audited)) or mechanism.sampled is not None


def _clipped_afterwards(audited: Audited) -> bool:
    """Whether noise inside a party may be cut by a clip of the whole update, of unit both."""
    algorithm: Any = audited.algorithm
    training = algorithm.training
    steps = training.steps * audited.plan.parameters
    spread = unit_scale(audited) * audited.charged.mechanism.scale / training.sampling_rate
    return bool(algorithm.both and 2 * spread * steps**0.5 > algorithm.update_bound)


def _residuals(
    audited: Audited, given: Hypotheses, released: NDArray[np.float64], *, inside: bool
) -> NDArray[np.float64] | None:
    """`[W·T, r]` noise alone, in units of the claimed scale.

    Where batches are drawn, of the coordinates that no record moves: features that none has.
    """
    if not bare_noise(audited):
        return None
    if not audited.trains_with_draws:
        expected = given.inside if inside else given.outside
        bare = (released - expected) / given.scale
        return bare.reshape(-1, bare.shape[-1])
    steps, features = given.mechanism.training, audited.shape.features
    units = HIDDEN if hidden_layers(audited) else 2
    columns = [row * features + at for row in range(units) for at in range(_UNUSED, features)]
    # Of several steps inside a party its one contribution is seen.
    inside_party = 1 if steps is None else steps.steps
    bare = released[:, :, columns] / (given.scale * inside_party**0.5)
    return np.asarray(bare.reshape(-1, len(columns)))
