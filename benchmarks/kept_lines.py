"""Store benchmark results as lines of JSON, one per case; a stored case is not measured again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Line = dict[str, Any]
HERE = Path(__file__).resolve().parent


def lines_of(name: str | Path) -> list[Line]:
    """Return the lines of a file next to this script; none if it is missing."""
    path = HERE / name
    return (
        [json.loads(text) for text in path.read_text("utf-8").splitlines()] if path.exists() else []
    )


def measured(file: str | Path, cases: Iterable[Line], figures: Callable[..., Line]) -> list[Line]:
    """Return all lines, after adding (and printing) one for every case without one.

    Args:
        cases: A line's first keys; `figures` takes them and returns the others.
    """
    found = lines_of(file)
    for case in cases:
        if not any(case.items() <= line.items() for line in found):
            found.append(case | figures(**case))
            text = json.dumps(found[-1], allow_nan=False)
            print(text, flush=True)
            with (HERE / file).open("a", encoding="utf-8") as kept:
                kept.write(text + "\n")
    return found
