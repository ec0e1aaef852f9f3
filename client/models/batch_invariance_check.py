"""Check that a network scores each row independently of the other rows in its batch.

DP-SGD computes each record's gradient from that record, and a file of records is scored in batches.
A network that subtracts the mean of its batch, sorts it or counts it would learn one function and
predict with another. Such a network is refused before anything is charged.

The check is an experiment on made-up rows. Rows are scored one by one, then in batches: of many
sizes, at other positions, next to other rows. It runs at the start and at random points near it, in
the mode in which the network was built and in eval mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parley.client.models.layer_checks import NetworkError
from parley.client.models.networks import Network
from parley.client.models.record_losses import get_own_losses
from parley.client.models.trial_inputs import add_trial_labels, build_trial_rows, move_near_start
from parley.client.own_code.own_code_errors import list_code_failures
from parley.client.own_code.own_code_loading import describe_failure

_WATCHED_ROWS: Final = 8
"""Number of rows that are scored one by one and compared in each batch."""

_SIZES: Final = (2, 3, 4, 5, 8, 16, 31, 32, 64, 100)

_MAX_ROWS: Final = 4096
"""Maximum number of rows that are scored at once (`Network.compute_scores`)."""

_MAX_CELLS: Final = 1 << 20
"""Maximum cells of the largest batch."""

ForwardPass = Callable[[Tensor, Tensor], Tensor]


def check_batch_invariance(network: Network) -> None:
    """Raise NetworkError if a row's scores or loss depend on the other rows of its batch."""
    most = max(_WATCHED_ROWS, min(_MAX_ROWS, _MAX_CELLS // network.features))
    rows = build_trial_rows(network, most)
    rows[1], rows[2], rows[3] = 0.0, 0.0, np.abs(rows[3])
    rows[2, 0] = 1.0  # a row of length 1 with one cell
    whole = add_trial_labels(network, rows)
    known = {*_SIZES, network.features, network.classes, network.features + 1}
    sizes = sorted(size for size in known if 1 < size <= min(128, most))
    modes = ["as built", "eval"] if any(m.training for m in network.module.modules()) else ["eval"]
    for mode in modes:
        with _hold_eval_mode(network.module) if mode == "eval" else nullcontext():
            for what, passed in _list_passes(network):
                largest = [most] if mode == modes[0] else []
                _compare(network, what, passed, whole, [*sizes, *largest], at_start=True)
                for seed in (1, 2):
                    with move_near_start(network, seed=seed):
                        _compare(network, what, passed, whole, sizes)


def _list_passes(network: Network) -> Iterator[tuple[str, ForwardPass]]:
    """Yield what is computed from a batch: its scores, and its losses if they are the module's."""
    if not network.draws_per_record:
        yield "scores", lambda x, _: network.module(x)
    if get_own_losses(network.module) is not None:
        yield "losses", lambda x, y: network.losses(network.module, x, y)


def _compare(
    network: Network,
    result_kind: str,
    forward: ForwardPass,
    expected: tuple[Tensor, Tensor],
    sizes: list[int],
    *,
    at_start: bool = False,
) -> None:
    """Compare the watched rows' single results with those in batches of `sizes`."""
    rows, labels = expected
    rng = np.random.default_rng(0)
    alone = torch.cat(
        [_compute_results(network, result_kind, forward, rows[at : at + 1], labels[at : at + 1])
         for at in range(_WATCHED_ROWS)]
    )  # fmt: skip
    if at_start and not bool(torch.isfinite(alone).all()):
        at = int(torch.nonzero(~torch.isfinite(alone).reshape(_WATCHED_ROWS, -1).all(1))[0])
        kind = "a row of zeros, which a record may be" if at == 1 else "a made-up row"
        raise NetworkError(
            f"Expected finite {result_kind} from {network.kind} at its start, got others for "
            f"{kind}. Keep logarithms, roots and quotients away from zero, and check the "
            "initialisation."
        )
    finite = torch.isfinite(alone).reshape(_WATCHED_ROWS, -1).all(1)
    if not bool(finite.any()):
        return
    # Libraries change the order of summation with the batch size: half of the digits may differ.
    near = float(alone[finite].abs().max()) * torch.finfo(alone.dtype).eps ** 0.5
    for size in sizes:
        for places in _build_batches(size, len(rows), rng):
            found = _compute_results(network, result_kind, forward, rows[places], labels[places])
            watched = torch.as_tensor(places < _WATCHED_ROWS, device=rows.device)
            own = torch.as_tensor(places, device=rows.device)[watched]
            away = (found[watched] - alone[own]).abs().reshape(len(own), -1).amax(1)
            # A result also differs if it is finite for the single row and NaN in a batch.
            if bool((~(away <= near) & finite[own]).any()):
                raise NetworkError(
                    f"Expected {network.kind} to score each row by itself, got other {result_kind} "
                    f"for a row in a batch of {size} than alone. Look for means, sums, sorting, "
                    "softmax or attention over the first axis, for branches on values, and for the "
                    "batch's size; torch.nn.LayerNorm and GroupNorm act on each row."
                )


def _build_batches(size: int, count: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Yield batches of `size` rows with watched ones among them: in order, then twice at random."""
    if size >= count:
        yield rng.permutation(count)
        return
    yield np.arange(size)
    for _ in range(2):
        places = rng.choice(count, size, replace=False)
        places[rng.integers(size)] = rng.integers(_WATCHED_ROWS)
        yield places


def _compute_results(
    network: Network, result_kind: str, forward: ForwardPass, x: Tensor, y: Tensor
) -> Tensor:
    """Return `[b, K]` scores or `[b]` losses. Raises NetworkError."""
    place = network.kind.rpartition(":")[0]
    try:
        with torch.no_grad():
            found = forward(x.clone(), y)
    except list_code_failures() as error:
        raise NetworkError(
            f"Expected {network.kind} to take a batch of {_format_rows(len(x))}, got "
            f"{describe_failure(error, place)}. It must accept any number of rows, also 1."
        ) from error
    expected = (len(x), network.classes) if result_kind == "scores" else (len(x),)
    shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
    if shape != expected:
        raise NetworkError(
            f"Expected {result_kind} of shape {list(expected)} for a batch of "
            f"{_format_rows(len(x))} from "
            f"{network.kind}, got {shape if isinstance(shape, str) else list(shape)}."
        )
    return found


def _format_rows(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"


@contextmanager
def _hold_eval_mode(module: nn.Module) -> Iterator[None]:
    kept = [(each, each.training) for each in module.modules()]
    try:
        module.eval()
        yield
    finally:
        for each, training in kept:
            each.training = training
