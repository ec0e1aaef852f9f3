"""Import a large library without the garbage collector, which would search it in vain."""

from __future__ import annotations

import gc
import sys
from importlib import import_module


def import_large_library(name: str) -> None:
    """Import a library and exclude its objects from the collector's later searches.

    torch creates a million objects that stay. Searching them takes 0.7 s of a plan's 5 s.
    """
    if name in sys.modules:
        return
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        import_module(name)
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()
