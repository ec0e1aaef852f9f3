"""A record's gradient is the same bits whoever else is in its batch, and whatever its place.

Of networks that are no chains (`parley.client.dp_sgd.exact_clipping`): own modules.

The sensitivity of a clipped sum is that of one term only if no record moves another's. Libraries
do not promise it: BLAS adds in other orders for batches of other sizes and rows at other places,
which at a θ that a server sought turns *other* records' gradients on or off (docs/attacks.md). So

1. **Every pass has one shape**: `width` rows, a public number (`poisson_batches.choose_widths`),
filled up
   with rows of weight zero. A kernel's order of operations follows from shapes and addresses, never
   from values; so a row's bits are a function of its record, its place in the chunk, and θ.
2. **A place is one of a class.** On this machine, for this network, rows are tried in other places
   and beside other rows, zero and huge ones among them (`find_layout`). If they keep their bits in
   all, a record may have any place; else places that agree repeat with a `period`, and a record
   gets one of the class that its own digest values names: a function of the record alone.
   A network for which none of this holds has passes of one row.

Then g_i is a function of the record and θ, which is all that the proof of
`parley.client.dp_sgd.torch_clipping` takes. Point 2 is an experiment, on random rows at a random θ,
where two orders of adding agree in all bits of many sums by a chance that is nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parley.client.dp_sgd.poisson_batches import PERIODS, PassLayout
from parley.client.dp_sgd.torch_clipping import compute_record_gradients
from parley.client.models.network_trials import add_trial_labels, build_trial_rows, move_near_start
from parley.client.models.networks import Network
from parley.client.models.own_code import CODE_FAILURES

Rows = NDArray[np.float64]

_PERMUTATIONS: Final = 8

_LAYOUTS_BY_MODULE: WeakKeyDictionary[nn.Module, dict[tuple[object, ...], PassLayout]] = (
    WeakKeyDictionary()
)
_LAYOUTS_BY_FILE: dict[tuple[object, ...], dict[tuple[object, ...], PassLayout]] = {}
_MAX_CACHED_FILES: Final = 64


def _get_cached_layouts(network: Network) -> dict[tuple[object, ...], PassLayout]:
    """What was found for this network: parties build one of a file anew for every task."""
    if network.digest is None:
        return _LAYOUTS_BY_MODULE.setdefault(network.module, {})
    if len(_LAYOUTS_BY_FILE) > _MAX_CACHED_FILES:
        _LAYOUTS_BY_FILE.clear()
    code = (network.kind, network.digest, network.frozen_digest)
    return _LAYOUTS_BY_FILE.setdefault(
        (*code, network.features, network.classes, network.losses), {}
    )


def find_layout(network: Network, widths: tuple[int, ...]) -> PassLayout:
    """How records must stand for a pass to keep their bits apart, tried on this machine.

    The network's parameters are as before afterwards.

    Args:
        widths: rows of a pass (`poisson_batches.choose_widths`), fewer where records are not kept
            apart so.
    """
    known = _get_cached_layouts(network)
    key = (widths, network.dtype, str(network.device), torch.get_num_threads())
    if key not in known:
        x, y = _build_trial_records(network, 2 * max(*widths, 64))

        def gradients(rows: list[int]) -> Rows:
            return compute_record_gradients(network.module, x[rows], y[rows], losses=network.losses)

        with move_near_start(network):
            known[key] = _choose_layout(gradients, widths)
    return known[key]


def _choose_layout(gradients: Callable[[list[int]], Rows], widths: tuple[int, ...]) -> PassLayout:
    tried = [*zip(widths, PERIODS, strict=True), (64, 4), (8, 8)]
    for width, most in tried:
        period = find_period(gradients, width) if width <= max(widths) else None
        if period is not None and period <= most:
            return PassLayout(width=width, period=period)
    return PassLayout(width=1, period=1)


def find_period(gradients: Callable[[list[int]], Rows], width: int) -> int | None:
    """The least period of places that keep bits; None where neighbours change them.

    First others take the places of two thirds of the rows, then rows change places at random, again
    and again, but keep theirs modulo the period: each is compared with itself.

    Args:
        gradients: made-up records of a chunk, by number below 2·width → `[width, d]`.
    """
    rng, places = np.random.default_rng(0), np.arange(width)
    try:
        at_first = gradients(places.tolist())
        for keep in range(3):
            found = gradients(np.where(places % 3 == keep, places, width + places).tolist())
            own = slice(keep, None, 3)
            if not _is_same(at_first[own], found[own]):
                return None
        for bits in range(width.bit_length()):
            period = 1 << bits
            if width % period:
                break
            moved = [_shuffle_rows(width, period, rng) for _ in range(_PERMUTATIONS)]
            if all(_is_same(at_first[rows], gradients(rows.tolist())) for rows in moved):
                return period
    except CODE_FAILURES:
        return None
    return width


def _shuffle_rows(width: int, period: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows `[width]` in another order, each in a place that is equal to its own modulo period."""
    places = np.arange(width).reshape(-1, period)
    return rng.permuted(places, axis=0).ravel()


def _is_same(one: Rows, other: Rows) -> bool:
    return np.array_equal(one, other, equal_nan=True)


def _build_trial_records(network: Network, count: int) -> tuple[Tensor, Tensor]:
    """Records of the size of a data set's; every eighth is zero or huge, to be a neighbour."""
    rows = build_trial_rows(network, count)
    rows[7::16], rows[15::16] = 0.0, rows[15::16] * 1e6
    return add_trial_labels(network, rows)
