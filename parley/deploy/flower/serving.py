"""A deployment's server and parties where Flower carries the messages: processes, kept alive."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from parley.deploy.flower.network import start_superlink, start_supernode
from parley.deploy.folders import PartyHome, ServerHome
from parley.deploy.keeping import Keeping
from parley.deploy.processes import ProcessError, Supervisor, free_ports


def serve(home: ServerHome, *, say: Callable[[str], None]) -> None:
    """Runs a deployment's SuperLink until it is interrupted."""
    known = [party.name for party in home.deployment.parties]
    with Supervisor() as supervisor:
        link = start_superlink(supervisor, home.folder, port=home.port, host=home.listen)
        control = link.control()
        say(f"Listening on {home.listen}:{home.port} for {', '.join(known)}. The roster's id:")
        say(f"  {home.deployment.spoken}")
        keeping = Keeping(supervisor, say=say)
        online: set[str] = set()
        while True:
            now = online
            if keeping.look():
                with suppress(ProcessError):  # it has just started, or is about to end
                    now = control.online() & set(known)
            for name in sorted(now - online):
                say(f"+ {name} is online ({len(now)} of {len(known)}).")
            for name in sorted(online - now):
                say(f"- {name} is offline ({len(now)} of {len(known)}).")
            online = now
            time.sleep(2)


def attend(
    home: PartyHome, *, address: str, say: Callable[[str], None], explain: Callable[[], str]
) -> None:
    """Runs a party's SuperNode until it is interrupted; `explain` says what is wrong."""
    with Supervisor() as supervisor:
        start_supernode(
            supervisor, home.folder, name=home.name, server=address, port=free_ports(1)[0]
        )
        say(f"What it answers is in {home.folder / 'party.log'}.")
        keeping = Keeping(supervisor, say=say, explain=lambda _process: explain())
        while True:
            keeping.look()
            time.sleep(1)
