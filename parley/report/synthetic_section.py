"""The report's section on synthetic records: what was released, and what the generator draws.

Also here: grey pictures for a page: a grid of images as one PNG within the page itself.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from parley.client.algorithms.registry import task_from
from parley.client.data.record_codes import class_names, coded_columns
from parley.client.data.schema import Schema
from parley.report.components import Table
from parley.server.model_file import ModelFile, ModelFileError, open_model
from parley.server.records.number_format import number
from parley.server.records.result_text import (
    Measured,
    cell_noise,
    closest_measured,
    closest_said,
    table_measured,
    table_said,
)
from parley.server.records.run_reader import RunContent
from parley.server.records.run_summary import GRID
from parley.server.synthetic.mixture_generator import Mixture, Tables


def png(grey: NDArray[np.uint8]) -> bytes:
    """`[h, w]` as a PNG of 8-bit grey.

    >>> png(np.zeros((2, 3), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    high, wide = grey.shape
    lines = np.concatenate([np.zeros((high, 1), np.uint8), grey], axis=1)  # no filter
    parts = (
        (b"IHDR", struct.pack(">2I5B", wide, high, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    chunks = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def grid(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """`[K, n, h, w]` images as one, a row for each class, grey lines between them."""
    count, each, high, wide = images.shape
    whole = np.full((count * (high + 1) - 1, each * (wide + 1) - 1), 128, np.uint8)
    for row, column in np.ndindex(count, each):
        at = row * (high + 1), column * (wide + 1)
        whole[at[0] : at[0] + high, at[1] : at[1] + wide] = images[row, column]
    return whole


def grid_picture(images: NDArray[np.uint8], *, said: str) -> Markup:
    """`[K, n, h, w]` images, a row for each class, as an element of a page.

    Args:
        images: from 0, black, to 255.
        said: what they are, for those who do not see them.
    """
    whole = grid(images)
    source = base64.b64encode(png(whole)).decode()
    return Markup('<img class="grid" width="{}" height="{}" alt="{}" src="{}">').format(
        whole.shape[1] * 2, whole.shape[0] * 2, said, f"data:image/png;base64,{source}"
    )


_WORST = 10


def synthetic_section(run: RunContent, folder: Path) -> dict[str, Any] | None:
    """Words and tables; None for a run without one. `folder` is where the run lies now."""
    said = table_said(run.summary)
    if not said:
        return _drawn_section(run, folder)
    try:
        opened = open_model(folder)
        released = _RELEASED[run.summary.algorithm](run, opened)
        pictures = _pictures(opened)
    except (ModelFileError, ValueError):
        released, pictures = [], []
    return {
        "text": f"{said[:1].upper()}{said[1:]}. Drawing more costs nothing: "
        f"parley sample {run.name} --rows N --out FILE.",
        "released": released,
        "pictures": pictures,
        "measured": _measured(
            table_measured(run.summary), "beside the records themselves", "this table", "records"
        ),
        "closest": _measured(
            closest_measured(run.summary),
            *("the closest records", "training records", "as many held-out ones"),
        ),
        "closest_said": closest_said(run.summary),
    }


def _measured(rows: Sequence[Measured], caption: str, *head: str) -> list[Table]:
    """One table, or none where nothing is known."""
    shown = [[row.name, row.private, row.non_private] for row in rows]
    caption = f"Simulation only: {caption}"
    return [Table(caption=caption, head=["", *head], rows=shown)] if rows else []


def _drawn_section(run: RunContent, folder: Path) -> dict[str, Any] | None:
    """Images that a trained network draws; None where a run left none."""
    try:
        with safe_open(folder / "model.safetensors", framework="np") as kept:
            if GRID not in set(kept.keys()):
                return None
        pictures = _pictures(open_model(folder))
    except (OSError, SafetensorError, ModelFileError, ValueError):
        return None
    return {
        "text": "The network draws records; these were drawn from the released model with a public "
        f"seed. Drawing more costs nothing: parley sample {run.name} --rows N --out FILE.npz "
        f"--own-model {run.summary.model}, in the folder of that file.",
        "pictures": pictures,
        **{part: [] for part in ("released", "measured", "closest")},
        "closest_said": "",
    }


def _pictures(opened: ModelFile) -> list[Markup]:
    """Some images of every class, where records are images."""
    images = opened.tensors.get(GRID)
    if images is None:
        return []
    if images.dtype != np.uint8 or images.ndim != 4 or not images.size:
        raise ValueError(
            "Expected a grid of images, bytes in four axes, got "
            f"{images.dtype} of shape {images.shape}."
        )
    return [grid_picture(images, said="Synthetic images, a row for each class")]


def _released_sums(run: RunContent, opened: ModelFile) -> list[Table]:
    """The noisy number of every class beside the share that is drawn."""
    summed: Any = task_from(opened.described["task"])
    counts, shares = opened.tensors["theta"][-summed.classes :], opened.tensors["shares"]
    names = class_names(Schema.from_toml(opened.described["schema"]))
    rows = [
        [name, number(count, 4), _share(share)]
        for name, count, share in zip(names, counts.tolist(), shares.tolist(), strict=True)
    ]
    deviation = number(cell_noise(run.summary), 3)
    return [
        Table(
            caption=f"Classes: the released numbers (noise of standard deviation {deviation}), "
            "and the shares that are drawn",
            head=["class", "released", "drawn"],
            rows=rows,
        )
    ]


def _released_tables(run: RunContent, opened: ModelFile) -> list[Table]:
    """What was released beside what the generator draws: both are public, and free to show."""
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


_RELEASED: dict[str, Callable[[RunContent, ModelFile], list[Table]]] = {
    "marginals": _released_tables,
    "random-features": _released_sums,
}
"""`algorithm.kind` → what was released, as tables."""
