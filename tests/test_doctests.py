"""The examples in the packages' docstrings do what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_PACKAGES = ("parley", "simulations", "server", "client", "secure_agg", "privacy")


def _modules() -> list[str]:
    """Modules with an example, by the names that they are imported by."""
    paths = (path for room in _PACKAGES for path in sorted((_ROOT / room).rglob("*.py")))
    dotted = [
        ".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in paths
        if ">>> " in path.read_text(encoding="utf-8")
    ]
    return [name if name.startswith("parley.") else f"parley.{name}" for name in dotted]


@pytest.mark.parametrize("name", _modules())
def test_examples_of_a_module_hold(name: str) -> None:
    done = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert done.attempted
    assert not done.failed
