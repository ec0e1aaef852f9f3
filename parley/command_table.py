"""List the commands by name. A command's module is imported when it is called, not for --help."""

from __future__ import annotations

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
        "Show what a budget buys before any data are read: noise, ε by round, ring and grid.",
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
        "Ask several parties for statistics (counts, histograms, sums, means), each charged first.",
    ),
    "sweep": (
        "parley.commands.sweep:run_sweep_command",
        "Run a job over a grid of its keys, as simulations; figures with means and intervals.",
    ),
    "compare": (
        "parley.commands.sweep:compare",
        "Compare runs: first the keys in which their jobs differ, then their results.",
    ),
    "twin": (
        "parley.non_private_baseline:train_non_private_command",
        "Train a job's model without privacy, in a simulation, to compare private models with.",
    ),
    "ledger": (
        "parley.commands.ledger:ledger_app",
        "Show or verify a privacy ledger, free the reservations of a killed run, raise a budget.",
    ),
    "schema": (
        "parley.commands.schema:schema_app",
        "Describe your columns from public knowledge, and check files against the description.",
    ),
    "audit": (
        "parley.commands.audit:audit_app",
        "Measure a lower bound on the real ε of a job, through Parley's own code.",
    ),
    "certificate": (
        "parley.commands.certificate:certificate_app",
        "Sign what a run was charged: [bold]parley certificate RUN[/bold]; verify a certificate "
        "offline: [bold]parley certificate verify FILE[/bold]; write a run's entry for the public "
        "registry of DP deployments: [bold]parley certificate registry RUN[/bold].",
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
        "Approve or refuse jobs as a party's owner: with approval-above in party.toml, jobs wait "
        "for it.",
    ),
    "submit": (
        "parley.commands.operator:submit",
        "Run a job with the parties of a deployment, from the server's folder or an operator's.",
    ),
    "status": (
        "parley.commands.operator:show_status",
        "Show a deployment's parties and runs, and the state of every party in a run.",
    ),
    "stop": (
        "parley.commands.operator:stop",
        "Stop a run; `parley submit --resume RUN` continues it.",
    ),
    "deploy": (
        "parley.commands.deploy:deploy_app",
        "Make a deployment's folders and keys; renew and rotate keys.",
    ),
}
"""Name → location of the function or group, and the first paragraph of its help."""


_WORKING = frozenset(_COMMANDS) - {"run"}
"""Commands that may take minutes and draw no progress bar. Some of the others never end."""


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
            return group
        return typer.main.get_command_from_info(
            CommandInfo(name=self.name, callback=found),
            pretty_exceptions_short=False,
            rich_markup_mode="rich",
        )

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
