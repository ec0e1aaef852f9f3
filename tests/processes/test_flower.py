"""Flower's own commands carry a deployment's messages: SuperLink, SuperNodes, `flwr run`.

Its short form is in `test_flower_server_app.py`:
`test_a_deployments_parties_run_a_whole_job_in_the_servers_folder`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import NAMES

from parley.deploy.child_processes import Supervisor, build_environment, find_free_ports
from parley.deploy.process_errors import wait_until

ROOT = Path(__file__).parents[2]
OVERRIDES = 'parties.count=3 algorithm.rounds=2 secure-aggregation.backend="masked"'


def command(name):
    return str(Path(sys.executable).parent / name)


class Network:
    """What docs/flower.md says, on one machine."""

    def __init__(self, consortium, supervisor):
        self.consortium, self.supervisor = consortium, supervisor
        self.home = consortium / "flower"
        self.home.mkdir()
        port, *self.ports = find_free_ports(1 + len(NAMES) + 1)
        self.address = f"127.0.0.1:{port}"
        self.ca = consortium / "authority" / "ca.crt"
        self.environment = {
            **build_environment(),
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
        }
        (self.home / "config.toml").write_text(
            f'[superlink.consortium]\naddress = "{self.address}"\nroot-certificates = "{self.ca}"\n'
        )
        server = consortium / "server"
        self.start(
            "SuperLink",
            *("flower-superlink", "--host", "127.0.0.1", "--port", port),
            *("--ssl-ca-certfile", self.ca, "--ssl-certfile", server / "server.pem"),
            *("--ssl-keyfile", server / "server.key", "--enable-supernode-auth"),
            "--disable-runtime-dependency-installation",
            PARLEY_SERVER=str(server),
        )

    def start(self, name, program, *arguments, **more):
        return self.supervisor.start(
            name,
            [command(program), *map(str, arguments)],
            environment=self.environment | more,
            log=self.home / f"{name}.log",
        )

    def flwr(self, *arguments):
        done = subprocess.run(
            [command("flwr"), *map(str, arguments)],
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def key(self, name):
        key = self.home / f"{name}.key"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", key], check=True
        )
        return key

    def supernode(self, name, key, folder):
        return self.start(
            name,
            *("flower-supernode", "--superlink", self.address, "--root-certificates", self.ca),
            *("--auth-supernode-private-key", key, "--port", self.ports.pop()),
            *("--node-config", f'party="{folder}"'),
        )


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_flower_carries_a_deployments_messages_with_its_own_authentication(ground, consortium):
    with Supervisor() as supervisor:
        network = Network(consortium, supervisor)
        keys = {name: network.key(name) for name in NAMES}
        for name, key in keys.items():
            register = ("supernode", "register", f"{key}.pub", "consortium", "--name", name)
            wait_until(
                lambda register=register: network.flwr(*register)[0] == 0,
                what="the SuperLink",
                timeout_s=120,
                check=supervisor.check,
            )
        for name, key in keys.items():
            network.supernode(name, key, consortium / "parties" / name)
        stranger = network.supernode("stranger", network.key("stranger"), "/nowhere")
        wait_until(lambda: not stranger.running, what="its refusal", timeout_s=120)
        wait_until(
            lambda: network.flwr("supernode", "list", "consortium")[1].count("online") == 3,
            what="the parties",
            timeout_s=180,
            check=lambda: None,
        )
        status, said = network.flwr(
            "run", ROOT, "consortium", "--stream", "--run-config", OVERRIDES
        )
        assert status == 0, said
        (run,) = (consortium / "server" / "runs").iterdir()
        wait_until(
            lambda: any((run / f"{name}.json").exists() for name in ("summary", "error")),
            what="the run's end",
            timeout_s=300,
        )
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["rounds_done"]) == ("complete", 2)
    assert summary["secure_aggregation"]["backend"] == "masked"
    assert all((consortium / "parties" / name / "ledger.sqlite").exists() for name in NAMES)
