"""The report's figure of who holds which labels: the picture of a partition, simulation only.

Few parties are shown one by one: stacked bars where there are up to three labels, so that sizes
are seen too, else a map of shares. Of many parties each label's quantiles over them are shown.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from parley.report.parts import figure, key, shades, table
from parley.report.plots import Bars, Palette, bars, heat, ranges
from parley.report.record import RunRecord
from parley.report.words import number

__all__ = ["label_figure"]

_STACK = (Palette.ACCENT, Palette.QUIET, Palette.LIMIT)
_TITLE = "Labels by party"


def label_figure(run: RunRecord) -> str:
    """HTML of the figure; empty where the folder doesn't tell, or there is one label or party."""
    told = run.partition
    names = list(told.get("labels") or ())
    counts, shares = told.get("counts") or (), told.get("shares") or ()
    whole = {"commonest", "skew", "overall", "quantiles"} <= told.keys()
    if not whole or len(names) < 2 or run.parties < 2 or not (counts or shares):
        return ""
    finding = _finding(told)
    if not counts:
        return _of_many(told, names, shares, finding)
    if len(names) <= len(_STACK):
        return _stacked(names, counts, finding)
    return _mapped(names, counts, finding)


def _finding(told: Mapping[str, Any]) -> str:
    kind = {
        "iid": "Records were dealt out at random",
        "dirichlet": f"Every party's labels are a Dirichlet mixture, α = {told.get('alpha', '–')}",
        "column": f"Every value of the column {told.get('column')} is a party",
        "sizes": "Records were dealt out at random, in given sizes",
        "files": "Every party has its own file",
    }.get(str(told.get("kind")), "Records were split among the parties")
    commonest, skew = told["commonest"], told["skew"]
    what = "fifth of the labels" if told.get("numeric") else "label"
    return (
        f"{kind}. A party's commonest {what} is {_percent(commonest[3])} of its records in the "
        f"middle party, from {_percent(commonest[0])} to {_percent(commonest[-1])}; over all "
        f"parties the commonest is {_percent(max(told['overall']))}. Total variation distance "
        f"from all records' shares: {number(skew['mean'])} on average, {number(skew['largest'])} "
        "at most."
    )


def _stacked(names: Sequence[str], counts: Sequence[Sequence[int]], finding: str) -> str:
    layers = [
        Bars(
            name=f"label {name}",
            bars=[(party + 0.5, party + 1.5, float(row[at])) for party, row in enumerate(counts)],
            colour=colour,
        )
        for at, (name, colour) in enumerate(zip(names, _STACK, strict=False))
    ]
    plot = bars(layers, title=_TITLE, description=finding, x_title="party", y_title="records")
    return figure(
        _TITLE,
        finding,
        plot=plot,
        data=_by_party(names, counts),
        keys=key(layers),
        simulated=True,
    )


def _mapped(names: Sequence[str], counts: Sequence[Sequence[int]], finding: str) -> str:
    cells = [
        (party, name, row[at] / max(sum(row), 1))
        for party, row in enumerate(counts, start=1)
        for at, name in enumerate(names)
    ]
    most = max(share for _, _, share in cells) or 1.0
    plot = heat(
        [(party, name, share / most) for party, name, share in cells],
        title=_TITLE,
        description=finding,
        x_title="party",
        y_title="label",
    )
    keys = shades(
        [(0.0, "none"), (0.5, _percent(most / 2)), (1.0, f"{_percent(most)} of a party's records")]
    )
    return figure(
        _TITLE, finding, plot=plot, data=_by_party(names, counts), keys=keys, simulated=True
    )


def _of_many(
    told: Mapping[str, Any],
    names: Sequence[str],
    shares: Sequence[Sequence[float]],
    finding: str,
) -> str:
    rows = [
        (name, row[1], row[2], row[3], row[4], row[5])
        for name, row in zip(names, shares, strict=True)
    ]
    title = "Labels over the parties"
    plot = ranges(
        rows,
        title=title,
        description=finding,
        x_title="share of a party's records",
        y_title="label",
    )
    keys = key(
        [
            Bars(name="middle 80 % of the parties", bars=(), colour=Palette.QUIET),
            Bars(name="middle half", bars=(), colour=Palette.ACCENT),
            Bars(name="median", bars=(), colour=Palette.LIMIT),
        ]
    )
    head = ["label", "all records", *(_percent(at) for at in told["quantiles"])]
    cells = [
        [name, _percent(share), *(_percent(value) for value in row)]
        for name, share, row in zip(names, told["overall"], shares, strict=True)
    ]
    data = table("Share of a party's records, by quantile over the parties", head, cells)
    return figure(title, finding, plot=plot, data=data, keys=keys, simulated=True)


def _by_party(names: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    rows = [
        [str(party), *(number(count) for count in row)] for party, row in enumerate(counts, start=1)
    ]
    return table("Records", ["party", *names], rows)


def _percent(share: float) -> str:
    return f"{number(100 * share, 2)} %"
