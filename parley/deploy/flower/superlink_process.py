"""A SuperLink's process: Flower's app behind the two doors of `parley.deploy.flower.gate`.

    python -m parley.deploy.flower.superlink_process FOLDER --listen HOST:PORT -- (Flower's own)

Flower's own arguments say where the desk is, on 127.0.0.1. Without `--listen` (a simulation) there
is no gate. Should another version of Flower start its server in another way, nothing but the desk's
port would ever be open.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import uvicorn
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.supercore.constant import NodeStatus
from flwr.supercore.state.schema.linkstate_models import Node
from sqlalchemy import update

from parley.client.contract.printable import guard_streams
from parley.client.contract.roster import load_deployment
from parley.deploy.flower.gate import Desk, Gate
from parley.deploy.node_keys import node_key

if TYPE_CHECKING:
    from parley.client.contract.printable import guard_streams
from parley.client.contract.roster import Deployment

_HEADERS = 1 << 14


def main() -> None:
    """Entry point: returns when the SuperLink was ended."""
    parser = argparse.ArgumentParser(prog="parley.deploy.flower.superlink_process")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--control-secret", type=Path, required=True)
    parser.add_argument("--listen")
    given, flower = parser.parse_known_args()
    guard_streams()

    secret = given.control_secret.read_text(encoding="ascii").strip()

    class Quiet(uvicorn.Server):
        """A server beside the one that hears the signals."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    async def both(app: Any, own: dict[str, Any]) -> None:
        desk = uvicorn.Server(uvicorn.Config(Desk(app, secret=secret), **own))
        if given.listen is None:
            return await desk.serve()
        deployment = load_deployment(given.folder / "deployment.toml")
        admit(app.state.linkstate_factory.state(), deployment)
        host, _, port = given.listen.rpartition(":")
        # h11 reads headers up to a limit; the other parser reads them for ever.
        public = {"host": host.strip("[]"), "port": int(port), "lifespan": "off", "http": "h11"}
        limits = {"ws": "none", "h11_max_incomplete_event_size": _HEADERS, "server_header": False}
        gate = Quiet(uvicorn.Config(Gate(app, deployment), **{**own, **public, **limits}))
        beside = asyncio.create_task(gate.serve())
        await desk.serve()
        gate.should_exit = True
        await beside

    def run(app: Any, **own: Any) -> None:
        kept = ("host", "port", "log_config", "ssl_keyfile", "ssl_certfile")
        asyncio.run(both(app, {**{key: own[key] for key in kept}, "access_log": False}))

    # Of uvicorn only `run` is used there; a test says so.
    superlink = importlib.import_module("flwr.superlink.cli.flower_superlink")
    vars(superlink)["uvicorn"] = SimpleNamespace(run=run)
    sys.argv = ["flower-superlink", *[argument for argument in flower if argument != "--"]]
    superlink.flower_superlink()


def admit(state: Any, deployment: Deployment) -> None:
    """Lets the SuperNodes of a roster in, and shuts out all others.

    A key that was shut out before (a roster that was taken back, a command of Flower's) is let in
    again: Flower's own registration refuses a key that it has ever unregistered.

    Args:
        state: Flower's SQL LinkState.
        deployment: the roster.
    """

    keys = {node_key(party.node): party.name for party in deployment.parties}
    known = Node.public_key.in_(list(keys))
    gone = Node.status == NodeStatus.UNREGISTERED
    with state.session() as session:
        session.execute(update(Node).where(~known).values(status=NodeStatus.UNREGISTERED))
        session.execute(
            update(Node)
            .where(known, gone)
            .values(status=NodeStatus.REGISTERED, unregistered_at=None)
        )
    for key, name in keys.items():
        if state.get_node_id_by_public_key(key) is None:
            state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, 0, name=name)


if __name__ == "__main__":
    main()
