"""A SuperLink and SuperNodes as this machine runs them: TLS, known keys, our own executors.

Each of the two is a pair: Flower's process, which talks to the network, and an executor, which runs
the Parley installed here for it (`executor`). The pair shares a secret, so that nobody else on the
machine takes a task.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parley.deploy.flower.control import DESK_SECRET, Control, ControlDesk, open_desk
from parley.deploy.flower.environment import flower_environment
from parley.deploy.pki import check_server_certificate
from parley.deploy.private_files import write_private
from parley.deploy.processes import Process, Supervisor, free_ports, wait_until

_LINK_STARTS_S, _NODE_STARTS_S = 60.0, 120.0


@dataclass(frozen=True, kw_only=True)
class SuperLink:
    """A SuperLink that runs: where this machine reaches it, and the process to watch."""

    desk: ControlDesk
    process: Process

    def control(self) -> Control:
        """A connection to it."""
        return Control(self.desk)


def start_superlink(
    supervisor: Supervisor,
    folder: Path,
    *,
    port: int,
    host: str = "127.0.0.1",
    environment: dict[str, str] | None = None,
    logs: Path | None = None,
) -> SuperLink:
    """Starts the server of `folder` (ca.crt, server.pem, server.key) and waits until it answers.

    Its state is in `state.db` there: a SuperLink that is killed goes on where it was. `host` and
    `port` are where it listens for the parties of `deployment.toml`. Commands of this machine reach
    it on a port of 127.0.0.1 with a secret; both are in `control.json`, for its owner alone.

    Raises:
        PkiError: a certificate is missing, expired, or another authority's.
        ProcessError: it ended, or did not answer in time.
    """
    folder = folder.resolve()
    logs = logs or folder / "logs"
    check_server_certificate(folder / "ca.crt", folder / "server.pem")
    secret = _secret(folder)
    own = flower_environment(
        folder / "flower", {"PARLEY_SERVER": str(folder), **(environment or {})}
    )
    desk = open_desk(folder, port=free_ports(1)[0], ca=folder / "ca.crt")
    process = supervisor.start(
        "the SuperLink",
        [
            *_superlink(folder, desk),
            *("--listen", f"[{host}]:{port}" if ":" in host else f"{host}:{port}"),
            *("--ssl-ca-certfile", str(folder / "ca.crt")),
            *("--ssl-certfile", str(folder / "server.pem")),
            *("--ssl-keyfile", str(folder / "server.key")),
            "--enable-supernode-auth",
            *("--database", str(folder / "state.db")),
            *("--isolation", "process"),
            *("--superexec-auth-secret-file", str(secret)),
        ],
        environment=own,
        log=logs / "superlink.log",
    )
    executor = [sys.executable, "-P", "-m", "parley.deploy.flower.executor"]
    ca = ("--ca", str(folder / "ca.crt"))
    supervisor.start(
        "the server's executor",
        [*executor, "--runtime", desk.address, "--secret", str(secret), *ca],
        environment=own,
        log=logs / "server.log",
    )
    link = SuperLink(desk=desk, process=process)
    _await(link, supervisor)
    return link


def _superlink(folder: Path, desk: ControlDesk) -> list[str]:
    host, _, port = desk.address.rpartition(":")
    return [
        *(sys.executable, "-P", "-m", "parley.deploy.flower.superlink_process", str(folder)),
        *("--control-secret", str(folder / DESK_SECRET)),
        *("--host", host, "--port", port),
        "--disable-runtime-dependency-installation",
    ]


def start_simulation(
    supervisor: Supervisor,
    folder: Path,
    *,
    environment: dict[str, str],
    logs: Path,
    scratch: Path,
) -> SuperLink:
    """Starts a SuperLink in simulation mode, with all that Flower writes under `folder`.

    Ray's files go under `scratch`, a short path: sockets are among them.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    desk = open_desk(folder, port=free_ports(1)[0], ca=None)
    process = supervisor.start(
        "Flower's simulation",
        [
            *_superlink(folder, desk),
            "--insecure",
            "--simulation",
            *("--isolation", "subprocess"),
        ],
        environment=flower_environment(folder, environment, scratch=scratch),
        log=logs / "flower.log",
    )
    link = SuperLink(desk=desk, process=process)
    _await(link, supervisor)
    return link


def start_supernode(
    supervisor: Supervisor,
    folder: Path,
    *,
    name: str,
    server: str,
    port: int,
    log: Path | None = None,
) -> Process:
    """Starts the SuperNode of a party's folder and its executor; it comes online by itself.

    `port` is for the two of them, on 127.0.0.1.
    """
    secret = _secret(folder)
    log = log or folder / "executor.log"
    return supervisor.start(
        f"{name}'s SuperNode",
        [
            *(
                sys.executable,
                "-P",
                "-m",
                "parley.deploy.flower.party_process",
                str(folder.resolve()),
            ),
            *("--log", str(log.resolve())),
            *("--secret", str(secret.resolve()), "--port", str(port)),
            *("--root-certificates", str((folder / "ca.crt").resolve())),
            *("--superlink", server),
            *("--auth-supernode-private-key", str((folder / "supernode.key").resolve())),
        ],
        environment=flower_environment(folder / "flower"),
        log=log.with_name("supernode.log"),
    )


def await_online(
    link: SuperLink, names: Sequence[str], supervisor: Supervisor, *, timeout_s: float | None = None
) -> None:
    """Waits until these SuperNodes are online.

    Raises:
        ProcessError: one ended (a key the server does not know), or it took too long.
    """
    control = link.control()
    missing = set(names)

    def ready() -> bool:
        missing.difference_update(control.online())
        return not missing

    try:
        wait_until(
            ready,
            what=f"{len(names)} parties to come online",
            timeout_s=timeout_s or _NODE_STARTS_S,
            check=supervisor.check,
            poll_s=0.2,
        )
    finally:
        control.close()


def _await(link: SuperLink, supervisor: Supervisor) -> None:
    control = link.control()
    try:
        wait_until(
            control.answers,
            what="the SuperLink to answer",
            timeout_s=_LINK_STARTS_S,
            check=supervisor.check,
        )
    finally:
        control.close()


def _secret(folder: Path) -> Path:
    """A secret between Flower's process and its executor, made anew at every start."""
    path = folder / "executor.secret"
    write_private(path, secrets.token_bytes(32))
    return path
