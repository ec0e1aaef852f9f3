"""The report's figure of who holds which labels: the picture of a partition, simulation only.

Few parties are shown one by one: stacked bars where there are up to three labels, so that sizes
are seen too, else a map of shares. Of many parties each label's quantiles over them are shown.
"""

from collections.abc import Callable, Sequence
from functools import partial

from markupsafe import Markup

from parley.report.components import Figure, Key, Table, keys_of
from parley.report.plots import Bars, Palette, bars, heat, ranges
from parley.server.records.number_format import number
from parley.server.records.run_summary import OTHERS, Partition, RunSummary

_STACK = (Palette.ACCENT, Palette.QUIET, Palette.LIMIT)
_TITLE = "Labels by party"
_MOST_NAMED = 12


def label_figure(run: RunSummary) -> Figure | None:
    """The figure; None where the folder doesn't tell, or there is one label or party."""
    split = run.partition
    if split is None or len(split.labels) < 2 or run.parties < 2:
        return None
    if split.counts:
        stacked = len(split.labels) <= len(_STACK)
        return (_stacked if stacked else _mapped)(split, split.counts)
    return _of_many(split, split.shares) if split.shares else None


def _finding(split: Partition) -> str:
    kind = {
        "iid": "Records were dealt out at random",
        "dirichlet": f"Every party's labels are a Dirichlet mixture, α = {split.alpha}",
        "column": f"Every value of the column {split.column} is a party",
        "sizes": "Records were dealt out at random, in given sizes",
        "files": "Every party has its own file",
    }.get(split.kind, "Records were split among the parties")
    commonest, skew = split.commonest, split.skew
    named = ""
    if split.parties and len(split.parties) <= _MOST_NAMED:
        each = (_party(split, party) for party in range(1, len(split.parties) + 1))
        named = f" Parties: {', '.join(each)}."
    most = max(split.overall[: _single(split)])
    what = "fifth of the labels" if split.numeric else "label"
    return (
        f"{kind}. A party's commonest {what} is {_percent(commonest[3])} of its records in the "
        f"middle party, from {_percent(commonest[0])} to {_percent(commonest[-1])}; over all "
        f"parties the commonest is {_percent(most)}. Total variation distance "
        f"from all records' shares: {number(skew.mean)} on average, {number(skew.largest)} "
        f"at most.{named}"
    )


def _single(split: Partition) -> int:
    """How many labels are named, without all others together."""
    return len(split.labels) - (split.labels[-1] == OTHERS)


def _stacked(split: Partition, counts: Sequence[Sequence[int]]) -> Figure:
    layers = [
        Bars(
            name=name,
            bars=[(party + 0.5, party + 1.5, float(row[at])) for party, row in enumerate(counts)],
            colour=colour,
        )
        for at, (name, colour) in enumerate(zip(split.labels, _STACK, strict=False))
    ]
    plot = partial(bars, layers, x_title="party", y_title="records")
    return _figure(_TITLE, split, plot, _by_party(split, counts), keys_of(layers))


def _mapped(split: Partition, counts: Sequence[Sequence[int]]) -> Figure:
    cells = [
        (party, name, row[at] / max(sum(row), 1))
        for party, row in enumerate(counts, start=1)
        for at, name in enumerate(split.labels[: _single(split)])
    ]
    most = max(share for _, _, share in cells) or 1.0
    shades = [(party, name, share / most) for party, name, share in cells]
    keys = (
        Key(name="none", depth=0.0),
        Key(name=_percent(most / 2), depth=0.5),
        Key(name=f"{_percent(most)} of a party's records", depth=1.0),
    )
    plot = partial(heat, shades, x_title="party", y_title="label")
    return _figure(_TITLE, split, plot, _by_party(split, counts), keys)


def _of_many(split: Partition, shares: Sequence[Sequence[float]]) -> Figure:
    quantiles = [
        (name, row[1], row[2], row[3], row[4], row[5])
        for name, row in zip(split.labels, shares, strict=True)
    ]
    keys = (
        Key(name="middle 80 % of the parties", colour=Palette.QUIET),
        Key(name="middle half", colour=Palette.ACCENT),
        Key(name="median", colour=Palette.LIMIT),
    )
    data = Table(
        caption="Share of a party's records, by quantile over the parties",
        head=["label", "all records", *(_percent(at) for at in split.quantiles)],
        rows=[
            [name, _percent(share), *(_percent(value) for value in row)]
            for name, share, row in zip(split.labels, split.overall, shares, strict=True)
        ],
    )
    plot = partial(ranges, quantiles, x_title="share of a party's records", y_title="label")
    return _figure("Labels over the parties", split, plot, data, keys)


def _figure(
    title: str, split: Partition, plot: Callable[..., Markup], data: Table, keys: Sequence[Key]
) -> Figure:
    return Figure.drawn(title, _finding(split), plot, data, keys=keys, simulated=True)


def _by_party(split: Partition, counts: Sequence[Sequence[int]]) -> Table:
    rows = [
        [_party(split, party), *(number(count) for count in row)]
        for party, row in enumerate(counts, start=1)
    ]
    return Table(caption="Records", head=["party", *split.labels], rows=rows)


def _party(split: Partition, party: int) -> str:
    """The number by which plots call it, and its name where the data name it."""
    return f"{party} {split.parties[party - 1]}" if split.parties else str(party)


def _percent(share: float) -> str:
    return f"{number(100 * share, 2)} %"
