"""Another file or folder with the name of one of Parley's packages, which Python would find first.

Parley's packages have short names (`server`, `client`, …), and Python looks into the current folder
(`python -m parley`) or the script's own before it looks at what is installed. A `server.py` there
would be imported in the place of Parley's, with an error far from its cause. So it is looked for
when `parley` is imported, and named.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

__all__ = ["PACKAGES", "refuse_shadows"]

PACKAGES = ("simulations", "server", "client", "secure_agg", "privacy")
"""The packages beside `parley`."""


def refuse_shadows(home: Path) -> None:
    """Looks where Python finds each package, without importing it.

    Args:
        home: the folder that holds Parley's packages.

    Raises:
        ImportError: a package is another file's or folder's, or missing.
    """
    for name in PACKAGES:
        found = _found(name)
        if found is None or found.resolve() != (home / name).resolve():
            where = "nothing" if found is None else f"{found}, which Python finds first"
            raise ImportError(
                f"Expected Parley's package `{name}` in {home}, got {where}. Rename it, or start "
                "from another folder (the command `parley` leaves the current folder out; "
                "`python -m parley` does not)."
            )


def _found(name: str) -> Path | None:
    """The package's folder, or the file of a module that is no package."""
    spec = sys.modules[name].__spec__ if name in sys.modules else find_spec(name)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return None if spec.origin is None else Path(spec.origin)
