"""Lines of JSON that benchmarks keep, a case each: what has its line is not measured again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Line = dict[str, Any]
HERE = Path(__file__).resolve().parent


def lines_of(name: str | Path) -> list[Line]:
    """Of a file, by its name beside this script; none where there is none."""
    path = HERE / name
    return (
        [json.loads(text) for text in path.read_text("utf-8").splitlines()] if path.exists() else []
    )


def measured(file: str | Path, cases: Iterable[Line], figures: Callable[..., Line]) -> list[Line]:
    """All lines, after one was added (and printed) for every case that had none.

    Args:
        cases: a line's first keys, which `figures` takes for the others.
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
