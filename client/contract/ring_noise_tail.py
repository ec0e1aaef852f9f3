"""The room that a ring reserves for the tail of the noise.

The server takes the finest grid that the ring holds, with room for m largest contributions and this
tail. On a grid that is too coarse, most contributions round to 0, and a sum reveals those that do
not. A party needs only the plan to check the grid (`parley.client.party.grid_verification`).
"""

from __future__ import annotations

from parley.privacy.mechanisms.base import Mechanism

TAIL_PROBABILITY = 2.0**-50
"""Probability of noise beyond the ring's room: at most once in 2⁵⁰ rounds."""


def compute_noise_tail(mechanism: Mechanism) -> float:
    """Return the grid units that a ring reserves for a mechanism's noise and its rounding (0.5)."""
    return mechanism.noise_tail(TAIL_PROBABILITY) + 0.5
