"""Define the section [secure-aggregation]: how contributions are summed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from parley.client.contract.removed_options import ConfirmSurvivors, Dropouts, KeyExchange
from parley.server.jobs.section_base import Auto, JobSection


class SecureAggregationSection(JobSection):
    """How contributions are summed."""

    backend: Literal["ideal", "masked"] = "ideal"
    """ideal: the ring sum the protocol computes, without the masks (simulation); masked: the whole
    protocol. Both give the same bits.
    """

    dropouts: Dropouts = "robust"
    """Always robust: double masks, so that rounds survive dropouts."""

    confirm_survivors: ConfirmSurvivors = True
    """Always true: the parties confirm the survivors' list to each other before they unmask, so
    that a server that lies about dropouts gains nothing.
    """

    key_exchange: KeyExchange = "hybrid"
    """Always hybrid: masks stay secret as long as X25519 or ML-KEM-768 holds."""

    min_survivors: int | Auto = "auto"
    """Minimum number of survivors whose sum may be unmasked; auto: ⌈2m/3⌉. It is raised above (m +
    corrupt)/2; key shares may need more.
    """

    corrupt: int | Auto = "auto"
    """Parties that may collude with the server; auto: a tenth, at least one of three or more.
    Degree and threshold follow from it. A party declines a run that assumes fewer than its policy
    does.
    """

    ring_bits: Literal[16, 32, 64] | Auto = "auto"
    """Bits of each summed integer. auto: 32, or 64 if the grid of 32 is too coarse."""

    scale_bits: Annotated[int, Field(ge=0, le=52)] | Auto = "auto"
    """Grid of 2^scale-bits steps per unit; auto: the finest that fits. Real parties decline a
    coarser one unless insist-on-fine-grid is false.
    """

    masked_check: bool = True
    """With backend = 'ideal', compare the first round with the masked protocol for (at most 64)
    parties drawn at random.
    """
