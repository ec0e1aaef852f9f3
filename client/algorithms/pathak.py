"""Pathak, Rane & Raj 2010: once, the average of local optima, with noise for a single party's.

The sum's noise is scaled as if the average moved as far as one party's model: b = 2G/(n₍₁₎λε) on
the average, m times what `OutputPerturbation` needs. So a release costs ε/m, and that is charged:
the paper's ε holds, and promises m times less than is true.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from parley.client.algorithms.base import Claim, PublicFacts
from parley.client.algorithms.output_perturbation import OutputPerturbation


@dataclass(frozen=True, kw_only=True)
class PathakAveraging(OutputPerturbation):
    """The average of certified local optima, with m times the noise that its ε needs."""

    kind: ClassVar[str] = "pathak"

    def claim(self, facts: PublicFacts) -> Claim:
        """As output perturbation's, at ε/m."""
        return replace(super().claim(facts), epsilon_share=1 / facts.parties)
