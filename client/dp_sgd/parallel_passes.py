"""Run passes of a torch network in parallel: one thread per pass, and a module per thread.

torch spreads each operation of a pass over all cores. For small networks the threads then wait for
each other most of the time: on two busy cores a pass took ten times the CPU time of one thread.
Therefore each pass of a small network runs on one thread, and passes run next to each other. A
large network fills the cores by itself.

torch.func replaces a module's parameters while it runs, so each thread needs its own module. A
copy shares all tensors with the original. The same addresses keep a record's bits the same in each
copy (`parley.client.dp_sgd.invariant_pass_layout`).
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import torch
from torch import nn

from parley.client.data.threaded_chunks import compute_core_ranges, map_chunks
from parley.client.models.networks import Network
from parley.client.own_code.own_code_errors import list_code_failures

_T = TypeVar("_T")

_MAX_DIMENSION: Final = 1 << 18
"""Maximum parameters of a network whose passes run on one thread each."""

_MAX_GRADIENT_VALUES: Final = 1 << 26
"""Maximum values of gradients of all threads together."""


def map_passes(
    network: Network, passes: int, width: int, work: Callable[[nn.Module, int, int], _T]
) -> list[_T]:
    """Call `work(module, first, last)` for ranges that together are all passes; return its results.

    Args:
        width: rows of a pass.
    """
    if not _is_small(network):
        return [work(network.module, 0, passes)]
    most = max(1, min(passes, _MAX_GRADIENT_VALUES // (width * network.dimension)))
    modules = deque([network.module])
    for _ in compute_core_ranges(most, min_rows=1, max_rows=most)[1:]:
        if (other := _copy_structure(network.module)) is None:
            break
        modules.append(other)
    parts = len(modules)

    def run(first: int, last: int) -> _T:
        if torch.get_num_threads() != 1:
            torch.set_num_threads(1)  # of this thread of the pool
        return work(modules.pop(), first, last)

    with limit_torch_threads(network):
        ranges = [(passes * at // parts, passes * (at + 1) // parts) for at in range(parts)]
        return map_chunks(run, ranges)


@contextmanager
def limit_torch_threads(network: Network) -> Iterator[None]:
    """Limit torch to the threads of one of the network's passes inside the `with` block."""
    threads = torch.get_num_threads()
    if threads == 1 or not _is_small(network):
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _is_small(network: Network) -> bool:
    return network.device.type == "cpu" and network.dimension <= _MAX_DIMENSION


def _copy_structure(module: nn.Module) -> nn.Module | None:
    """Return a copy that shares the module's tensors; None if it has parts that cannot be
    copied.
    """
    shared = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    try:
        return copy.deepcopy(module, shared)
    except list_code_failures():
        return None
