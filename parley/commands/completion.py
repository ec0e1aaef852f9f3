"""`parley completion`: the script by which a shell completes commands and options."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from typer._completion_shared import get_completion_script

from parley.command_options import COMPLETION_VARIABLE


def print_completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Your shell.")],
) -> None:
    """Print a script that completes commands and options in your shell.

    bash: [bold]eval "$(parley completion bash)"[/bold] in ~/.bashrc.

    zsh: [bold]eval "$(parley completion zsh)"[/bold] in ~/.zshrc.

    fish: [bold]parley completion fish > ~/.config/fish/completions/parley.fish[/bold]
    """
    typer.echo(
        get_completion_script(prog_name="parley", complete_var=COMPLETION_VARIABLE, shell=shell)
    )
