"""Format a deployment's status, its parties and runs, as lines or as a table that is updated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from rich.console import Group
from rich.live import Live
from rich.text import Text

from parley.presentation.short_layout import Row, format_rows
from parley.terminal.rich_output import Screen, build_plain_table, guard_redirected

_EVERY_S = 1.0
_RUNS_SHOWN, _ENDED_SHOWN, _PARTIES_SHOWN = 8, 3, 8
_QUEUED, _ACTIVE = "queued", {"running", "stopping"}


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """Status of a run.

    Attributes:
        party_states: state of each party (`parties.json`); empty once the run has ended.
    """

    name: str
    state: str
    party_states: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DeploymentStatus:
    """Status of a deployment."""

    address: str
    deployment_id: str
    parties: Mapping[str, bool]
    runs: tuple[RunStatus, ...]
    duplicates: tuple[str, ...] = ()

    def format_lines(self) -> Iterator[str]:
        """Return the status as text."""
        yield f"Deployment at {self.address}, id {self.deployment_id}"
        for name in self.parties:
            yield f"  {name}: {self._format_connection(name)}"
        for run in self.runs:
            yield f"{run.name}: {run.state}{_format_party_states(run.party_states)}"
            for note in run.notes:
                yield f"  {note}"

    def list_lines(self) -> list[str]:
        """Return at most 15 lines: who is connected, what runs and waits, what ended last."""
        active = [run for run in self.runs if run.state in _ACTIVE or run.party_states]
        queued = ["; ".join((run.name, *run.notes)) for run in self.runs if run.state == _QUEUED]
        over = [run for run in self.runs if run not in active and run.state != _QUEUED]
        ended = ["; ".join((f"{run.name}: {run.state}", *run.notes)) for run in over]
        rows = [
            Row("Parties", self._format_parties()),
            *(Row("Running", self._format_run(run), rank=1) for run in active),
            *([] if active else [Row("Running", "none")]),
            Row("Queued", ", ".join(queued) or "none", rank=2),
            *(Row("Ended", text, rank=3) for text in ended[-_ENDED_SHOWN:]),
        ]
        return format_rows(rows)

    def _format_parties(self) -> str:
        """Return each of a few parties, or how many there are and who is missing."""
        offline = [name for name, online in self.parties.items() if not online]
        odd = [f"{name} attends twice (was its key copied?)" for name in self.duplicates]
        if len(self.parties) <= _PARTIES_SHOWN:
            shown = [f"{name} {'online' if on else 'OFFLINE'}" for name, on in self.parties.items()]
            return ", ".join([*shown, *odd])
        online = f"{len(self.parties) - len(offline)} of {len(self.parties)} online"
        missing = f"; OFFLINE: {', '.join(offline)}" if offline else ""
        return "; ".join([online + missing, *odd])

    def _format_run(self, run: RunStatus) -> str:
        waiting = {name for name, online in self.parties.items() if not online}
        missing = [
            party["name"]
            for party in run.party_states.get("parties", [])
            if party["name"] in waiting or party["state"] == "offline"
        ]
        waits = f", waits for {', '.join(missing)}" if missing else ""
        states = _format_party_states(run.party_states)
        return "; ".join((f"{run.name}: {run.state}{states}{waits}", *run.notes))

    def _format_connection(self, name: str) -> str:
        state = "online" if self.parties[name] else "offline"
        return f"{state}, attends twice (was its key copied?)" if name in self.duplicates else state

    def build_table(self) -> Group:
        """Return the parties with their state in the current run, and the last runs."""
        board = next((run.party_states for run in reversed(self.runs) if run.party_states), {})
        doing = {party["name"]: party for party in board.get("parties", [])}
        parties = build_plain_table("party", "connection", "in the run", "reason")
        for name, online in self.parties.items():
            own = doing.get(name, {})
            state = Text(self._format_connection(name), style="green" if online else "red")
            doing_now = Text(own.get("state", "")), Text(own.get("reason", ""))
            parties.add_row(Text(name), state, *doing_now)
        runs = build_plain_table("run", "state", "round", "stage")
        for run in self.runs[-_RUNS_SHOWN:]:
            number, stage = (str(run.party_states.get(key, "")) for key in ("round", "stage"))
            runs.add_row(Text(run.name), Text(run.state), number, Text(stage))
        return Group(Text(f"Deployment at {self.address}"), parties, runs)


def watch_status(
    fetch_status: Callable[[], DeploymentStatus], *, connection_error: type[Exception]
) -> NoReturn:
    """Show a deployment's status repeatedly, until it is interrupted.

    On a terminal this is a table that is redrawn. Elsewhere the lines are printed when they change.

    Args:
        connection_error: raised by `fetch_status` if the server does not answer; the request is
            then
            repeated.
    """
    console = Screen()
    if not console.is_terminal:
        _print_changes(fetch_status, connection_error)
    with Live(console=console, auto_refresh=False, screen=False) as live:
        guard_redirected()
        while True:
            try:
                live.update(fetch_status().build_table(), refresh=True)
            except connection_error as error:
                live.update(Text(str(error), style="yellow"), refresh=True)
            time.sleep(_EVERY_S)


def _print_changes(
    fetch_status: Callable[[], DeploymentStatus], connection_error: type[Exception]
) -> NoReturn:
    shown = ""
    while True:
        try:
            said = "\n".join(fetch_status().format_lines())
        except connection_error as error:
            said = str(error)
        if said != shown:
            print(said, flush=True)
            shown = said
        time.sleep(_EVERY_S)


def _format_party_states(party_states: Mapping[str, Any]) -> str:
    if not party_states:
        return ""
    states = ", ".join(
        f"{party['name']} {party['state']}" + (f" ({party['reason']})" if party["reason"] else "")
        for party in party_states["parties"]
    )
    return f", round {party_states['round']}, {party_states['stage']}: {states}"
