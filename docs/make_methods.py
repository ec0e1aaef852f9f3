"""Write tables and figures of `docs/methods.md` from the folders of sweeps.

    parley sweep examples/paper.toml --out paper-adult …      # the commands are on that page
    python docs/make_methods.py adult=paper-adult kdd=paper-kdd ridge=paper-ridge

For each name, this script writes a part of the page between two comments, and a CSV file with all
values of ε. It copies two figures from the sweep. Other parts stay as they are.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import vl_convert

DOCS = Path(__file__).parent
COMPARED = (("3", "5"), ("4", "5"), ("6", "5"), ("7", "10"), ("5", "10"), ("9", "10"), ("10", "8"))
"""Pairs of methods by number. The page shows the ratio of their excess losses."""
LOSS_AT = (0.05, 0.5)
"""Values of ε at which the page shows the excess loss; the CSV file has all."""

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Contents of a part of the page in addition to the excess loss.

    Attributes:
        measure: a metric of `summary.csv`.
        word: name of that metric on the page.
        at: values of ε in the table.
        figures: names of the sweep's figures on the page.
        table: whether the page has the tables of methods and ratios, in addition to the CSV file.
    """

    measure: str
    word: str
    at: tuple[float, ...]
    figures: tuple[str, ...]
    table: bool = False


PARTS = {
    "kdd": Shown(
        measure="accuracy",
        word="accuracy",
        at=(0.05, 0.5),
        figures=("excess_loss", "accuracy"),
        table=True,
    ),
    "adult": Shown(
        measure="accuracy", word="accuracy", at=(0.05, 0.5), figures=("excess_loss", "accuracy")
    ),
    "ridge": Shown(measure="r2", word="R²", at=(0.5, 1.0), figures=("excess_loss", "r2")),
}


def make(name: str, folder: Path, docs: Path = DOCS) -> None:
    """Write a part of the page, and its figures, from a sweep's folder.

    Raises:
        SystemExit: no such part, an incomplete sweep, or a page without the comments.
    """
    if name not in PARTS:
        raise SystemExit(f"Expected NAME=FOLDER with a name of {', '.join(PARTS)}, got {name!r}.")
    shown, rows = PARTS[name], _read_cells(folder / "summary.csv")
    if missing := [row for row in rows if row["failed"] or row["status"] != "complete"]:
        raise SystemExit(f"Expected a whole sweep in {folder}, got {len(missing)} faulty cells.")
    written = datetime.fromtimestamp((folder / "summary.csv").stat().st_mtime, UTC)
    page = docs / "methods.md"
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- {name}: made by docs/make_methods.py -->", f"<!-- end of {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise SystemExit(f"Expected {begin} and {end} in {page}, each once.")
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    lines = [f"Measured {written:%Y-%m-%d}, {rows[0]['runs']} seeds.", "", *_tables(rows, shown)]
    if shown.table:
        lines = ['<div class="numbers" markdown>', "", *lines, *_ratios(rows), "", "</div>", ""]
    made = "\n".join([begin, "", *lines, end])
    page.write_text(before + made + after, encoding="utf-8")
    _write_csv(docs / f"methods-{name}.csv", rows, shown)
    for figure in shown.figures:
        target = docs / f"methods-{name}-{figure.replace('_', '-')}.svg"
        spec = (folder / "figures" / f"{figure}.vl.json").read_text(encoding="utf-8")
        target.write_text(vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]), encoding="utf-8")


def _read_cells(path: Path) -> list[Row]:
    """Return a row per cell, with each metric's mean and half-width under its name."""
    cells: dict[tuple[Any, ...], Row] = {}
    for row in pl.read_csv(path, infer_schema_length=None).to_dicts():
        place = row["method"], row["parties.count"], row["privacy.epsilon"]
        cell = cells.setdefault(place, {**row, "epsilon": row["epsilon_charged"]})
        cell[row["metric"]] = row["mean"]
        cell[f"{row['metric']} ±95 %"] = row["half_width_95"]
    return list(cells.values())


def _tables(rows: Sequence[Row], shown: Shown) -> Iterator[str]:
    """Return the table of the largest number of parties. The CSV file has the others."""
    parties = max(row["parties.count"] for row in rows)
    own = [row for row in rows if row["parties.count"] == parties]
    epsilons = [epsilon for epsilon in _epsilons(rows) if epsilon in LOSS_AT]
    yield f"**{parties} parties.** {_not_private(own, shown)}"
    yield ""
    if not shown.table:
        return
    heads = [f"ε = {short(epsilon)}" for epsilon in (*epsilons, *shown.at)]
    heads[0] = f"excess loss, {heads[0]}"
    heads[len(epsilons)] = f"{shown.word}, {heads[len(epsilons)]}"
    yield f"| method | {' | '.join(heads)} | ε charged |"
    yield "|---" * (len(heads) + 2) + "|"
    for method, *cells in _methods(own, shown, epsilons, parties):
        yield f"| {method} | {' | '.join(cells)} |"
    yield ""


