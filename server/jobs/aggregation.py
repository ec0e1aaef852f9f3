"""How contributions are summed: `[secure-aggregation]`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from parley.server.jobs.section import Auto, Section


class SecureAggregation(Section):
    """How contributions are summed."""

    backend: Literal["ideal", "masked"] = Field(
        "ideal",
        description="ideal: the ring sum the protocol computes, without the masks (simulation); "
        "masked: the whole protocol. Both give the same bits.",
    )
    dropouts: Literal["robust", "optimistic"] = Field(
        "robust",
        description="robust: double masks, survives dropouts; optimistic: pairwise masks only, "
        "a dropout voids the round and the survivors repeat it.",
    )
    confirm_survivors: bool = Field(
        True,
        description="robust: the parties confirm the survivors' list to each other before they "
        "unmask, one exchange more, so that a server that lies about who dropped out gains "
        "nothing. false: only where the server follows the protocol.",
    )
    key_exchange: Literal["hybrid", "x25519"] = Field(
        "hybrid",
        description="hybrid: masks and sealed shares hold as long as X25519 or ML-KEM-768 does, so "
        "that traffic kept today is not read by a quantum computer later; x25519: as long as "
        "X25519 does. A party declines x25519 unless its own policy allows it.",
    )
    min_survivors: int | Auto = Field(
        "auto",
        description="Fewest survivors whose sum may be opened; auto: ⌈2m/3⌉. With confirmation it "
        "is raised above (m + corrupt)/2; key shares may need more.",
    )
    corrupt: int | Auto = Field(
        "auto",
        description="Parties that may collude with the server; auto: a tenth, at least one of "
        "three or more. Degree and threshold follow from it. A party declines a run that assumes "
        "fewer than its own policy.",
    )
    ring_bits: Literal[16, 32, 64] | Auto = Field("auto", description="16 | 32 | 64 | auto.")
    scale_bits: Annotated[int, Field(ge=0, le=52)] | Auto = Field(
        "auto",
        description="Grid of 2^scale-bits steps per unit; auto: the finest that fits. Real parties "
        "decline a coarser one unless insist-on-fine-grid is false.",
    )
    max_inflation: float = Field(
        1e-3, gt=0, description="Most that rounding to the grid may add to the sensitivity (auto)."
    )
    masked_check: bool = Field(
        True,
        description="With backend = 'ideal', check the first round against the masked protocol "
        "for (at most 64) parties drawn at random.",
    )
