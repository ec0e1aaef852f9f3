"""Party sampling: a sum contains all parties, a random subset by own coins, or a public sample.

Each party answers each sum, with its mask and its share of the noise. A party that is not in the
sum answers zero. So the noise never depends on which parties are in, and no server chooses them.

With own coins, masks hide a zero just as they hide an update. A single party computes regardless of
its coin, so that its run time reveals nothing. A public sample takes k of m parties without
replacement, by a stream that follows from the run's name. It amplifies nothing
(docs/sampled-parties.md).

The sum is divided by p·m or k, public numbers, scaled to the number of the m parties that answered.

>>> coins, drawn = PartySampling(rate=0.25), PartySampling(number=10, parties=1000, hidden=False)
>>> coins.fraction, coins.charged_rate, drawn.fraction, drawn.charged_rate
(0.25, 0.25, 0.01, 1.0)
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parley.client.contract.release_plan import ReleasePlan
from parley.client.data.party_block import PartyBlock
from parley.client.dp_sgd.poisson_batches import draw_poisson_batches
from parley.privacy.sampling.random_stream import NoiseStream, Randomness


@dataclass(frozen=True, kw_only=True)
class PartySampling:
    """Rule that determines which parties are in a sum.

    Attributes:
        rate: p of each party's own coin; 1: all parties are in.
        number: number of `parties` sampled publicly; 0: the coins decide.
        parties: m, if a number is given; else 0.
        hidden: whether the charge assumes that only a party itself knows when it was in.
    """

    rate: float = 1.0
    number: int = 0
    parties: int = 0
    hidden: bool = True

    def __post_init__(self) -> None:
        if not 2.0**-32 <= self.rate <= 1 or not 0 <= self.number <= self.parties:
            expected = "Expected a rate from 2^-32 to 1 and a number of at most m parties"
            raise ValueError(f"{expected}, got {self.rate}, {self.number} of {self.parties}.")
        if self.number and (self.hidden or self.rate < 1):
            expected = "a publicly sampled number of parties with rate = 1 and hidden = False"
            got = f"rate = {self.rate}, hidden = {self.hidden}"
            raise ValueError(f"Expected {expected}, got {got}.")

    @property
    def includes_everyone(self) -> bool:
        """Whether all parties are in each sum."""
        return self.rate == 1 and not self.number

    @property
    def is_secret(self) -> bool:
        """Whether unit party is amplified by coins that no one else knows."""
        return self.hidden and self.rate < 1

    @property
    def charged_rate(self) -> float:
        """q of a party in a sum: p if its coin is secret, else 1, given the coin."""
        return self.rate if self.hidden else 1.0

    @property
    def fraction(self) -> float:
        """Public fraction of the parties in a sum, on average over coins."""
        return self.number / self.parties if self.number else self.rate

    def sample_parties(
        self, block: PartyBlock, plan: ReleasePlan, randomness: Randomness
    ) -> NDArray[np.bool_]:
        """Return `[B]` flags of the block's parties that are in the sum of a plan."""
        if self.includes_everyone:
            return np.ones(block.parties, dtype=np.bool_)
        own_index, step = randomness.party, plan.step
        if not (self.number or randomness.seeded):  # only the party itself knows its coin
            stream = randomness.open_party_sampling(plan.round_number, step)
            return _flip_coins(block.parties if own_index is None else 1, self.rate, stream)
        positions = block.get_positions() if own_index is None else np.asarray([own_index])
        if self.number:
            if self.parties != plan.parties:
                raise ValueError(f"Expected {self.parties} parties, got {plan.parties}.")
            chosen = _sample_publicly(self.number, plan, randomness)
            return np.asarray(chosen[positions], dtype=np.bool_)
        stream = randomness.open_party_sampling(plan.round_number, step)
        # An audit's block contains many federations: more coins beyond the first one's parties.
        count = max(plan.parties, int(positions.max(initial=0)) + 1)
        return np.asarray(_flip_coins(count, self.rate, stream)[positions], dtype=np.bool_)


EVERYONE = PartySampling()


def _flip_coins(count: int, rate: float, stream: NoiseStream) -> NDArray[np.bool_]:
    return np.asarray(draw_poisson_batches(count, rate, 1, stream)[0])


def _sample_publicly(number: int, plan: ReleasePlan, randomness: Randomness) -> NDArray[np.bool_]:
    """Return `[m]` flags, true for `number` parties, each equally likely."""
    stream = randomness.open_party_sampling(plan.round_number, plan.step)
    if not randomness.seeded:
        name = int.from_bytes(hashlib.sha256(plan.run_id.encode()).digest(), "big")
        stream = NoiseStream.from_seed(name, "attendance", plan.round_number, plan.step)
    words = stream.draw_words(plan.parties)
    chosen = np.zeros(plan.parties, dtype=np.bool_)
    chosen[np.argsort(words, kind="stable")[:number]] = True
    return chosen
