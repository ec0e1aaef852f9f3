"""Build the report's figure of the labels per party, which shows a partition (simulation only).

A few parties are shown one by one. With up to three labels, stacked bars also show the sizes; with
more, a map shows the shares. For many parties, each label's quantiles over the parties are shown.
"""

from collections.abc import Sequence

from parley.presentation.document import Figure, LegendEntry, Table
from parley.presentation.plots import Bars, Palette, build_legend, draw_figure, plot_bars
from parley.presentation.vega_lite import Spec
from parley.server.records.run_summary import OTHER_LABELS, PartitionSummary, RunSummary
from parley.server.statements.number_format import format_number

_STACK = (Palette.ACCENT, Palette.QUIET, Palette.LIMIT)
_MAX_NAMED_PARTIES = 12


def build_label_figure(run: RunSummary) -> Figure | None:
    """Return the figure, or None if the folder lacks the counts or there is only one label or
    party.
    """
    split = run.partition
    if split is None or len(split.labels) < 2 or run.parties < 2:
        return None
    if split.counts:
        stacked = len(split.labels) <= len(_STACK)
        return (_build_stacked_figure if stacked else _build_map_figure)(split, split.counts)
    return _build_quantile_figure(split, split.shares) if split.shares else None


def _describe_finding(split: PartitionSummary) -> str:
    kind = {
        "iid": "Records were assigned to parties at random",
        "dirichlet": f"Every party's labels are a Dirichlet mixture, α = {split.alpha}",
        "column": f"Every value of the column {split.column} is a party",
        "sizes": "Records were assigned at random, in given sizes",
        "files": "Every party has its own file",
    }.get(split.kind, "Records were split among the parties")
    commonest, skew = split.commonest, split.skew
    named = ""
    if split.parties and len(split.parties) <= _MAX_NAMED_PARTIES:
        each = (_format_party(split, party) for party in range(1, len(split.parties) + 1))
        named = f" Parties: {', '.join(each)}."
    most = max(split.overall[: _count_named_labels(split)])
    what = "fifth of the labels" if split.numeric else "label"
    return (
        f"{kind}. In the median party, the most common {what} is {_format_percent(commonest[3])} "
        f"of its records (range {_format_percent(commonest[0])} to "
        f"{_format_percent(commonest[-1])}); over all parties it is {_format_percent(most)}. Total "
        f"variation distance from the shares of all records: {format_number(skew.mean)} on "
        f"average, {format_number(skew.largest)} at most.{named}"
    )


def _count_named_labels(split: PartitionSummary) -> int:
    """Return the number of named labels, without the entry for all others."""
    return len(split.labels) - (split.labels[-1] == OTHER_LABELS)


def _build_stacked_figure(split: PartitionSummary, counts: Sequence[Sequence[int]]) -> Figure:
    layers = []
    for at, (name, colour) in enumerate(zip(split.labels, _STACK, strict=False)):
        bars = [(party + 0.5, party + 1.5, float(row[at])) for party, row in enumerate(counts)]
        layers.append(Bars(name=name, bars=bars, colour=colour))
    chart = plot_bars(layers, x_title="party", y_title="records")
    return _build_figure(split, chart, _build_party_table(split, counts), build_legend(layers))


def _build_map_figure(split: PartitionSummary, counts: Sequence[Sequence[int]]) -> Figure:
    from parley.presentation.distribution_plots import plot_heat_map  # noqa: PLC0415 - spares its code for few labels

    cells = [
        (party, name, row[at] / max(sum(row), 1))
        for party, row in enumerate(counts, start=1)
        for at, name in enumerate(split.labels[: _count_named_labels(split)])
    ]
    most = max(share for _, _, share in cells) or 1.0
    shades = [(party, name, share / most) for party, name, share in cells]
    keys = (
        LegendEntry(name="none", depth=0.0),
        LegendEntry(name=_format_percent(most / 2), depth=0.5),
        LegendEntry(name=f"{_format_percent(most)} of a party's records", depth=1.0),
    )
    chart = plot_heat_map(shades, x_title="party", y_title="label")
    return _build_figure(split, chart, _build_party_table(split, counts), keys)


def _build_quantile_figure(split: PartitionSummary, shares: Sequence[Sequence[float]]) -> Figure:
    from parley.presentation.distribution_plots import plot_ranges  # noqa: PLC0415 - spares its code for few parties

    quantiles = [
        (name, low, lower, middle, upper, high)
        for name, (_, low, lower, middle, upper, high, _) in zip(split.labels, shares, strict=True)
    ]
    keys = (
        LegendEntry(name="middle 80 % of the parties", colour=Palette.QUIET),
        LegendEntry(name="middle half", colour=Palette.ACCENT),
        LegendEntry(name="median", colour=Palette.LIMIT),
    )
    data = Table(
        caption="Share of a party's records, by quantile over the parties",
        head=["label", "all records", *(_format_percent(at) for at in split.quantiles)],
        rows=[
            [name, _format_percent(share), *(_format_percent(value) for value in row)]
            for name, share, row in zip(split.labels, split.overall, shares, strict=True)
        ],
    )
    chart = plot_ranges(quantiles, x_title="share of a party's records", y_title="label")
    return _build_figure(split, chart, data, keys, title="Labels of the parties")


def _build_figure(
    split: PartitionSummary,
    chart: Spec,
    data: Table,
    keys: Sequence[LegendEntry],
    title: str = "Labels by party",
) -> Figure:
    return draw_figure(title, _describe_finding(split), chart, data, keys=keys, simulated=True)


def _build_party_table(split: PartitionSummary, counts: Sequence[Sequence[int]]) -> Table:
    rows = [
        [_format_party(split, party), *(format_number(count) for count in row)]
        for party, row in enumerate(counts, start=1)
    ]
    return Table(caption="Records", head=["party", *split.labels], rows=rows)


def _format_party(split: PartitionSummary, party: int) -> str:
    """Return the number of a party in plots, with its name if the data have one."""
    return f"{party} {split.parties[party - 1]}" if split.parties else str(party)


def _format_percent(share: float) -> str:
    return f"{format_number(100 * share, 2)} %"
