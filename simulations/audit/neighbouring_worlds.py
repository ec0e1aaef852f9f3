"""Build two neighbouring data sets with releases as far apart as the claim allows: the canary.

Features 0 and 1 of a record are its own (`u`) and the model's state (`s`). The canaries

    x₁ = cos φ·u + sin φ·s, label +1        x₂ = cos φ·u − sin φ·s, label −1

have opposite gradients. The gradients have full length if the public state puts x₁ and x₂ on the
wrong side, and are zero on the right side. No other record has feature `u`. Anyone may choose the
public state, also the server: ε holds for each choice.

In a network with hidden layers both canaries are the same row, `u`, with the two labels. The state
gives them equal scores, so that ∂ℓ/∂scores = ±(½, −½), and every layer's gradient is opposite. One
unit of each layer carries `u`, one the feature `s`, in which every other record is on its label's
side, without a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.model_state_encoding import State
from parley.client.data.party_block import PartyBlock
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.sampling.random_stream import Randomness
from parley.simulations.audit.attack_scores import get_noise_scoring
from parley.simulations.audit.audit_job_shrinking import (
    ANGLE,
    HIDDEN,
    LEARNERS,
    MOMENTS,
    AuditError,
)
from parley.simulations.audit.audit_target import AuditTarget
from parley.simulations.audit.canary_pool import Block, build_row_pool, reorder_records

_FAR = 512.0
"""A network's weights along `s`: single precision still resolves a step next to it."""

_SURE = 40.0
"""Margin at which a loss's slope is full, to double precision."""


_OTHERS = 6
"""Number of kinds of other records with which canaries are tried."""


@dataclass(frozen=True, kw_only=True)
class NeighbouringWorlds:
    """Two data sets that differ by one unit, and the states that the server sends.

    Attributes:
        inside, outside: the parties of one trial each.
        get_sent_state: sum → the public state of that sum; None: the run's own, from `start`.
        weights: `[T]` of the sums in the score: +1, or −1 if a sum only carries noise.
    """

    inside: Block
    outside: Block
    start: State
    get_sent_state: Callable[[int], State] | None
    weights: NDArray[np.float64]


def build_neighbours(target: AuditTarget, attack: str) -> NeighbouringWorlds:
    """Build the neighbouring data sets of an attack."""
    fitting = [name for name, each in ATTACKS.items() if each.is_applicable(target)]
    if attack not in fitting:
        raise AuditError(
            f"Expected an attack that fits this job ({', '.join(fitting)}), got {attack!r}."
        )
    return ATTACKS[attack].build(target)


@dataclass(frozen=True)
class _Attack:
    is_applicable: Callable[[AuditTarget], bool]
    build: Callable[[AuditTarget], NeighbouringWorlds]


def _build_on_off(target: AuditTarget) -> NeighbouringWorlds:
    """Alternate between a state that shows the canary and one that hides it."""
    showing, hiding = (_build_state(target, shows=shows) for shows in (True, False))
    return replace(
        _build_record(target),
        start=showing,
        get_sent_state=lambda number: showing if number % 2 else hiding,
        weights=np.array([1.0 if number % 2 else -1.0 for number in range(1, target.sums + 1)]),
    )


def _build_party(target: AuditTarget) -> NeighbouringWorlds:
    """Let all records of the first party pull one way, or the other; other parties lack its
    features.

    Under add-or-remove-one the party is absent instead: it contributes zero, like a party with an
    update that is not finite.
    """
    shape = target.shape
    ours = np.zeros((shape.parties * shape.records, shape.features))
    # Features that no other party has, and an update that the clip cuts.
    ours[: shape.records, 0] = 1.0
    ours[shape.records :, 2] = 1.0
    labels = np.zeros(len(ours), dtype=np.int64)
    inside = _to_block(target, ours, labels)
    turned = labels.copy()
    turned[: shape.records] = 1
    others = ours.copy()
    if target.guarantee.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE:
        others[: shape.records] = np.nan
    start = _with_theta(target, np.zeros(target.plan.parameters))
    return _build_always_shown(target, inside, _to_block(target, others, turned), start)


def _build_corners(target: AuditTarget) -> NeighbouringWorlds:
    """Choose the two records of a pool that move the release most, or the one that adds most to it.

    They are tried with other records of several kinds: if records influence each other, releases
    differ more with some of them. For a person or a party, all records are that one.
    """
    pool = (target.response.build_pool or build_row_pool)(target.algorithm)
    start, (m, n) = target.algorithm.init(), (target.shape.parties, target.shape.records)
    among = np.unique(np.linspace(0, len(pool.sizes) - 1, _OTHERS).astype(np.intp)).tolist()
    tried = [(*_find_furthest(target, pool, start, other), other) for other in among]
    _, first, second, other = max(tried, key=lambda each: each[0])
    own = _count_unit_records(target)
    others = np.full(m * n - own, other, dtype=np.intp)
    offsets = np.arange(m + 1) * n

    def world(canary: int | None) -> Block:
        if canary is None:
            without = np.maximum(offsets - own, 0)
            # The party is absent, or has fewer records.
            return reorder_records(pool, others, without[1:] if own == n else without)
        return reorder_records(pool, np.append([canary] * own, others), offsets)

    return _build_always_shown(target, world(first), world(second), start)


