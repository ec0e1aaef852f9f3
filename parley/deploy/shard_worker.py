"""What runs in a worker of Ray: one shard of the parties.

A worker is told Parley's version before anything that only this version can read: what it holds
comes pickled, and is unpickled here, after that check.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable
from typing import Any

from parley.deploy.processes import ProcessError
from parley.version import __version__

__all__ = ["ShardWorker", "packed"]


def packed(shard: Any) -> tuple[str, bytes]:
    """A shard as a worker is given it: the version, and the rest."""
    return __version__, pickle.dumps(shard)


class ShardWorker:
    """One shard (`parley.simulations.engine.dealing.Shard`), and the answers about it."""

    def __init__(self, version: str, shard: bytes) -> None:
        self._version, self._packed = version, shard
        self._answers: Callable[..., Any] | None = None

    def ready(self) -> str:
        """Loads the records, once; what is wrong, in words, or nothing."""
        if self._version != __version__:
            return f"Expected Parley {self._version}, as where the run was begun, got {__version__}"
        try:
            if self._answers is None:
                self._answers = pickle.loads(self._packed).opened()  # noqa: S301 - the driver's own
        except OSError as error:
            what = error.strerror or type(error).__name__
            return f"Expected the file {error.filename}, got: {what}"
        except ValueError as error:
            return f"Expected records as where the run was begun, got: {error}"
        return ""

    def give(self, *asked: Any) -> Any:
        """The answer to one question: one sum, never a party's own.

        Raises:
            ProcessError: it was begun again where its records or this Parley are not.
        """
        problem = self.ready()
        if problem or self._answers is None:
            raise ProcessError(problem)
        return self._answers(*asked)

    def node(self) -> str:
        """The address of the machine that it runs on."""
        ray = importlib.import_module("ray")
        return str(ray.util.get_node_ip_address())
