"""What somebody meant who typed a command or an option that there is none of.

A job's keys are set by `--set`: an option that is called like one is told so. Other words are in
two tables, and else only what is spelt nearly alike is suggested.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

import click

__all__ = ["suggest"]

_NEAR = 0.75
"""How alike words are of which one may be the other, misspelt: not train and twin (.67)."""

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


def suggest(error: click.ClickException) -> None:
    """Puts what was meant, or nothing, in the place of click's own suggestions."""
    # Earlier versions of click have no class for a command, and suggest none.
    if isinstance(error, getattr(click.exceptions, "NoSuchCommand", ())):
        known = getattr(getattr(error.ctx, "command", None), "commands", ())
        meant = _COMMANDS.get(error.command_name)
        error.possibilities = [meant] if meant else _near(error.command_name, known)
    elif isinstance(error, click.NoSuchOption) and error.ctx is not None:
        options = [name for each in error.ctx.command.params for name in each.opts]
        keys = _keys(error.option_name.lstrip("-")) if "--set" in options else []
        error.possibilities = keys or _near(error.option_name, options)


def _near(word: str, known: Iterable[str]) -> list[str]:
    return get_close_matches(word, known, cutoff=_NEAR)


def _keys(word: str) -> list[str]:
    from parley.server.jobs.file import keys_called  # noqa: PLC0415 - start-up: for an error alone

    keys = [_KEYS[word]] if word in _KEYS else keys_called(word)
    return [f"--set {key}=…" for key in keys]