def _build_always_shown(
    target: AuditTarget, inside: Block, outside: Block, start: State, *, again: bool = True
) -> NeighbouringWorlds:
    """Show the canary in every sum: at the state that the server sends again, or the run's own."""
    return NeighbouringWorlds(
        inside=inside,
        outside=outside,
        start=start,
        get_sent_state=(lambda _: start) if again else None,
        weights=np.ones(target.sums),
    )


def _count_unit_records(target: AuditTarget) -> int:
    """Return the number of records that the unit has in a trial."""
    if target.unit is Unit.RECORD:
        return 1
    if target.unit is Unit.PARTY:
        return target.shape.records
    counting: Any = getattr(target.algorithm, "counting", None)
    return min(target.shape.records, int(counting.most))


def _find_furthest(
    target: AuditTarget, pool: Block, start: State, other: int
) -> tuple[float, int, int | None]:
    """Return the largest distance of two pool records next to others like `other`, and which; None:
    absent.
    """
    count, n, own = len(pool.sizes), target.shape.records, _count_unit_records(target)
    # Each next to the same others, then only those others.
    rows = np.full((count + 1, n), other, dtype=np.intp)
    rows[:count, :own] = np.arange(count)[:, None]
    sizes = [*[n] * count, n - own][: count + (n > own)]
    tried: Any = reorder_records(pool, rows.ravel()[: sum(sizes)], np.cumsum([0, *sizes]))
    local = target.algorithm.local(start, tried, target.plan, Randomness.from_entropy())
    values, without = local.values[:count], local.values[count:]
    if target.guarantee.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE:
        _check_removed(target, own)
        lengths = _compute_lengths(target, values - without if len(without) else values)
        return float(lengths.max()), int(lengths.argmax()), None
    lengths = np.stack([_compute_lengths(target, values - each) for each in values])
    first, second = divmod(int(lengths.argmax()), count)
    return float(lengths.max()), first, second


def _check_removed(target: AuditTarget, own: int) -> None:
    """Raise AuditError if a session could have no trial without the unit."""
    if target.unit is Unit.PARTY:
        if target.plan.shared_guarantee is not None:
            raise AuditError(
                "Expected noise on the sum if a party is removed, got noise in shares: an "
                "absent party adds no share, and the number of parties is known."
            )
    elif own >= target.shape.records:
        raise AuditError(
            f"Expected more than {own} records of a party, because those of one {target.unit} "
            "are removed."
        )


def _compute_lengths(target: AuditTarget, moved: NDArray[np.floating]) -> NDArray[np.floating]:
    norm = get_noise_scoring(target.charged.mechanism).norm
    return np.asarray(np.linalg.norm(moved, ord=norm, axis=1))


def _is_gradient_canary(target: AuditTarget) -> bool:
    """Return whether a canary is built for the gradients of one record."""
    return target.unit is Unit.RECORD and target.response.build_pool is None


def _build_record(target: AuditTarget, *, crowd: bool = False) -> NeighbouringWorlds:
    """Let one record's gradient pull one way or the other; in a crowd all others pull the other
    way.
    """
    shape, learner = target.shape, target.learner
    upright = shape.features == 1 or target.response.optimum or count_hidden_layers(target)
    tilt = 0.0 if upright else learner.angle
    u, s = _choose_directions(target)
    one, two = (math.cos(tilt) * u + sign * math.sin(tilt) * s for sign in (1, -1))
    rows = np.zeros((shape.parties * shape.records, shape.features))
    to_labels = partial(learner.to_labels, target.algorithm.model)
    labels = to_labels(np.ones(len(rows)))
    if crowd:
        rows[:], labels[:] = two, to_labels(-np.ones(1))[0]
    elif learner.classes:
        # On the side of their label: no gradient, not even of a bias.
        rows[:], labels[:] = s, 0
    first, second = to_labels(np.array([1.0, -1.0]))

    def world(row: NDArray[np.float64], label: Any) -> PartyBlock:
        own_rows, own_labels = rows.copy(), labels.copy()
        own_rows[0], own_labels[0] = row, label
        return _to_block(target, own_rows, own_labels)

    inside = world(one, first)
    if target.guarantee.neighbouring is Neighbouring.ADD_OR_REMOVE_ONE:
        if shape.records < 2:
            raise AuditError("Expected at least 2 records of a party, because one is removed.")
        offsets = np.concatenate([[0], inside.offsets[1:] - 1])
        outside = PartyBlock(features=rows[1:], labels=labels[1:], offsets=offsets)
    else:
        outside = world(two, second)
    start = _build_state(target, shows=True)
    return _build_always_shown(target, inside, outside, start, again=target.response.trains)


