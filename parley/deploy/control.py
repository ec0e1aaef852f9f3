"""What is asked of a SuperLink: its nodes, its runs, a new run. Flower's Control API.

The commands `flwr supernode register`, `flwr run`, `flwr list` and `flwr stop` do the same, at a
second each; a run with ten parties asks a dozen times before it starts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        try:
            yield
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

    def admit(self, parties: Mapping[str, str]) -> None:
        """Lets in the SuperNodes with these OpenSSH public keys (by name), and nobody else."""
        wanted = {_pem(line): name for name, line in parties.items()}
        known = {bytes(node.public_key): node for node in self._nodes()}
        for key, node in known.items():
            if key not in wanted:
                # A key that was rotated away.
                with self._asking(f"shut out {node.name}"):
                    self._client.UnregisterNode(UnregisterNodeRequest(node_id=node.node_id))
        for key, name in wanted.items():
            if key not in known:
                with self._asking(f"register {name}"):
                    self._client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))

    def _nodes(self) -> list[NodeInfo]:
        with self._asking("list its nodes"):
            nodes = self._client.ListNodes(ListNodesRequest()).nodes_info
        return [node for node in nodes if node.status != "unregistered"]

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
        with self._asking("start a run"):
            return int(self._client.StartRun(request).run_id)

    def runs(self, run: int | None = None) -> list[RunStatus]:
        """How its runs stand, or that one."""
        with self._asking("list its runs"):
            found = self._client.ListRuns(ListRunsRequest(run_id=run)).run_dict
        return [
            RunStatus(run=number, status=one.status.status, outcome=one.status.sub_status)
            for number, one in sorted(found.items())
        ]

    def stop(self, run: int) -> None:
        """Stops a run; its ServerApp ends between two commits."""
        with self._asking(f"stop run {run}"):
            self._client.StopRun(StopRunRequest(run_id=run))


def _pem(line: str) -> bytes:
    """An OpenSSH public key as Flower keeps it."""
    return serialization.load_ssh_public_key(line.encode()).public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
