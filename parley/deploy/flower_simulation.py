"""Run Parley's two Flower apps in Flower's simulation, as the separate process of a run.

python -m parley.deploy.flower_simulation RUN PARTIES
"""

from __future__ import annotations

import sys

from flwr.simulation import run_simulation

from parley.client.flower_client_app import app as party
from parley.safe_io.printable_text import guard_streams
from parley.server.flower_server_app import app as server


def main() -> None:
    """Run the simulation, as the entry point of the process, until the run is over."""
    guard_streams()
    run_simulation(server_app=server, client_app=party, num_supernodes=int(sys.argv[2]))


if __name__ == "__main__":
    main()