def _choose_directions(target: AuditTarget) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return `u` and `s`; in a linear model u is the diagonal, worst for coordinatewise noise."""
    p = target.shape.features
    first, second = np.eye(p)[0], np.eye(p)[1 % p]
    if not target.learner.diagonal or p == 1:
        return first, second
    return np.full(p, 1 / math.sqrt(p)), (first - second) / math.sqrt(2)


def _to_block(target: AuditTarget, rows: NDArray[np.float64], labels: NDArray[Any]) -> PartyBlock:
    offsets = np.arange(target.shape.parties + 1) * target.shape.records
    return PartyBlock(features=rows, labels=labels, offsets=offsets)


def _build_state(target: AuditTarget, *, shows: bool) -> State:
    """Build a public state at which the canaries' gradients are full, or zero.

    x₁ has label +1 and is on the side of `s`, x₂ has label −1 on the other side: scores against `s`
    are wrong for both.
    """
    if target.learner is MOMENTS:
        return target.algorithm.init()
    sign = -1.0 if shows else 1.0
    theta = build_network_theta if target.learner is LEARNERS["network"] else _build_linear_theta
    return _with_theta(target, theta(target, sign))


def _build_linear_theta(target: AuditTarget, sign: float) -> NDArray[np.float64]:
    model: Any = target.algorithm.model
    loss = model.loss
    _, s = _choose_directions(target)
    if target.response.optimum or target.shape.features == 1:
        return np.zeros(model.dimension)
    far = min(_SURE / math.sin(ANGLE), loss.theta_radius)
    if sign < 0 and loss.has_full_slope_at_zero:
        far = 0.0
    return np.asarray(loss.build_theta(sign * far * s))


def _with_theta(target: AuditTarget, theta: NDArray[np.float64]) -> State:
    return {**target.algorithm.init(), "theta": theta}


def count_hidden_layers(target: AuditTarget) -> int:
    """Return the number of hidden layers of the audited network."""
    if target.learner is not LEARNERS["network"]:
        return 0
    job: Any = target.job
    return len(job.model.hidden)


def build_network_theta(target: AuditTarget, sign: float) -> NDArray[np.float64]:
    """Return `[d]` parameters: with sign −1 the canaries' gradients are full."""
    p, depth = target.shape.features, count_hidden_layers(target)
    theta = _build_deep_theta(target, p, depth) if depth else _build_flat_theta(p, sign)
    if theta.size != target.algorithm.model.dimension:
        raise AuditError(
            f"Expected a network of {theta.size} parameters for {p} features, got "
            f"{target.algorithm.model.dimension}."
        )
    return theta


def _build_flat_theta(p: int, sign: float) -> NDArray[np.float64]:
    s = np.eye(p)[1 % p]
    weights = np.stack([-s, s]) * sign * _FAR
    return np.concatenate([weights.ravel(), np.zeros(2)])


def _build_deep_theta(target: AuditTarget, p: int, depth: int) -> NDArray[np.float64]:
    """Let units 0 and 1 of every layer carry `s` and `u`, with steep scores for full gradients."""
    training: Any = getattr(target.algorithm, "training")  # noqa: B009 - a network's alone
    least = min(target.algorithm.model.losses.weights, default=1.0)
    steep = 2.0 ** math.ceil(math.log2(max(8.0, 4 * (training.clip_norm or 1.0) / least)))
    first = np.zeros((HIDDEN, p))
    first[0, 1 % p] = first[1, 0] = 1.0
    between = np.zeros((HIDDEN, HIDDEN))
    between[0, 0] = between[1, 1] = 1.0
    last = np.zeros((2, HIDDEN))
    last[:, 0], last[:, 1] = (_FAR * steep, -_FAR * steep), (steep, -steep)
    # Move a canary's score back to where both classes are equal.
    bias = np.array([-1.0, 1.0]) * steep * math.sqrt(p)
    parts = [first, np.zeros(HIDDEN)]
    for _ in range(depth - 1):
        parts += [between, np.zeros(HIDDEN)]
    return np.concatenate([np.ravel(part) for part in [*parts, last, bias]])


def _is_on_off_possible(target: AuditTarget) -> bool:
    rounds = target.sums > 1 and not target.response.optimum
    hideable = target.shape.features > 1 and not count_hidden_layers(target)
    return _is_gradient_canary(target) and rounds and hideable


ATTACKS: dict[str, _Attack] = {
    "dirac": _Attack(_is_gradient_canary, _build_record),
    "crowd": _Attack(
        lambda audited: _is_gradient_canary(audited) and audited.response.trains,
        partial(_build_record, crowd=True),
    ),
    "on-off": _Attack(_is_on_off_possible, _build_on_off),
    "party": _Attack(
        lambda audited: audited.unit is Unit.PARTY and audited.response.build_pool is None,
        _build_party,
    ),
    "corners": _Attack(lambda audited: audited.response.build_pool is not None, _build_corners),
}
