"""Write a starter folder's notebook: plan, train, predict, statistics, and a network.

>>> notebook = json.loads(build_notebook("study", source="rows.csv", first="rows.csv",
...     parties=5, questions=['s.histogram("sick", epsilon=0.5)'], has_network=False))
>>> [cell["cell_type"] for cell in notebook["cells"]][:3]
['markdown', 'code', 'code']
"""

from __future__ import annotations

import json
from collections.abc import Sequence

_TITLE = """\
# {name}

Train a private model, predict with it, and ask for private statistics. The parties are simulated \
on this machine. Figures with a star have no noise, so real parties would not have them."""

_STATISTICS = """\
## Statistics

Each answer has noise and is charged before it is computed. This session has its own ledger. To \
let runs and sessions share one budget, name one file as `privacy.ledger` in `job.toml` and as \
`ledger=` here."""

_NETWORK = """\
## A network of your own

`model.py` defines it. DP-SGD trains it: each record's gradient is clipped, and noise is added."""

_NEXT = """\
## Next

Compare budgets: `parley.sweep("job.toml", over={"epsilon": [0.5, 1, 2]}, seeds=3)`. Change \
`job.toml` and `schema.toml`, then run the cells again."""


def build_notebook(
    name: str, *, source: str, first: str, parties: int, questions: Sequence[str], has_network: bool
) -> str:
    """Return the notebook as JSON.

    Args:
        source: the records, relative to the folder: a file, or a glob with one file per party.
        first: a file of them, whose rows are predicted; `source` itself if there is one file.
        parties: number of parties among which one file is split.
        questions: queries of a session `s`, as code.
        has_network: whether `model.py` is there.
    """
    split = f", parties={parties}" if source == first else ""
    asked = "\n".join(f"    print({each})" for each in questions)
    data = quote_text(source)
    session = f'with parley.Session({data}, schema="schema.toml", epsilon=1{split}) as s:'
    cells = [
        ("markdown", _TITLE.format(name=name)),
        ("code", 'import parley\n\nprint(parley.plan("job.toml"))'),
        ("code", 'run = parley.run("job.toml")\nrun'),
        ("code", f"run.model.predict({quote_text(first)})[:5]  # or any file with these columns"),
        ("markdown", _STATISTICS),
        ("code", f"{session}\n{asked}\n    print(s.remaining)"),
    ]
    if has_network:
        cells.append(("markdown", _NETWORK))
        cells.append(("code", 'parley.run("job.toml", model="model.py:network")'))
    cells.append(("markdown", _NEXT))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {
        "cells": [_build_cell(kind, text, at) for at, (kind, text) in enumerate(cells, 1)],
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False, allow_nan=False)


def _build_cell(kind: str, text: str, number: int) -> dict[str, object]:
    lines = text.splitlines(keepends=True)
    cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": lines}
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def quote_text(text: str) -> str:
    """Return a text as a Python literal in double quotes."""
    return json.dumps(text, ensure_ascii=False, allow_nan=False)
