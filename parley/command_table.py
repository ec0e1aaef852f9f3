"""List the commands by name. A command's module is imported when it is called, not for --help."""

from __future__ import annotations

import re
from functools import cached_property
from importlib import import_module
from typing import Any

import click
import typer.main
from typer.core import TyperGroup
from typer.models import CommandInfo

from parley.startup_interrupts import raise_interrupts
from parley.terminal.heartbeat import say_working

_PANEL = "Deployments: real parties, each on its own machine"

_PLACES = {
    "new": "commands.new:new",
    "run": "commands.run:run",
    "plan": "commands.plan:plan",
    "report": "commands.report:report",
    "predict": "commands.predict:predict",
    "show": "commands.predict:show",
    "sample": "commands.sample:sample",
    "query": "commands.query:query",
    "sweep": "commands.sweep:run_sweep_command",
    "compare": "commands.sweep:compare",
    "twin": "non_private_baseline:train_non_private_command",
    "ledger": "commands.ledger:ledger_app",
    "schema": "commands.schema:schema_app",
    "audit": "commands.audit:audit_app",
    "certificate": "commands.certificate:certificate_app",
    "completion": "commands.completion:print_completion",
    "server": "commands.server:run_server",
    "party": "commands.party:run_party",
    "owner": "commands.owner:owner_app",
    "submit": "commands.operator:submit",
    "status": "commands.operator:show_status",
    "stop": "commands.operator:stop",
    "deploy": "commands.deploy:deploy_app",
}
"""Name → location of the function or group in `parley`."""

_COMMANDS = {
    "new": "Make a folder with a job, a schema, a network and a notebook that run as they are.",
    "run": "Run a job with all its parties here; write a run folder with model, ledger and report.",
    "plan": "Show the noise and the cost in ε of a job before any data are read.",
    "report": "Write a run's report.html, even if the run was interrupted.",
    "predict": "Predict a label for every row of a file, with its probability.",
    "show": "Show a model, its privacy guarantee, and the contribution of each column.",
    "sample": "Draw rows from a run's generator, at no further privacy cost.",
    "query": "Query parties for private statistics: counts, histograms, sums, means and more.",
    "sweep": "Simulate a job for every combination of key values; plot means with intervals.",
    "compare": "Compare runs: the keys in which their jobs differ, and their results.",
    "twin": "Train a job's model without privacy, in a simulation, as a baseline.",
    "ledger": (
        "Show, verify, copy or upgrade a privacy ledger; free a killed run's budget; raise a "
        "budget."
    ),
    "schema": (
        "Describe your columns from public knowledge, and check files against the description."
    ),
    "audit": "Attack a job in simulation, and compute a lower bound on its real ε.",
    "certificate": (
        "Sign a certificate of a run's privacy guarantee, or verify one offline. [bold]parley "
        "certificate RUN[/bold] signs one."
    ),
    "completion": "Print a script that completes commands and options in your shell.",
}
_DEPLOYMENTS = {
    "server": "Run a deployment's server in the foreground; Ctrl-C (or systemd) stops it.",
    "party": "Run a party in the foreground; Ctrl-C (or systemd) stops it.",
    "owner": (
        "Approve or refuse jobs as the owner of a party's data. Jobs wait for this if party.toml "
        "sets approval-above."
    ),
    "submit": (
        "Run a job with the parties of a deployment, from the server's folder or an operator's."
    ),
    "status": "Show a deployment's parties and runs, and the state of each party in them.",
    "stop": "Stop a run; `parley submit --resume RUN` continues it.",
    "deploy": "Make a deployment's folders and keys; renew and replace keys.",
}
"""Name → first paragraph of its help, in the order of `--help`."""


_WORKING = frozenset(_COMMANDS) - {"run"}
"""Commands that may take minutes and draw no progress bar. Some of the others never end."""


def _unwrap_help(command: click.Command) -> click.Command:
    """Join the lines of each paragraph of the help, which the terminal wraps again."""
    command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", command.help or "")
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _unwrap_help(each)
    return command


class LazyCommand(click.Command):
    """A command with only its name and one line of help until it is called."""

    def __init__(self, name: str, help: str, panel: str | None) -> None:
        super().__init__(name, help=help)
        self.rich_help_panel = panel

    @cached_property
    def loaded(self) -> click.Command:
        """The loaded command."""
        module, attribute = _PLACES[str(self.name)].split(":")
        found = getattr(import_module(f"parley.{module}"), attribute)
        if isinstance(found, typer.Typer):
            group = typer.main.get_group(found)
            group.help = group.help or self.help
            return _unwrap_help(group)
        command = typer.main.get_command_from_info(
            CommandInfo(name=self.name, callback=found),
            pretty_exceptions_short=False,
            rich_markup_mode="rich",
        )
        return _unwrap_help(command)

    def make_context(self, *words: Any, **more: Any) -> click.Context:
        """Return the loaded command's context, with which click continues."""
        loaded = self.loaded
        raise_interrupts()
        context = loaded.make_context(*words, **more)
        if self.name in _WORKING and not context.params.get("quiet"):
            context.with_resource(say_working(str(self.name)))
        return context


class CommandTable(TyperGroup):
    """All commands of `parley`, in the order of --help."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for panel, commands in ((None, _COMMANDS), (_PANEL, _DEPLOYMENTS)):
            for name, said in commands.items():
                self.add_command(LazyCommand(name, said, panel))
