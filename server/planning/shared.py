"""Noise on a sum in shares: what it costs, and the shares of a release on a ring's grid.

With the server's noise a contribution is rounded to the ring's grid first, and Δ grows by √d grid
units. In shares it is rounded to a grid at least 2¹²√d/Δ fine, where that growth is below 2⁻¹², the
share is added, and the sum is rounded to the ring's grid after it: post-processing. The exact laws
on integers are not rounded again: their grid is the ring's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from parley.client.contract.grid import TAIL_PROBABILITY, noise_tail
from parley.privacy.accounting.events import Event
from parley.privacy.mechanisms.base import Mechanism
from parley.privacy.mechanisms.share_laws import SHARED_LAWS
from parley.privacy.mechanisms.shares import Shares, event_of_shares
from parley.server.jobs.job import Job
from parley.server.jobs.section import JobError

_FINE_BITS = 12
_MOST_FINE_BITS = 60


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """The noise of one guarantee on a ring's grid.

    Attributes:
        mechanism: in grid units, or in the shares' fine units.
        shares: how it is split; None where it is not.
    """

    mechanism: Mechanism
    shares: Shares | None = None

    @property
    def tail(self) -> float:
        """Grid units that the ring keeps free for it."""
        if self.shares is None:
            return noise_tail(self.mechanism)
        return self.shares.tail(self.mechanism, TAIL_PROBABILITY)

    @property
    def rounds_after(self) -> bool:
        """Whether rounding to the ring follows the noise, and costs no sensitivity."""
        return self.shares is not None and SHARED_LAWS[self.mechanism.law].rounded_after

    @property
    def drawn_scale(self) -> float:
        """The largest deviation of what is drawn, in units of the mechanism."""
        if self.shares is None:
            return self.mechanism.drawn_scale
        return self.mechanism.drawn_scale * self.shares.inflation


def cost_of(job: Job) -> Callable[[Mechanism], Event]:
    """What a release with a mechanism's noise on the sum costs, by the job's noise point."""

    def cost(mechanism: Mechanism) -> Event:
        if not job.privacy.point.in_contributions:
            return mechanism.event()
        # Parts of a noise, or all of it from every party: as many samplers.
        try:
            return event_of_shares(mechanism, job.parties.count)
        except ValueError as error:
            raise JobError(str(error)) from error

    return cost


def drawn_in_shares(
    job: Job,
    mechanism_at: Callable[[int], Mechanism],
    *,
    scale_bits: int,
    parties: int,
    fineness: float | None,
) -> Drawn:
    """The shares of a release's noise on a ring grid of 2^−scale_bits, whatever their size.

    Args:
        mechanism_at: bits of a grid → the noise for it, in its units.
        fineness: √d/Δ, what rounding before the noise is small against; None: the ring's grid is
            the algorithm's own.

    Raises JobError.
    """
    mechanism, more = mechanism_at(scale_bits), 0
    law = SHARED_LAWS.get(mechanism.law)
    if law is not None and law.rounded_after and fineness is not None:
        finer = math.ceil(_FINE_BITS + math.log2(fineness)) - scale_bits
        more = min(max(0, finer), _MOST_FINE_BITS)  # a grid so coarse will not be kept
        mechanism = mechanism_at(scale_bits + more)
    try:
        least, colluders = job.privacy.point.split(least=job.min_survivors, colluders=job.corrupt)
        shares = Shares.split(
            mechanism,
            parties=parties,
            least=least,
            colluders=colluders,
            fine_bits=more,
        )
    except ValueError as error:
        raise JobError(str(error)) from error
    return Drawn(mechanism=mechanism, shares=shares)
