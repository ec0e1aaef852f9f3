"""The rule that chooses the grid on which contributions are rounded.

On a grid that is too coarse, most contributions round to 0, and a sum reveals those that do not.
The rule takes the finest grid that the ring holds, with room for m largest contributions and the
noise's tail. In that ring, rounding must add little to the sensitivity. A party needs only the plan
to check it (`parley.client.party.grid_verification`). Noise in shares is added to every
contribution before it is rounded to the ring. There, the grid on which the noise is added must be
fine (`parley.privacy.mechanisms.noise_shares`).
"""

from __future__ import annotations

from parley.privacy.mechanisms.base import Mechanism

TAIL_PROBABILITY = 2.0**-50
"""Probability of noise beyond the ring's room: at most once in 2⁵⁰ rounds."""


def compute_noise_tail(mechanism: Mechanism) -> float:
    """Return the grid units that a ring reserves for a mechanism's noise and its rounding (0.5)."""
    return mechanism.noise_tail(TAIL_PROBABILITY) + 0.5
