"""Define a federated count: the total number of records, without any single party's number.

    parley run --set algorithm.kind=examples/federated_count.py:FederatedCount ...

`docs/extending.md` explains it line by line. A real party puts this file next to its `party.toml`
and lists 'federated_count.py:FederatedCount' in `algorithms`.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from parley.client.algorithms.base import Claim, Contribution, PublicFacts
from parley.client.algorithms.own_algorithm import Statistic
from parley.client.contract.model_state_encoding import State
from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.party_block import PartyBlock
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.sampling.random_stream import Randomness
from parley.privacy.sensitivity.bounded_sets import Set


@dataclass(frozen=True, kw_only=True)
class FederatedCount(Statistic):
    """The mean of the parties' numbers of records. Times the number of parties it is the count.

    v_j = min(n_j, most). Every record adds 1, and the limit never increases the difference of two
    sums.

    Attributes:
        most: Largest number that a party may contribute, public.
    """

    kind: ClassVar[str] = "federated_count.py:FederatedCount"
    title: ClassVar[str] = "federated count"

    most: int = 1_000_000

    @property
    def dimension(self) -> int:
        """One number."""
        return 1

    def claim(self, facts: PublicFacts) -> Claim:
        """Return the set that contains one record's contribution, for any data of the parties."""
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
        """Return `[B, 1]` every party's number of records, at most `most`."""
        counts: NDArray[np.float64] = np.minimum(block.sizes, self.most).astype(np.float64)
        return Contribution(values=counts[:, None], failed=())
