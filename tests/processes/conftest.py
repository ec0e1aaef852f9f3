"""Real processes under a home and a temp folder of their own, and ways to do them harm."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest

SABOTAGE = """
import importlib.abc, importlib.util, os, sys

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "parley.client.party.service":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            harm(module.PartyService)
        spec.loader.exec_module = exec_module
        return spec

def harm(service):
    handle = service.handle
    def harmed(self, request):
        import time
        from parley.client.contract.protocol import decode_frame
        how, victim, kind = os.environ["PARLEY_SABOTAGE"].split(":")
        if self.name == victim and decode_frame(request).kind == kind:
            if how == "raise":
                raise RuntimeError("name of a patient")
            if how == "hang":
                time.sleep(600)
            if how == "crash":
                os.abort()
        return handle(self, request)
    service.handle = harmed

if "PARLEY_SABOTAGE" in os.environ:
    sys.meta_path.insert(0, Finder())
"""


def processes_of(folder: Path) -> dict[int, str]:
    """Command lines of the processes that know this folder, or run from it."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            home = (entry / "environ").read_bytes()
        except OSError:
            continue
        if int(entry.name) != os.getpid() and (
            str(folder) in line or f"FLWR_HOME={folder}".encode() in home
        ):
            found[int(entry.name)] = line
    return found


class Ground:
    """Where a test's processes run; `left` says what they left behind."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.run = root, root / "run"
        self._monkeypatch = monkeypatch
        for name, folder in (("HOME", "home"), ("TMPDIR", "tmp")):
            (root / folder).mkdir()
            monkeypatch.setenv(name, str(root / folder))

    def sabotage(self, how: str, party: str, kind: str) -> None:
        """Has one party raise, hang or crash at one kind of request."""
        (self.root / "harm").mkdir()
        (self.root / "harm" / "sitecustomize.py").write_text(SABOTAGE)
        path = os.pathsep.join([str(self.root / "harm"), os.environ.get("PYTHONPATH", "")])
        self._monkeypatch.setenv("PYTHONPATH", path)
        self._monkeypatch.setenv("PARLEY_SABOTAGE", f"{how}:{party}:{kind}")

    def kill(self, word: str) -> None:
        """Kills the run's processes whose command line has this word, at once."""
        victims = [pid for pid, line in processes_of(self.run).items() if word in line]
        assert victims, word
        for pid in victims:
            os.kill(pid, signal.SIGKILL)

    def running(self) -> list[str]:
        """Command lines of the run's processes."""
        return list(processes_of(self.run).values())

    def left(self) -> list[str]:
        """Processes, ports and files that a run left outside its folder."""
        deadline = time.monotonic() + 5
        while processes_of(self.run) and time.monotonic() < deadline:
            time.sleep(0.1)
        remains = list(processes_of(self.run).values())
        for roster in self.run.glob("parties/party-0/deployment.toml"):
            from parley.client.contract.roster import load_deployment

            _, _, port = load_deployment(roster).server_address.rpartition(":")
            if port:
                with socket.socket() as trial:
                    trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    trial.bind(("127.0.0.1", int(port)))
        for folder in ("home", "tmp"):
            remains += [str(path) for path in (self.root / folder).rglob("*")]
        return remains


@pytest.fixture
def ground(tmp_path, monkeypatch):
    """A place for real processes; whatever the test did, none of them is left."""
    place = Ground(tmp_path, monkeypatch)
    yield place
    assert place.left() == []
