"""A party's process: Flower's SuperNode, and beside it the executor that answers its messages.

One start, one set of imports: the executor is forked before the SuperNode begins. If either ends,
so does the other.

    python -m parley.deploy.flower.party_process FOLDER --log FILE -- (of flower-supernode)
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from flwr.supernode.cli import flower_supernode

from parley.client.contract.printable import guard_streams
from parley.client.contract.roster import load_deployment
from parley.deploy.flower.executor import run_executor
from parley.deploy.flower.pace import Bell, quicken
from parley.deploy.processes import end_with_parent


def main() -> None:
    """Entry point: never returns."""
    parser = argparse.ArgumentParser(prog="parley.deploy.flower.party_process")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--secret", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    given, flower = parser.parse_known_args()
    guard_streams()

    secret, bell = given.secret.read_bytes(), Bell()
    executor = os.fork()
    if executor == 0:
        end_with_parent()
        with given.log.open("ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        run_executor(f"127.0.0.1:{given.port}", secret=secret, party=given.folder, bell=bell)

    def child_ended(*_: object) -> None:
        # Without its executor a SuperNode would take messages and be mute.
        if os.waitpid(executor, os.WNOHANG)[0] == executor:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)

    signal.signal(signal.SIGCHLD, child_ended)
    parties = len(load_deployment(given.folder / "deployment.toml").parties)
    quicken(supernode=True, bell=bell, parties=parties)
    sys.argv = [
        "flower-supernode",
        *[argument for argument in flower if argument != "--"],
        *("--isolation", "process"),
        *("--superexec-auth-secret-file", str(given.secret)),
        *("--host", "127.0.0.1", "--port", str(given.port)),
    ]
    flower_supernode()


if __name__ == "__main__":
    main()
