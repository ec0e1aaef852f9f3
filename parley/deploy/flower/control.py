"""What is asked of a SuperLink: its nodes, its runs, a new run. Flower's Control API.

The commands `flwr supernode register`, `flwr run`, `flwr list` and `flwr stop` do the same, at a
second each; a run with ten parties asks a dozen times before it starts.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import httpx
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    StartRunRequest,
    StopRunRequest,
)
from flwr.proto.federation_config_pb2 import SimulationConfig
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from tenacity import Retrying, retry_if_exception_type, stop_after_delay

from parley.deploy.flower.gate import CONTROL_HEADER
from parley.deploy.private_files import check_private, write_private
from parley.deploy.processes import ProcessError

DESK_SECRET = "control.secret"  # noqa: S105 - a file's name
_DESK = "control.json"

_PATIENCE_S = 60.0

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """How a Flower run stands: `pending`, `starting`, `running` or `finished`, and how."""

    run: int
    status: str
    outcome: str

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return self.status == "finished"


@dataclass(frozen=True, kw_only=True)
class ControlDesk:
    """Where this machine's commands reach a SuperLink.

    Attributes:
        address: a port of 127.0.0.1.
        ca: the authority of its certificate; None in a simulation, which has none.
        secret: lets a command in; whoever can read the server's folder has it.
    """

    address: str
    ca: Path | None
    secret: str = field(repr=False)


def open_desk(folder: Path, *, port: int, ca: Path | None) -> ControlDesk:
    """A desk with a fresh secret, written where `find_desk` finds it."""
    desk = ControlDesk(address=f"127.0.0.1:{port}", ca=ca, secret=secrets.token_hex(32))
    write_private(folder / DESK_SECRET, desk.secret.encode())
    write_private(folder / _DESK, json.dumps({"address": desk.address}, allow_nan=False).encode())
    return desk


def find_desk(folder: Path) -> ControlDesk:
    """The desk of the server that runs in this folder.

    Raises:
        ProcessError: none was ever started there.
        PkiError: others can read its secret.
    """
    try:
        address = json.loads((folder / _DESK).read_text(encoding="utf-8"))["address"]
        secret = (folder / DESK_SECRET).read_text(encoding="ascii").strip()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProcessError(
            f"Cannot reach the server of {folder}: it does not run here. Start it: parley server "
            f"{folder}"
        ) from error
    check_private(folder / DESK_SECRET)
    return ControlDesk(address=str(address), ca=folder / "ca.crt", secret=secret)


class _Secret:
    """Adds the desk's secret to every request."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        context.request.headers[CONTROL_HEADER] = self._secret
        return call_next(context)


class Control:
    """The Control API of the SuperLink at a desk of this machine."""

    def __init__(self, desk: ControlDesk) -> None:
        self.address = desk.address
        self._client = ControlHttpClient.from_server_address(
            server_address=desk.address,
            insecure=desk.ca is None,
            root_certificates=None if desk.ca is None else desk.ca.read_bytes(),
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="flwr CLI"),
                _Secret(desk.secret),
            ],
        )

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def _ask(self, what: str, call: Callable[[], Answer], *, again: bool = True) -> Answer:
        """Its answer; asked `again` while it is too busy to give one, for a minute."""
        while_busy = Retrying(
            retry=retry_if_exception_type(httpx.TimeoutException),
            stop=stop_after_delay(_PATIENCE_S if again else 0),
            reraise=True,
        )
        try:
            return while_busy(call)
        except httpx.HTTPStatusError as error:
            raise ProcessError(
                f"The server at {self.address} refused to {what}: {error.response.text[:300]}"
            ) from error
        except httpx.HTTPError as error:
            raise ProcessError(
                f"Cannot reach the server at {self.address} to {what}: {error}."
            ) from error

    def answers(self) -> bool:
        """Whether it answers yet."""
        try:
            self._client.ListRuns(ListRunsRequest(limit=1))
        except httpx.HTTPError:
            return False
        return True

    def _nodes(self) -> list[NodeInfo]:
        found = self._ask("list its nodes", lambda: self._client.ListNodes(ListNodesRequest()))
        return [node for node in found.nodes_info if node.status != "unregistered"]

    def online(self) -> set[str]:
        """Names of the SuperNodes that are online."""
        return {node.name for node in self._nodes() if node.status == "online"}

    def start(self, app: Mapping[str, bytes], *, supernodes: int | None = None) -> int:
        """Starts a run of an app (its files by path) and returns its number.

        `supernodes` makes it a simulation with that many nodes, one core each.
        """
        content, _ = build_fab_from_files(dict(app))
        federation = None
        if supernodes is not None:
            federation = SimulationConfig(
                num_supernodes=supernodes, client_resources_num_cpus=1, backend="ray"
            )
        request = StartRunRequest(
            fab=fab_to_proto(Fab(hashlib.sha256(content).hexdigest(), content, {})),
            override_federation_config=federation,
        )
        # Never asked twice: it would start two.
        started = self._ask("start a run", lambda: self._client.StartRun(request), again=False)
        return int(started.run_id)

    def runs(self, run: int | None = None) -> list[RunStatus]:
        """How its runs stand, or that one."""
        request = ListRunsRequest(run_id=run)
        found = self._ask("list its runs", lambda: self._client.ListRuns(request))
        return [
            RunStatus(run=number, status=one.status.status, outcome=one.status.sub_status)
            for number, one in sorted(found.run_dict.items())
        ]

    def stop(self, run: int) -> None:
        """Stops a run; its ServerApp ends between two commits."""
        self._ask(f"stop run {run}", lambda: self._client.StopRun(StopRunRequest(run_id=run)))
