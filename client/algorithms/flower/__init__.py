"""Train with a Flower ClientApp, unchanged, inside each party: federated averaging of its updates.

`flower_averaging` is the algorithm. `client_app_adapter` is the only module that imports Flower.
"""

import os

# Flower reads it when it is imported: a party sends no telemetry unless its owner set this.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
