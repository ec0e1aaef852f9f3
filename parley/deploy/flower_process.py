"""The process of a run in Flower's simulation: it runs Parley's two Flower apps.

python -m parley.deploy.flower_process RUN PARTIES
"""

from __future__ import annotations

import sys

from flwr.simulation import run_simulation

from parley.client.app import app as party
from parley.safe_io.printable_text import guard_streams
from parley.server.app import app as server


def main() -> None:
    """Entry point of the process: returns when the run is over."""
    guard_streams()
    run_simulation(server_app=server, client_app=party, num_supernodes=int(sys.argv[2]))


if __name__ == "__main__":
    main()
