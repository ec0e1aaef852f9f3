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

from parley.interrupts import raise_interrupts
from parley.terminal.heartbeat import say_working

_PANEL = "Deployments: real parties, each on its own machine"

_COMMANDS = {
    "new": (
        "parley.commands.new:new",
        "Make a folder with a job, a schema, a network and a notebook that run as they are.",
    ),
    "run": (
        "parley.commands.run:run",
        "Run a job with all its parties here; write a run folder with model, ledger and report.",
    ),
    "plan": (
        "parley.commands.plan:plan",
        "Show the noise and the cost in ε of a job before any data are read.",
    ),
    "report": (
        "parley.commands.report:report",
        "Write a run's report.html, even if the run was interrupted.",
    ),
    "predict": (
        "parley.commands.predict:predict",
        "Predict a label for every row of a file, with its probability.",
    ),
    "show": (
        "parley.commands.predict:show",
        "Show a model, its privacy guarantee, and the contribution of each column.",
    ),
    "sample": (
        "parley.commands.sample:sample",
        "Draw rows from a run's generator, at no further privacy cost.",
    ),
    "query": (
        "parley.commands.query:query",
        "Query parties for private statistics: counts, histograms, sums, means and more.",
    ),
    "sweep": (
        "parley.commands.sweep:run_sweep_command",
        "Simulate a job for every combination of key values; plot means with intervals.",
    ),
    "compare": (
        "parley.commands.sweep:compare",
        "Compare runs: the keys in which their jobs differ, and their results.",
    ),
    "twin": (
        "parley.non_private_baseline:train_non_private_command",
        "Train a job's model without privacy, in a simulation, as a baseline.",
    ),
    "ledger": (
        "parley.commands.ledger:ledger_app",
        "Show, verify, copy or upgrade a privacy ledger; free a "
        "killed run's budget; raise a budget.",
    ),
    "schema": (
        "parley.commands.schema:schema_app",
        "Describe your columns from public knowledge, and check files against the description.",
    ),
    "audit": (
        "parley.commands.audit:audit_app",
        "Attack a job in simulation, and compute a lower bound on its real ε.",
    ),
    "certificate": (
        "parley.commands.certificate:certificate_app",
        "Sign a certificate of a run's privacy guarantee, or verify one offline. "
        "[bold]parley certificate RUN[/bold] signs one.",
    ),
    "completion": (
        "parley.commands.completion:print_completion",
        "Print a script that completes commands and options in your shell.",
    ),
}
_DEPLOYMENTS = {
    "server": (
        "parley.commands.server:run_server",
        "Run a deployment's server in the foreground; Ctrl-C (or systemd) stops it.",
    ),
    "party": (
        "parley.commands.party:run_party",
        "Run a party in the foreground; Ctrl-C (or systemd) stops it.",
    ),
    "owner": (
        "parley.commands.owner:owner_app",
        "Approve or refuse jobs as the owner of a party's data. Jobs wait for this if party.toml "
        "sets approval-above.",
    ),
    "submit": (
        "parley.commands.operator:submit",
        "Run a job with the parties of a deployment, from the server's folder or an operator's.",
    ),
    "status": (
        "parley.commands.operator:show_status",
        "Show a deployment's parties and runs, and the state of each party in them.",
    ),
    "stop": (
        "parley.commands.operator:stop",
        "Stop a run; `parley submit --resume RUN` continues it.",
    ),
    "deploy": (
        "parley.commands.deploy:deploy_app",
        "Make a deployment's folders and keys; renew and replace keys.",
    ),
}
"""Name → location of the function or group, and the first paragraph of its help."""


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

    def __init__(self, name: str, location: str, help: str, panel: str | None) -> None:
        super().__init__(name, help=help)
        self.rich_help_panel = panel
        self._place = location

    @cached_property
    def loaded(self) -> click.Command:
        """The loaded command."""
        module, attribute = self._place.split(":")
        found = getattr(import_module(module), attribute)
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
        for panel, rows in ((None, _COMMANDS), (_PANEL, _DEPLOYMENTS)):
            for name, (place, said) in rows.items():
                self.add_command(LazyCommand(name, place, said, panel))
