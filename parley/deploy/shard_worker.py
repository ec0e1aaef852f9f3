"""What runs in a worker of Ray: one shard of the parties.

A worker is told which Parley before anything that only this one can read: what it holds comes
pickled, and is unpickled here, after that check. A version is not enough: Ray has a worker import
from the folder where the run was begun first, if its machine has that folder, too.
"""

from __future__ import annotations

import hashlib
import importlib
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from parley.deploy.processes import ProcessError
from parley.version import __version__


@cache
def this_parley() -> str:
    """The version, and a digest of the sources that are imported here, whatever it says."""
    # In a checkout five packages lie beside this one; an install puts them below it.
    homes = {"": Path(__file__).parents[1]}
    for name in ("client", "privacy", "secure_agg", "server", "simulations"):
        homes[name] = Path(importlib.import_module(f"parley.{name}").__path__[0])
    sources = {
        str(Path(name, path.relative_to(home))): path
        for name, home in homes.items()
        for path in home.rglob("*.py")
    }
    digest = hashlib.sha256()
    for name, path in sorted(sources.items()):
        content = path.read_bytes()
        digest.update(f"{name} {len(content)} ".encode() + content)
    return f"{__version__} sources {digest.hexdigest()[:12]}"


def packed(shard: Any) -> tuple[str, bytes]:
    """A shard as a worker is given it: which Parley, and the rest."""
    return this_parley(), pickle.dumps(shard)


class ShardWorker:
    """One shard (`parley.simulations.engine.dealing.Shard`), and the answers about it."""

    def __init__(self, wanted: str, shard: bytes) -> None:
        self._wanted, self._packed = wanted, shard
        self._answers: Callable[..., Any] | None = None

    def ready(self) -> str:
        """Loads the records, once; what is wrong, in words, or nothing."""
        if self._wanted != this_parley():
            return (
                f"Expected Parley {self._wanted}, as where the run was begun, got {this_parley()}"
            )
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
