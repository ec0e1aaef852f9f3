"""A real server on its port, and strangers who have nothing but its certificate's authority."""

from __future__ import annotations

import socket
import ssl

import httpx
import pytest
from flwr.proto.control_pb2 import ListNodesRequest, ListRunsRequest, StopRunRequest
from flwr.supercore.control import ControlHttpClient

from parley.deploy.flower.control import Control, find_desk
from parley.deploy.flower.network import start_superlink
from parley.deploy.making import make_deployment
from parley.deploy.processes import ProcessError, Supervisor, free_ports


def memory(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def refused_by(address, ca, call):
    client = ControlHttpClient.from_server_address(
        server_address=address, insecure=False, root_certificates=ca.read_bytes(), interceptors=[]
    )
    try:
        with pytest.raises(httpx.HTTPStatusError) as error:
            call(client)
        return error.value.response.status_code
    finally:
        client.close()


def test_a_stranger_with_the_authoritys_certificate_gets_nothing_and_costs_nothing(ground):
    (port,) = free_ports(1)
    make_deployment(
        ground.run, hosts=["127.0.0.1"], parties=["north", "south"], port=port, flower=True
    )
    server = ground.run / "server"
    ca = server / "ca.crt"
    with Supervisor() as supervisor:  # starting Flower's server takes seconds
        link = start_superlink(supervisor, server, port=port)
        public = f"127.0.0.1:{port}"
        calls = (
            lambda client: client.ListNodes(ListNodesRequest()),
            lambda client: client.ListRuns(ListRunsRequest()),
            lambda client: client.StopRun(StopRunRequest(run_id=1)),
        )
        assert {refused_by(public, ca, call) for call in calls} == {404}
        # Nor does a process of this machine that cannot read the server's folder.
        assert {refused_by(link.desk.address, ca, call) for call in calls} == {401}
        context = ssl.create_default_context(cafile=str(ca))
        with httpx.Client(base_url=f"https://{public}", verify=context) as client:
            for path in ("/v1/fleet/activate-node", "/v1/fleet/push-object", "/openapi.json"):
                before = memory(link.process.popen.pid)
                try:
                    status = client.post(path, content=bytes(200 << 20)).status_code
                except httpx.TransportError:
                    status = 0  # it was closed while the rest was still being sent
                assert status in {0, 401, 404}
                assert memory(link.process.popen.pid) - before < 40 << 20
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1") as endless,
        ):
            before = memory(link.process.popen.pid)
            try:
                endless.sendall(b"POST / HTTP/1.1\r\nx: " + bytes(32 << 20))
                said = endless.recv(100)
            except OSError:
                said = b""
            assert not said or b" 400 " in said
            assert memory(link.process.popen.pid) - before < 20 << 20
        assert link.process.running
        control = Control(find_desk(server))
        assert control.online() == set()
        assert control.runs() == []
        control.close()


def test_commands_without_a_server_say_how_to_start_it(tmp_path):
    with pytest.raises(ProcessError, match=r"does not run here. Start it: parley server"):
        find_desk(tmp_path)
