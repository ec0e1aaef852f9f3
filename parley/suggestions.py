"""Suggest what a user meant by an unknown command or option.

`--set` sets a job's keys, so an option with a key's name is answered with it. Two tables have other
words. Otherwise, only names with similar spelling are suggested.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import click

_MIN_SIMILARITY = 0.65
"""Minimum similarity of a word and a possible misspelling, such as run and rnu."""

_COMMANDS = {
    "client": "party",
    "fit": "run",
    "infer": "schema infer",
    "init": "deploy init",
    "join": "party",
    "simulate": "run",
    "start": "run",
    "train": "run",
    "validate": "schema check",
    "verify": "ledger verify",
}
_KEYS = {
    "clients": "parties.count",
    "data": "data.source",
    "eps": "privacy.epsilon",
    "epsilon": "privacy.epsilon",
    "lr": "algorithm.learning-rate",
    "parties": "parties.count",
}


def add_suggestion(error: click.UsageError) -> None:
    """Replace click's own suggestions by ours, which may be none."""
    command: Any = getattr(error.ctx, "command", None)
    if isinstance(error, click.NoSuchOption):
        options = [name for each in getattr(command, "params", ()) for name in each.opts]
        word = error.option_name.lstrip("-")
        keys = _find_job_keys(word) if "--set" in options else []
        near = _find_similar(word, [name[2:] for name in options if name.startswith("--")])
        meant = keys or [f"--{name}" for name in near]
    else:  # in versions of click with an error class for commands
        word = str(getattr(error, "command_name", ""))
        known = [_COMMANDS[word]] if word in _COMMANDS else []
        meant = known or _find_similar(word, getattr(command, "commands", ()))
    vars(error).update(possibilities=meant)


def _find_similar(word: str, choices: Iterable[str]) -> list[str]:
    return get_close_matches(word, choices, cutoff=_MIN_SIMILARITY)


def _find_job_keys(word: str) -> list[str]:
    from parley.server.jobs.key_lookup import find_keys  # noqa: PLC0415 - start-up: only for an error

    keys = [_KEYS[word]] if word in _KEYS else find_keys(word)
    return [f"--set {key}=…" for key in keys]
