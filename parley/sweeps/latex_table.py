r"""Write a sweep's table for a paper: LaTeX with booktabs, a caption that states what was measured.

>>> escape_latex("5_50% & more")
'5\\_50\\% \\& more'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parley.privacy.accounting.rounding import format_rounded_up
from parley.safe_io.plurals import format_noun
from parley.safe_io.printable_text import to_one_line
from parley.sweeps.sweep_summary import HALF_WIDTH, Row, format_scope
from parley.sweeps.sweep_table import EPSILON, TableGrid

_TITLES = {
    "accuracy": "Accuracy on held-out records",
    "r2": "$R^2$ on held-out records",
    "auc": "Area under the ROC curve",
    "loss": "Training loss",
    "excess_loss": "Excess training loss",
}
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "ε": r"$\varepsilon$",
    "·": r"$\cdot$",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
}


def escape_latex(text: str) -> str:
    """Return a text as LaTeX shows it, on one line."""
    return "".join(_SPECIAL.get(sign, sign) for sign in to_one_line(text))


def format_latex_table(
    grid: TableGrid, rows: Sequence[Row], metric: str, *, title: str, version: str
) -> str:
    """Return a table of the metric's means with 95 % intervals. The best of a column is bold.

    Args:
        title: name of the sweep, for the label.
        version: Parley's version, for the caption.
    """
    best = {head: _find_best(grid, head, metric) for head in grid.heads}
    heads = [_format_head(grid.across, head) for head in grid.heads]
    first = "" if not grid.down else "Method" if grid.down == ("method",) else "Setting"
    lines = [
        f"% Made by Parley {version}. Needs \\usepackage{{booktabs}}.",
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{_format_caption(grid, rows, metric, version)}}}",
        rf"  \label{{tab:{''.join(c for c in title if c.isascii() and c.isalnum()) or 'sweep'}}}",
        rf"  \begin{{tabular}}{{l{'r' * len(heads)}}}",
        r"    \toprule",
        _format_line([first, *heads]),
        r"    \midrule",
    ]
    for label in grid.labels:
        cells = [_format_cell(grid, label, head, metric, best[head]) for head in grid.heads]
        lines.append(_format_line([escape_latex(label), *cells]))
    if baselines := grid.list_baselines(metric):
        texts = ["--" if value is None else f"${value:.3f}$" for value in baselines]
        lines += [r"    \midrule", _format_line(["without privacy", *texts])]
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""])


def _format_line(cells: Sequence[str]) -> str:
    return f"    {' & '.join(cells)} \\\\"


def _format_head(axis: str, value: str) -> str:
    if axis == EPSILON:
        return rf"$\varepsilon = {escape_latex(value)}$"
    return escape_latex(f"{axis.rpartition('.')[2]} = {value}") if axis else ""


def _find_best(grid: TableGrid, head: str, metric: str) -> set[str]:
    """Return the rows with a column's best mean; none if there is nothing to compare."""
    cells = {label: grid.cells.get((label, head), {}).get(metric) for label in grid.labels}
    means = {label: mean for label, mean in cells.items() if mean is not None}
    if len(means) < 2:
        return set()
    top = min(means.values()) if "loss" in metric else max(means.values())
    return {label for label, mean in means.items() if mean == top}


def _format_cell(grid: TableGrid, label: str, head: str, metric: str, best: set[str]) -> str:
    cell = grid.cells.get((label, head))
    if cell is None:
        return ""
    if cell.get(metric) is None:
        return "failed" if cell["failed"] else "--"
    mean, half = f"{cell[metric]:.3f}", cell.get(HALF_WIDTH.format(metric))
    shown = rf"\mathbf{{{mean}}}" if label in best else mean
    spread = "" if half is None else rf" \pm {half:.3f}"
    mark = r"^{\dagger}" if grid.is_charged_more(cell) else ""
    return f"${shown}{spread}{mark}$"


def _format_caption(grid: TableGrid, rows: Sequence[Row], metric: str, version: str) -> str:
    good = [row for row in rows if row["status"] != "failed"]
    seeds = len({row.get("repetition") for row in rows})
    spread = "" if seeds < 2 else r" $\pm$ half-width of its 95\,\% interval (Student's $t$)"
    is_swept = EPSILON in (grid.across, *grid.down)
    parties = [] if "parties.count" in grid.down else _find_values(good, "parties")
    facts = [
        _format_range("N", _find_values(good, "records"), "training record"),
        _format_range("m", parties, "party"),
        _format_bound(r"\varepsilon", [] if is_swept else _find_values(good, "epsilon")),
        _format_bound(r"\delta", _find_values(good, "delta")),
    ]
    beyond = grid.format_charged_more()
    sentences = [
        f"{_TITLES.get(metric, metric.replace('_', ' ').capitalize())}: mean over {seeds} "
        f"{format_noun(seeds, 'seed')}{spread}",
        ", ".join(fact for fact in facts if fact),
        escape_latex(f"ε holds {format_scope(good, grid.labelled_axes)}") if good else "",
        "The best mean of a column is bold" if len(grid.labels) > 1 else "",
        rf"$^{{\dagger}}$ {escape_latex(beyond)}" if beyond else "",
        f"All figures are of simulations (Parley {escape_latex(version)})",
    ]
    return ". ".join(sentence for sentence in sentences if sentence) + "."


def _find_values(rows: Sequence[Row], name: str) -> list[Any]:
    return sorted({row[name] for row in rows if row.get(name) is not None})


def _format_range(symbol: str, values: Sequence[int], noun: str) -> str:
    if not values:
        return ""
    if len(values) > 1:
        return f"${symbol} = {values[0]}$ to ${values[-1]}$ {format_noun(2, noun)}"
    return f"${symbol} = {values[0]}$ {format_noun(values[0], noun)}"


def _format_bound(symbol: str, values: Sequence[float]) -> str:
    """Return the ε or δ that runs were charged, or the largest."""
    if not values:
        return ""
    relation = "=" if len(values) == 1 else r"\le"
    return rf"${symbol} {relation} {_format_power(values[-1])}$"


def _format_power(value: float) -> str:
    r"""Return a number, rounded up, in powers of ten if it is small.

    >>> _format_power(1e-5), _format_power(2.43e-5), _format_power(0.001), _format_power(0.0)
    ('10^{-5}', '2.43 \\cdot 10^{-5}', '0.001', '0')
    """
    text = format_rounded_up(value, 3)
    mantissa, _, exponent = text.partition("e")
    if not exponent:
        return text
    factor = "" if mantissa == "1" else rf"{mantissa} \cdot "
    return f"{factor}10^{{{int(exponent)}}}"
