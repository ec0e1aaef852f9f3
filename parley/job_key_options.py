"""Options of `parley run`, `plan` and `sweep` for the job keys that people change most.

They have the names of the keywords of `parley.run` (`parley.keyword_keys`). `--set` takes the other
keys.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

_PANEL = "Common keys of the job"


def _option(kind: Any, help: str, **settings: Any) -> Any:
    return Annotated[kind | None, typer.Option(help=help, rich_help_panel=_PANEL, **settings)]


_OPTIONS = {
    "epsilon": _option(float, "Privacy budget ε of the run (privacy.epsilon)."),
    "delta": _option(float, "Privacy budget δ of the run (privacy.delta)."),
    "parties": _option(int, "Number of parties (parties.count).", min=1),
    "unit": _option(str, "What the guarantee hides: record, party or both (privacy.unit)."),
    "model": _option(
        str,
        "What is trained: logistic, softmax, ridge, mlp, cnn, … or your own network, "
        "FILE.py:FUNCTION (model.kind).",
    ),
    "algorithm": _option(str, "How it is trained (algorithm.kind)."),
    "rounds": _option(str, "Number of rounds, or auto (algorithm.rounds)."),
    "seed": _option(
        int, "Seed, to repeat a run. Noise from a seed protects nobody (run.seed).", min=0
    ),
    "engine": _option(
        str,
        "fast: all parties in this process. ray: workers of Ray, on this machine or a cluster. "
        "flower: Flower's simulation. Both need parley\\[ray]. processes: a real server and one "
        "process per party, with TLS (run.engine).",
    ),
    "data": _option(
        str, "Records: a file, a glob with one file per party, or a bundled data set (data.source)."
    ),
    "schema": _option(str, "Schema file with the columns' public ranges (data.schema)."),
    "label": _option(
        str, "Column to predict, without --schema: a schema is then made from the data."
    ),
}


def accept_key_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the twelve options, which it gets as the dictionary `keys`."""
    signature = inspect.signature(command, eval_str=True)
    own = [each for name, each in signature.parameters.items() if name != "keys"]
    added = [
        inspect.Parameter(
            name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation
        )
        for name, annotation in _OPTIONS.items()
    ]

    @functools.wraps(command)
    def run_command(**given: Any) -> None:
        keys = {name: given.pop(name) for name in _OPTIONS}
        rounds = keys["rounds"]
        keys["rounds"] = int(rounds) if rounds and rounds.isdecimal() else rounds
        command(keys=keys, **given)

    wrapped: Any = run_command
    wrapped.__signature__, wrapped.__annotations__ = inspect.Signature(own + added), {}
    command_with_options: Callable[..., None] = wrapped
    return command_with_options
