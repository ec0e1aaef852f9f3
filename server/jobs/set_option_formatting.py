"""Format settings of a job as they are typed."""

from __future__ import annotations

from collections.abc import Sequence


def format_settings(keys: Sequence[str]) -> str:
    """Return settings as they are typed after a command.

    >>> format_settings(["privacy.epsilon=2", "algorithm.rounds=auto"])
    '--set privacy.epsilon=2 --set algorithm.rounds=auto'
    """
    return " ".join(f"--set {key}" for key in keys)
