"""Build the report's section on synthetic records: what was released and what the generator draws.

This module also encodes a grid of grey images as a PNG inside the page.
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

from parley.client.algorithms.task_codec import decode_task
from parley.client.data.record_discretization import build_coded_columns, list_class_names
from parley.client.data.schema import Schema
from parley.presentation.document import Heading, Picture, Section, Table, Text, build_section
from parley.presentation.synthetic_text import (
    compute_cell_noise,
    format_closeness,
    format_table,
    list_closeness_metrics,
    list_table_metrics,
)
from parley.server.model_file import ModelFile, ModelFileError, open_model
from parley.server.records.run_reader import RunContent
from parley.server.records.run_summary import IMAGE_GRID
from parley.server.statements.number_format import format_number
from parley.server.synthetic.mixture_generator import Mixture, ReleasedTables


def encode_png(grey: NDArray[np.uint8]) -> bytes:
    """Encode `[h, w]` as a PNG of 8-bit grey.

    >>> encode_png(np.zeros((2, 3), np.uint8))[:8]
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


def build_image_grid(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return `[K, n, h, w]` images as one, with a row per class and grey lines between them."""
    count, each, high, wide = images.shape
    whole = np.full((count * (high + 1) - 1, each * (wide + 1) - 1), 128, np.uint8)
    for row, column in np.ndindex(count, each):
        at = row * (high + 1), column * (wide + 1)
        whole[at[0] : at[0] + high, at[1] : at[1] + wide] = images[row, column]
    return whole


def render_image_grid(images: NDArray[np.uint8], *, alt_text: str) -> Markup:
    """Render `[K, n, h, w]` images, a row per class, as an HTML element.

    Args:
        images: Values from 0, which is black, to 255.
        alt_text: Description for readers who do not see the images.
    """
    whole = build_image_grid(images)
    source = base64.b64encode(encode_png(whole)).decode()
    return Markup('<img class="grid" width="{}" height="{}" alt="{}" src="{}">').format(
        whole.shape[1] * 2, whole.shape[0] * 2, alt_text, f"data:image/png;base64,{source}"
    )


_MAX_PAIRS = 10


def build_synthetic_section(run: RunContent, folder: Path) -> Section | None:
    """Return the section's parts, or None. `folder` is the run's current folder."""
    table = run.summary.synthetic
    if table is None:
        return _build_image_section(run, folder)
    said = format_table(run.summary, table)
    released: list[Picture | Table]
    try:
        opened = open_model(folder)
        released = [*_render_pictures(opened), *_RELEASED[run.summary.algorithm](run, opened)]
    except (ModelFileError, ValueError):
        released = []
    measured = _build_measured_tables(
        list_table_metrics(table), "beside the records themselves", "this table", "records"
    )
    closest = _build_measured_tables(
        list_closeness_metrics(table),
        *("the closest records", "training records", "as many held-out ones"),
    )
    return build_section(
        _TITLE,
        Text(
            f"{said[:1].upper()}{said[1:]}. Drawing more costs no budget: parley sample {run.name} "
            "--rows N --out FILE."
        ),
        *released,
        Heading("Distance from the records", simulated=True) if measured else None,
        *measured,
        Heading("Distance of its rows from single records", simulated=True) if closest else None,
        *closest,
        Text(format_closeness(table)) if closest else None,
    )


_TITLE = "The synthetic records"


def _build_measured_tables(rows: Sequence[Sequence[str]], caption: str, *head: str) -> list[Table]:
    """Return one table, or none without rows."""
    caption = f"Simulation only: {caption}"
    return [Table(caption=caption, head=["", *head], rows=rows)] if rows else []


def _build_image_section(run: RunContent, folder: Path) -> Section | None:
    """Return a section with images that a trained network draws, or None if the run has none."""
    try:
        with safe_open(folder / "model.safetensors", framework="np") as kept:
            if IMAGE_GRID not in set(kept.keys()):
                return None
        pictures = _render_pictures(open_model(folder))
    except (OSError, SafetensorError, ModelFileError, ValueError):
        return None
    return build_section(
        _TITLE,
        Text(
            "The network draws records. These were drawn from the released model with a public "
            f"seed. Drawing more costs no budget: parley sample {run.name} --rows N --out FILE.npz "
            f"--own-model {run.summary.model}, in the folder of that file."
        ),
        *pictures,
    )


def _render_pictures(opened: ModelFile) -> list[Picture]:
    """Return some images of every class, if records are images."""
    images = opened.tensors.get(IMAGE_GRID)
    if images is None:
        return []
    if images.dtype != np.uint8 or images.ndim != 4 or not images.size:
        got = f"{images.dtype} of shape {images.shape}"
        raise ValueError(f"Expected a grid of images, bytes in four axes, got {got}.")
    said = "Synthetic images, one row per class"
    return [Picture(render_image_grid(images, alt_text=said), said)]


def _tabulate_released_sums(run: RunContent, opened: ModelFile) -> list[Table]:
    """Return each class's noisy number next to the share that is drawn."""
    summed: Any = decode_task(opened.description["task"])
    counts, shares = opened.tensors["theta"][-summed.classes :], opened.tensors["shares"]
    names = list_class_names(Schema.from_toml(opened.description["schema"]))
    rows = [
        [name, format_number(count, 4), _format_share(share)]
        for name, count, share in zip(names, counts.tolist(), shares.tolist(), strict=True)
    ]
    deviation = format_number(compute_cell_noise(run.summary), 3)
    noise = f"noise of standard deviation {deviation}"
    caption = f"Classes: the released numbers ({noise}), and the shares drawn"
    return [Table(caption=caption, head=["class", "released", "drawn"], rows=rows)]


def _tabulate_released_tables(run: RunContent, model: ModelFile) -> list[Table]:
    """Return the released shares next to the generator's. Both are public and free to show."""
    counted: Any = decode_task(model.description["task"])
    mixture = Mixture.from_shares(counted.sizes, model.tensors.get("shares"))
    tables = ReleasedTables(sizes=counted.sizes, pairs=counted.pairs, values=model.tensors["theta"])
    columns = build_coded_columns(Schema.from_toml(model.description["schema"]))
    total = tables.total
    rows = []
    for at, column in enumerate(columns):
        noisy, drawn = tables.compute_margin(at, total=total), mixture.compute_margin(at)
        top = int(noisy.argmax())
        rows.append(
            [
                column.name,
                column.names[top],
                _format_share(noisy[top]),
                _format_share(drawn[top]),
                _format_share(float(np.abs(noisy - drawn).sum() / 2)),
            ]
        )
    # The mean of |z| of normal noise over the cells: the distance that only noise would cause.
    noise = compute_cell_noise(run.summary) * math.sqrt(2 / math.pi) / 2 / total
    pairs = []
    for (i, j), table in zip(tables.pairs, tables.tables, strict=True):
        apart = float(np.abs(table / total - mixture.compute_table(i, j)).sum() / 2)
        names, cells = f"{columns[i].name} and {columns[j].name}", columns[i].size * columns[j].size
        pairs.append((apart, cells * noise, names, cells))
    worst = sorted(pairs, key=lambda each: each[1] - each[0])[:_MAX_PAIRS]
    return [
        Table(
            caption="Columns: the released shares and the generator's",
            head=["column", "most common value", "released", "generator", "total variation"],
            rows=rows,
        ),
        Table(
            caption="Pairs with the largest error of the generator, beyond the release's own noise",
            head=["pair", "cells", "total variation", "from noise alone"],
            rows=[
                [names, format_number(cells), _format_share(apart), _format_share(alone)]
                for apart, alone, names, cells in worst
            ],
        ),
    ]


def _format_share(value: float) -> str:
    return f"{value:.1%}"


_RELEASED: dict[str, Callable[[RunContent, ModelFile], list[Table]]] = {
    "marginals": _tabulate_released_tables,
    "random-features": _tabulate_released_sums,
}
"""`algorithm.kind` → function that returns the released values as tables."""
