"""Run the server's process of one run on this machine (`parley run --engine processes`).

    python -m parley.deploy.stream.single_run_server SERVER RUN

It opens the port, waits until all parties are connected, and executes the run in RUN.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from pathlib import Path

from parley.client.contract.roster import load_deployment
from parley.deploy.process_errors import ProcessError, wait_until
from parley.deploy.process_lifetime import end_with_parent
from parley.deploy.server_address import parse_address
from parley.deploy.stream.grpc_server import GrpcServer, StreamTransport
from parley.safe_io.printable_text import guard_streams
from parley.server.run_launcher import launch_run, open_run, record_error

_COME_S = 120.0
# On one machine a lost party does not come back: no process restarts it.
_AWAY_S = 1.0


def _stop(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Run the process until the run ends."""
    parser = argparse.ArgumentParser(prog="parley.deploy.stream.single_run_server")
    parser.add_argument("server", type=Path)
    parser.add_argument("run", type=Path)
    given = parser.parse_args()
    end_with_parent()
    guard_streams()
    # Each signal ends the run between two commits, like Ctrl-C.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    logging.basicConfig(level=logging.WARNING)
    deployment = load_deployment(given.server / "deployment.toml")
    host, port = parse_address(deployment.server_address)
    with (
        record_error(lambda: given.run),
        GrpcServer(given.server, deployment, listen=host, port=port, say=_say) as opened,
    ):
        transport = StreamTransport(opened, away_s=_AWAY_S)
        everyone = len(deployment.parties)
        try:
            wait_until(
                lambda: len(transport.online()) == everyone,
                what=f"{everyone} parties to come online",
                timeout_s=_COME_S,
                poll_s=0.01,
            )
        except ProcessError as error:
            # A resumed run may lack a party for good. The coordinator reports it if too many are
            # missing.
            _say(str(error))
        folder, job = open_run(given.run)
        launch_run(folder, job, transport=transport, deployment=deployment)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
