"""How many neighbours must have confirmed a list of survivors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parley.secure_agg.protocol_parameters import RunParameters


def count_signers_needed(run: RunParameters) -> int:
    """Return how many of each neighbour's k neighbours must have signed a list of the run."""
    k, t = run.degree, run.threshold
    return k - t + min(run.corrupt, 2 * t - k - 1) + 1


def count_signers_near(
    run: RunParameters, neighbours: Sequence[int], signers: NDArray[np.bool_]
) -> int:
    """Return the fewest signers among the neighbours of any of the parties in `neighbours`."""
    return int(signers[run.neighbours[list(neighbours)]].sum(axis=1).min(initial=run.degree))
