"""Error of a feature map."""

from __future__ import annotations


class FeatureError(ValueError):
    """A map cannot be built, or does not accept these records; the message shows why."""
