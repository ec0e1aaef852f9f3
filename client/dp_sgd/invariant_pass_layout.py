"""Find a pass layout in which a record's gradient has the same bits in any batch.

It is for networks that are not chains (`parley.client.dp_sgd.exact_clipping`): user-defined
modules.

The sensitivity of a clipped sum is that of one term only if no record changes another's term.
Libraries do not guarantee this. BLAS changes the order of addition with the batch size and the
rows' positions. At a θ that a server chose for this purpose, one record would switch *other*
records' gradients on or off (docs/attacks.md). Therefore:

1. **Each pass has one shape**: `width` rows, a public number (`poisson_batches.choose_widths`),
   padded with rows of weight zero. A kernel's order of operations follows from shapes and
   addresses, never from values. So a row's bits are a function of its record, its position in the
   chunk, and θ.
2. **A position is one of a class.** `find_layout` tries rows on this machine, for this network, at
   other positions and next to other rows, including zero and huge ones. If they keep their bits
   everywhere, a record may have any position. Otherwise equivalent positions repeat with a
   `period`, and a record gets a position of the class that its own digest determines: a function of
   only the record. If neither holds, passes have one row.

Then g_i is a function of the record and θ, which is all that the proof of
`parley.client.dp_sgd.torch_clipping` needs. Point 2 is an experiment on random rows at a random θ.
The probability that two orders of addition agree there in all bits of many sums is negligible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parley.client.dp_sgd.parallel_passes import limit_torch_threads
from parley.client.dp_sgd.poisson_batches import PERIODS, PassLayout
from parley.client.dp_sgd.torch_clipping import compute_record_gradients
from parley.client.models.networks import Network
from parley.client.models.trial_inputs import add_trial_labels, build_trial_rows, move_near_start
from parley.client.own_code.own_code_errors import list_code_failures

Rows = NDArray[np.float64]

_PERMUTATIONS: Final = 8

Layouts = dict[tuple[object, ...], PassLayout]
_LAYOUTS_BY_MODULE: WeakKeyDictionary[nn.Module, Layouts] = WeakKeyDictionary()
_LAYOUTS_BY_FILE: dict[tuple[object, ...], Layouts] = {}
_MAX_CACHED_FILES: Final = 64


def _get_cached_layouts(network: Network) -> Layouts:
    """Return the layouts found for this network; parties build a network from its file for each
    task.
    """
    if network.digest is None:
        return _LAYOUTS_BY_MODULE.setdefault(network.module, {})
    if len(_LAYOUTS_BY_FILE) > _MAX_CACHED_FILES:
        _LAYOUTS_BY_FILE.clear()
    code = (network.kind, network.digest, network.frozen_digest)
    key = (*code, network.features, network.classes, network.losses)
    return _LAYOUTS_BY_FILE.setdefault(key, {})


def find_layout(network: Network, widths: tuple[int, ...]) -> PassLayout:
    """Find a layout of passes that keeps records' bits separate, by trials on this machine.

    The network's parameters are unchanged afterwards.

    Args:
        widths: rows of a pass (`poisson_batches.choose_widths`); fewer if records are not kept
            separate with them.
    """
    known = _get_cached_layouts(network)
    with limit_torch_threads(network):
        key = (widths, network.dtype, str(network.device), torch.get_num_threads())
        if key not in known:
            x, y = _build_trial_records(network, 2 * max(*widths, 64))

            def gradients(rows: list[int]) -> Rows:
                losses = network.losses
                return compute_record_gradients(network.module, x[rows], y[rows], losses=losses)

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
    """Return the smallest period of positions that keep bits; None if neighbours change them.

    First, other records take the positions of two thirds of the rows. Then rows change positions at
    random, several times, but keep theirs modulo the period. Each row is compared with itself.

    Args:
        gradients: function from made-up records of a chunk, by number below 2·width, to `[width,
            d]`.
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
    except list_code_failures():
        return None
    return width


def _shuffle_rows(width: int, period: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return rows `[width]` in another order; each keeps its position modulo the period."""
    places = np.arange(width).reshape(-1, period)
    return rng.permuted(places, axis=0).ravel()


def _is_same(one: Rows, other: Rows) -> bool:
    return np.array_equal(one, other, equal_nan=True)


def _build_trial_records(network: Network, count: int) -> tuple[Tensor, Tensor]:
    """Build records of the size of a data set's; each eighth is zero or huge, as a neighbour."""
    rows = build_trial_rows(network, count)
    rows[7::16], rows[15::16] = 0.0, rows[15::16] * 1e6
    return add_trial_labels(network, rows)
