"""What is asked of a SuperLink: its nodes, its runs, a new run. Flower's Control API.

The commands `flwr supernode register`, `flwr run`, `flwr list` and `flwr stop` do the same, at a
second each; a run with ten parties asks a dozen times before it starts.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import httpx
from cryptography.hazmat.primitives import serialization
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.proto.federation_config_pb2 import SimulationConfig
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from parley.deploy.processes import ProcessError

__all__ = ["Control", "RunStatus"]

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


class Control:
    """The Control API of the SuperLink at `address`; without `ca`, one on this machine."""

    def __init__(self, address: str, *, ca: Path | None = None) -> None:
        self.address = address
        self._client = ControlHttpClient.from_server_address(
            server_address=address,
            insecure=ca is None,
            root_certificates=None if ca is None else ca.read_bytes(),
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def _ask(self, what: str, call: Callable[[], Answer], *, again: bool = True) -> Answer:
        """Its answer; asked `again` while it is too busy to give one, for a minute."""
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return call()
            except httpx.HTTPStatusError as error:
                raise ProcessError(
                    f"The server at {self.address} refused to {what}: {error.response.text[:300]}"
                ) from error
            except httpx.HTTPError as error:
                busy = isinstance(error, httpx.TimeoutException) and again
                if not busy or time.monotonic() > until:
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

    def admit(self, parties: Mapping[str, str]) -> None:
        """Lets in the SuperNodes with these OpenSSH public keys (by name), and nobody else."""
        wanted = {_pem(line): name for name, line in parties.items()}
        known = {bytes(node.public_key): node for node in self._nodes()}
        for key, node in known.items():
            if key not in wanted:
                # A key that was rotated away.
                gone = UnregisterNodeRequest(node_id=node.node_id)
                self._ask(f"shut out {node.name}", partial(self._client.UnregisterNode, gone))
        for key, name in wanted.items():
            if key not in known:
                new = RegisterNodeRequest(public_key=key, name=name)
                self._ask(f"register {name}", partial(self._client.RegisterNode, new))

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


def _pem(line: str) -> bytes:
    """An OpenSSH public key as Flower keeps it."""
    return serialization.load_ssh_public_key(line.encode()).public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
