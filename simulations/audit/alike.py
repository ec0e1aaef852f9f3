"""Parties that compute the same in every world: computed in a few worlds, compared, and repeated.

For answers that are a function of the public state and of the records alone. What is each party's
own goes on for each of them, in the product's own code: its coin for being in a sum, its weight,
the grid and its share of the noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parley.client.algorithms.attendance import EVERYONE
from parley.client.algorithms.base import Contribution
from parley.client.contract.plan import ReleasePlan
from parley.client.contract.state import State
from parley.privacy.sampling.randomness import Randomness
from parley.simulations.audit.blocks import Block, laid_out

ALIKE = 3
"""Worlds that are computed, and compared to the bit."""


@dataclass(frozen=True)
class Alike:
    """An algorithm, for a block of worlds that are all the same.

    Attributes:
        algorithm: the product's own.
        parties: of one world.
    """

    algorithm: Any
    parties: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.algorithm, name)

    def local(
        self, state: State, block: Block, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """What `algorithm` gives; where states or a few worlds' answers differ, by itself."""
        worlds, attendance = block.parties // self.parties, self._attendance
        if state["theta"].ndim > 1 or worlds <= ALIKE:
            return self._whole(state, block, plan, randomness)
        offsets = block.offsets[: ALIKE * self.parties + 1]
        few: Any = laid_out(block, np.arange(offsets[-1]), offsets)
        own = self._everyone.local(state, few, plan, randomness)
        values = own.values.reshape(ALIKE, self.parties, -1)
        if own.failed or not (values == values[0]).all():
            return self._whole(state, block, plan, randomness)
        repeated = np.tile(values[0], (worlds, 1))
        if attendance is not None and not attendance.whole:
            repeated[~attendance.present(block, plan, randomness)] = 0.0
        return Contribution(values=repeated, failed=())

    def _whole(
        self, state: State, block: Block, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        given: Contribution = self.algorithm.local(state, block, plan, randomness)
        return given

    @property
    def _attendance(self) -> Any:
        return getattr(self.algorithm, "attendance", None)

    @property
    def _everyone(self) -> Any:
        attendance = self._attendance
        if attendance is None or attendance.whole:
            return self.algorithm
        return replace(self.algorithm, attendance=EVERYONE)
