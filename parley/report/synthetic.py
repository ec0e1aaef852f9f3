"""The report's section on a synthetic table: what was released, and what the generator draws."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from parley.client.algorithms.registry import task_from
from parley.client.data.codes import coded_columns
from parley.client.data.schema import Schema
from parley.prediction.loading import open_model
from parley.prediction.model import ModelFileError
from parley.report.parts import Table
from parley.server.records.numerals import number
from parley.server.records.reading import RunContent
from parley.server.records.synthetic_words import cell_noise, table_measured, table_said
from parley.server.synthetic.mixture import Mixture, Tables

__all__ = ["synthetic_section"]

_WORST = 10


def synthetic_section(run: RunContent, folder: Path) -> dict[str, Any] | None:
    """Words and tables; None for a run without one. `folder` is where the run lies now."""
    said = table_said(run.summary)
    if not said:
        return None
    try:
        released = _released_tables(run, folder)
    except (ModelFileError, ValueError):
        released = []
    return {
        "told": f"{said[:1].upper()}{said[1:]}. Drawing more costs nothing: "
        f"parley sample {run.name} --rows N --out FILE.",
        "released": released,
        "measured": [
            Table(
                caption="Simulation only: beside the records themselves",
                head=["", "this table", "records"],
                rows=[[row.name, row.private, row.non_private] for row in found],
            )
            for found in [table_measured(run.summary)]
            if found
        ],
    }


def _released_tables(run: RunContent, folder: Path) -> list[Table]:
    """What was released beside what the generator draws: both are public, and free to show."""
    opened = open_model(folder)
    counted: Any = task_from(opened.described["task"])
    mixture = Mixture.of(counted.sizes, opened.tensors.get("shares"))
    tables = Tables(sizes=counted.sizes, pairs=counted.pairs, values=opened.tensors["theta"])
    columns = coded_columns(Schema.from_toml(opened.described["schema"]))
    total = tables.total
    rows = []
    for at, column in enumerate(columns):
        noisy, drawn = tables.margin(at, total=total), mixture.margin(at)
        top = int(noisy.argmax())
        apart = float(np.abs(noisy - drawn).sum() / 2)
        rows.append(
            [column.name, column.names[top], _share(noisy[top]), _share(drawn[top]), _share(apart)]
        )
    # The mean of |z| of normal noise, over the cells: how far apart noise alone would bring them.
    noise = cell_noise(run.summary) * math.sqrt(2 / math.pi) / 2 / total
    pairs = [
        (float(np.abs(table / total - mixture.table(i, j)).sum() / 2), columns[i], columns[j])
        for (i, j), table in zip(tables.pairs, tables.each, strict=True)
    ]
    worst = sorted(pairs, key=lambda each: each[1].size * each[2].size * noise - each[0])[:_WORST]
    return [
        Table(
            caption="Columns: the released shares beside the generator's",
            head=["column", "commonest value", "released", "generator", "total variation"],
            rows=rows,
        ),
        Table(
            caption="Pairs that the generator is farthest from, beyond the release's own noise",
            head=["pair", "cells", "total variation", "by noise alone"],
            rows=[
                [
                    f"{one.name} and {two.name}",
                    number(one.size * two.size),
                    _share(far),
                    _share(one.size * two.size * noise),
                ]
                for far, one, two in worst
            ],
        ),
    ]


def _share(value: float) -> str:
    return f"{value:.1%}"
