"""The environment of the processes that are started here: the Parley that starts them, quiet."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def own_environment() -> dict[str, str]:
    """This process's environment, for one that imports the same Parley."""
    # Not a folder of whoever started us: its `client/` or `server/` would be imported instead.
    roots = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": os.pathsep.join(root for root in roots if root),
        "PYTHONUNBUFFERED": "1",
        # Several processes share the machine: none takes every core for its own.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
