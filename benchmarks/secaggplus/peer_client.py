"""A client of Flower's SecAgg+ that returns a constant vector."""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.app import Context
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp


class Constant(NumPyClient):
    """As many parameters as it got, all the same."""

    def fit(self, parameters: list[np.ndarray], config: dict) -> tuple[list[np.ndarray], int, dict]:
        """Trains nothing."""
        return [np.full_like(parameters[0], 0.01)], 1, {}


def client_fn(context: Context) -> Any:
    return Constant().to_client()


app = ClientApp(client_fn=client_fn, mods=[secaggplus_mod])
