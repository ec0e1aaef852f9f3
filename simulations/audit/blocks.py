"""Records of worlds laid out anew: rows of a block as other parties, for rows and for columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from parley.client.data.block import PartyBlock
from parley.client.data.table_block import TableBlock

Block = PartyBlock | TableBlock


def laid_out(block: Block, rows: NDArray[np.intp], offsets: NDArray[np.int64]) -> Block:
    """The records `rows` of a block, party after party as `offsets` says."""
    if isinstance(block, TableBlock):
        columns = {name: values[rows] for name, values in block.columns.items()}
        return replace(block, columns=columns, offsets=offsets)
    return PartyBlock(features=block.features[rows], labels=block.labels[rows], offsets=offsets)


def repeated(world: Block, count: int) -> Block:
    """`count` worlds like this one, after each other."""
    rows = np.tile(np.arange(world.offsets[-1]), count)
    offsets = np.concatenate([[0], np.cumsum(np.tile(world.sizes, count))])
    return laid_out(world, rows, offsets)


def bytes_of(world: Block) -> int:
    """Of one world's records."""
    if isinstance(world, TableBlock):
        return sum(values.nbytes for values in world.columns.values())
    return int(world.features.nbytes)
