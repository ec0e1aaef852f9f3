"""A federated count: how many records there are, while no party tells its own number.

    parley run --set algorithm.kind=examples/federated_count.py:FederatedCount ...

`docs/extending.md` goes through it line by line. A real party puts this file beside its
`party.toml` and lists 'federated_count.py:FederatedCount' in `algorithms`.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import Claim, Contribution, PublicFacts
from parley.client.algorithms.own_algorithm import Statistic
from parley.client.contract.model_state import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.party_block import PartyBlock
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.sampling.random_stream import Randomness
from parley.privacy.sensitivity.bounded_sets import Set


@dataclass(frozen=True, kw_only=True)
class FederatedCount(Statistic):
    """The mean of the parties' numbers of records; times the parties it is the count.

    v_j = min(n_j, most). Every record adds 1, and a limit brings no two sums further apart.

    Attributes:
        most: the largest number that a party may contribute, public.
    """

    kind: ClassVar[str] = "federated_count.py:FederatedCount"
    title: ClassVar[str] = "federated count"

    most: int = 1_000_000

    @property
    def dimension(self) -> int:
        """One number."""
        return 1

    def claim(self, facts: PublicFacts) -> Claim:
        """The set that a record's number lies in, whatever the parties hold."""
        return Claim(
            dimension=1,
            features=self.features,
            bound=float(self.most),
            lies_in=Set.interval(1, 1),
            unit=Unit.RECORD,
            neighbouring=Neighbouring.ADD_OR_REMOVE_ONE,
        )

    def local(
        self, state: State, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> Contribution:
        """`[B, 1]` every party's number of records, at most `most`."""
        counts: NDArray[np.float64] = np.minimum(block.sizes, self.most).astype(np.float64)
        return Contribution(values=counts[:, None], failed=())
