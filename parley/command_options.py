"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

COMPLETION_VARIABLE = "_PARLEY_COMPLETE"
"""Environment variable by which a shell asks `parley` for completions."""

JobFile = Annotated[
    Path | None, Argument(metavar="[JOB]", help="Job file (TOML); none: the defaults.")
]
Overrides = Annotated[
    list[str] | None,
    Option(
        "--set", metavar="KEY=VALUE", help="Override one key, e.g. privacy.epsilon=2. Repeatable."
    ),
]
Verbose = Annotated[
    bool, Option("--verbose", "-v", help="Print every detail instead of a few lines.")
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Show no progress.")]
AsJson = Annotated[
    bool, Option("--json", help="Print one JSON object on stdout, everything else on stderr.")
]
ModelPath = Annotated[
    Path, Argument(metavar="MODEL", help="A run's folder, or its model.safetensors.")
]
OwnModels = Annotated[
    list[str] | None,
    Option(
        "--own-model",
        metavar="FILE:FUNCTION",
        help="Your own network or feature map that the model may use; a model's file cannot name "
        "code. Repeatable.",
    ),
]
ServerDir = Annotated[Path, Argument(metavar="DIR", help="The server's folder.")]
PartyDir = Annotated[Path, Argument(metavar="DIR", help="This party's folder.")]
LogJson = Annotated[bool, Option("--log-json", help="Log one JSON object per line on stderr.")]