def _methods(
    rows: Sequence[Row], shown: Shown, epsilons: Sequence[float], parties: int
) -> Iterator[list[str]]:
    """Return, per method, its name, the figures at each ε and what is charged."""
    for method in dict.fromkeys(row["method"] for row in rows):
        cells = {row["privacy.epsilon"]: row for row in rows if row["method"] == method}
        losses = [interval(cells[epsilon], "excess_loss", number) for epsilon in epsilons]
        measured = [interval(cells[epsilon], shown.measure, share) for epsilon in shown.at]
        yield [method, *losses, *measured, _charged([cells[e] for e in sorted(cells)], parties)]


def _write_csv(path: Path, rows: Sequence[Row], shown: Shown) -> None:
    """Write the tables of all numbers of parties, with each ε, as one CSV file."""
    epsilons = _epsilons(rows)
    losses = [f"excess loss, ε = {short(epsilon)}" for epsilon in epsilons]
    measured = [f"{shown.word}, ε = {short(epsilon)}" for epsilon in shown.at]
    lines = [["parties", "method", *losses, *measured, "ε charged"]]
    for parties in sorted({row["parties.count"] for row in rows}, reverse=True):
        own = [row for row in rows if row["parties.count"] == parties]
        lines += [[str(parties), *cells] for cells in _methods(own, shown, epsilons, parties)]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)


def _epsilons(rows: Sequence[Row]) -> list[float]:
    return sorted({row["privacy.epsilon"] for row in rows})


def _not_private(rows: Sequence[Row], shown: Shown) -> str:
    # One owner alone has no parties to average: its row says nothing of these.
    row = max(rows, key=lambda row: row["aggregated_excess_loss"])
    pooled, averaged = row[f"baseline_{shown.measure}"], row[f"aggregated_{shown.measure}"]
    return (
        f"Not private: {shown.word} {pooled:.4f} centralised, {averaged:.4f} aggregated; the "
        f"latter's excess loss is {number(row['aggregated_excess_loss'])}."
    )


def _charged(rows: Sequence[Row], parties: int) -> str:
    asked = [row["privacy.epsilon"] for row in rows]
    charged = [row["epsilon"] for row in rows]
    if all(math.isclose(a, b, rel_tol=1e-3) for a, b in zip(charged, asked, strict=True)):
        return "ε"
    # δ alone covers so little: the account may say even less.
    if parties > 1 and all(a <= b / parties * 1.001 for a, b in zip(charged, asked, strict=True)):
        return "at most ε/m"
    return ", ".join(f"{each:.3g}" for each in charged)


def _ratios(rows: Sequence[Row]) -> Iterator[str]:
    """Return the ratios of two methods' excess losses, over all ε."""
    names = {method.split()[0]: method for method in dict.fromkeys(r["method"] for r in rows)}
    sizes = sorted({row["parties.count"] for row in rows}, reverse=True)
    loss = {
        (row["method"], row["parties.count"], row["privacy.epsilon"]): row["excess_loss"]
        for row in rows
    }
    epsilons = sorted({row["privacy.epsilon"] for row in rows})
    yield f"| times the excess loss, over all ε | {_heads(sizes)} |"
    yield "|---" * (len(sizes) + 1) + "|"
    for one, other in COMPARED:
        if one not in names or other not in names:
            continue
        told = []
        for size in sizes:
            found = [loss[names[one], size, e] / loss[names[other], size, e] for e in epsilons]
            told.append(f"{ratio(min(found))} to {ratio(max(found))}")
        yield f"| {names[one]} over {names[other]} | {' | '.join(told)} |"


def _heads(sizes: Sequence[int]) -> str:
    return " | ".join(f"{size} parties" for size in sizes)


def interval(row: Row, name: str, tell: Any) -> str:
    """Return a mean and the half-width of its interval, as text."""
    return f"{tell(row[name])} ± {tell(row[f'{name} ±95 %'])}"


def number(value: float) -> str:
    """Return a number with two significant digits, or three before the decimal point.

    >>> [number(each) for each in (0.00203, 0.1512, 58.2, 355.4, 131_000)]
    ['2.0e−3', '0.15', '58', '355', '1.3e5']
    """
    if 0.01 <= abs(value) < 1000:
        return f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}".replace("-", "−")  # a hyphen ends lines


def share(value: float) -> str:
    """Return a share with four digits after the decimal point.

    >>> share(0.83471), share(-0.2)
    ('0.8347', '−0.2000')
    """
    return f"{value:.4f}".replace("-", "−")


def ratio(value: float) -> str:
    """Return a ratio, rounded to its useful digits.

    >>> [ratio(each) for each in (0.931, 5.61, 48.2, 1015.0)]
    ['0.93', '5.6', '48', '1,020']
    """
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 10 else f"{value:.2g}"


def short(value: float) -> str:
    """Return ε with the digits that it needs.

    >>> short(0.05), short(1.0)
    ('0.05', '1')
    """
    return f"{value:g}"


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        part, _, place = argument.partition("=")
        make(part, Path(place))
