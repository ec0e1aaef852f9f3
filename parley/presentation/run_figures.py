"""Build the report's figures of a run: loss, accuracy, ε by round, clipping, sizes, lost parties.

A figure of loss or accuracy has the mark *simulation only*. A figure of ε has unit and neighbouring
relation. A run of one round has rankings instead of curves.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from parley.presentation import result_text
from parley.presentation.document import Figure, Table
from parley.presentation.label_distribution import build_label_figure
from parley.presentation.plots import (
    Bars,
    Curve,
    Level,
    Palette,
    build_legend,
    draw_figure,
    plot_bars,
    plot_curves,
    plot_ranking,
)
from parley.safe_io.plurals import format_noun
from parley.server.records.guarantee_facts import GuaranteeSummary
from parley.server.records.round_line import RoundAccount, RoundLine
from parley.server.records.run_reader import RunContent
from parley.server.records.run_summary import RunSummary
from parley.server.statements import guarantee_text
from parley.server.statements.number_format import format_cost, format_epsilon, format_number

T = TypeVar("T")

_MAX_BARS = 60
_MAX_ROWS = 12
_DASHES: dict[str, tuple[int, ...]] = {"zcdp": (2, 3), "pure": (7, 3), "mixed": (1, 3)}


def build_run_figures(run: RunContent) -> list[Figure]:
    """Return every figure for which the run's folder has the data, in order."""
    summary, lines = run.summary, run.rounds
    drawn = [_build_loss_figure(summary, lines), _build_accuracy_figure(summary, lines)]
    several = len(summary.guarantees) > 1
    for at, of in enumerate(summary.guarantees):
        charged = [(line.round, line.guarantees[at]) for line in lines if len(line.guarantees) > at]
        drawn.append(_build_epsilon_figure(of, charged, several=several))
    drawn += [
        _build_clipping_figure(summary, lines),
        _build_size_figure(summary),
        build_label_figure(summary),
        _build_absence_figure(lines),
    ]
    return [each for each in drawn if each is not None]


def _build_loss_figure(run: RunSummary, rounds: Sequence[RoundLine]) -> Figure | None:
    finding = f"The training loss ended at {format_number(run.loss, 4)}"
    if run.baseline_loss is not None and run.excess_loss is not None:
        side = "above" if run.excess_loss >= 0 else "below"
        finding += f", {format_number(abs(run.excess_loss))} {side} the non-private "
        finding += format_number(run.baseline_loss, 4)
    points = _list_points(rounds, lambda line: line.simulation_only.get("loss"))
    line = Curve(name="training loss", points=points)
    levels = _build_baseline_level(run.baseline_loss)
    return _build_metric_figure("Loss", f"{finding}.", final=run.loss, line=line, levels=levels)


def _build_accuracy_figure(run: RunSummary, rounds: Sequence[RoundLine]) -> Figure | None:
    baseline, majority = run.baseline_accuracy, run.majority_accuracy
    noun = result_text.get_metric_name(run)
    finding = f"On held-out records the {noun} ended at {format_number(run.accuracy, 4)}"
    if baseline is not None:
        finding += f"; a non-private model reaches {format_number(baseline, 4)}"
    levels = _build_baseline_level(baseline)
    if majority is not None and run.metric != "r2":
        finding += f", always predicting the most common class {format_number(majority, 4)}"
        quiet = Level(name="most common class", value=majority, colour=Palette.QUIET, dash=(2, 3))
        levels.append(quiet)
    points = _list_points(rounds, lambda line: line.simulation_only.get("accuracy"))
    line = Curve(name=noun, points=points)
    title = noun[:1].upper() + noun[1:]
    most = None if run.metric == "r2" else 1.0  # R² has no minimum
    return _build_metric_figure(
        title, f"{finding}.", final=run.accuracy, line=line, levels=levels, most=most
    )


def _build_baseline_level(value: float | None) -> list[Level]:
    return [] if value is None else [Level(name="non-private baseline", value=value)]


def _build_metric_figure(
    title: str,
    finding: str,
    *,
    final: float | None,
    line: Curve,
    levels: Sequence[Level],
    most: float | None = None,
) -> Figure | None:
    """Return a simulation-only figure by round; after a single round, a ranking with the levels."""
    if final is None:
        return None
    if len(line.points) > 1:
        rows = [[str(int(x)), format_number(y, 4)] for x, y in _select_rounds(line.points)]
        return draw_figure(
            f"{title} by round",
            finding,
            plot_curves([line], levels, most=most),
            Table(caption="Simulation only", head=["round", line.name], rows=rows),
            keys=build_legend([line, *levels]),
            simulated=True,
        )
    ranked = [("private", final, format_number(final, 4), Palette.ACCENT)]
    for level in levels:
        shown = level.name.removesuffix(" baseline")
        ranked.append((shown, level.value, format_number(level.value, 4), Palette.QUIET))
    rows = [[label, text] for label, _, text, _ in ranked]
    data = Table(caption="Simulation only", head=["model", title], rows=rows)
    return draw_figure(title, finding, plot_ranking(ranked), data, simulated=True)


def _build_epsilon_figure(
    guarantee: GuaranteeSummary, rounds: Sequence[tuple[int, RoundAccount]], *, several: bool
) -> Figure | None:
    """Return ε of one guarantee by round, with each proved conversion next to the charged one."""
    if not rounds:
        return None
    scope = f"at δ = {format_cost(guarantee.delta)}, {guarantee_text.format_scope(guarantee)}"
    finding = (
        f"Charged{guarantee_text.format_charged_conversion(guarantee)}: ε = "
        f"{format_epsilon(guarantee.epsilon)} of a budget of "
        f"{format_epsilon(guarantee.epsilon_budget)}, {scope}."
    )
    last = {name: value for name, value in rounds[-1][1].epsilon.items() if value is not None}
    names = sorted(last, key=lambda name: (name != guarantee.conversion, last[name]))
    head = [guarantee_text.conversion(name) for name in names]
    which = f", {guarantee_text.format_unit(guarantee)}" if several else ""
    if len(rounds) > 1:
        lines, levels = _build_epsilon_lines(guarantee, rounds, names)
        rows = [
            [str(at), format_epsilon(account.epsilon_charged)]
            + [format_epsilon(account.epsilon.get(name)) for name in names]
            for at, account in _select_rounds(rounds)
        ]
        return draw_figure(
            f"ε by round{which}",
            finding,
            plot_curves(lines, levels),
            Table(caption=f"ε {scope}", head=["round", "charged", *head], rows=rows),
            keys=build_legend([*reversed(lines), *levels], charged=lines[-1].name),
        )
    ranked = [
        (f"{label}, charged", last[name], Palette.ACCENT)
        if name == guarantee.conversion
        else (label, last[name], Palette.QUIET)
        for name, label in zip(names, head, strict=True)
    ] or [("charged", guarantee.epsilon, Palette.ACCENT)]
    ranked.append(("budget", guarantee.epsilon_budget, Palette.LIMIT))
    shown = [(label, value, format_epsilon(value), colour) for label, value, colour in ranked]
    rows = [[label, text] for label, _, text, _ in shown]
    data = Table(caption=f"ε {scope}", head=["conversion", "ε"], rows=rows)
    return draw_figure(f"ε by conversion{which}", finding, plot_ranking(shown), data)


def _build_epsilon_lines(
    guarantee: GuaranteeSummary, rounds: Sequence[tuple[int, RoundAccount]], names: Sequence[str]
) -> tuple[list[Curve], list[Level]]:
    """Return a quiet line per proved conversion, the charged one on top, and the budget as a
    level.
    """
    lines = []
    for name in names:
        points = _select_finite((at, account.epsilon.get(name)) for at, account in rounds)
        if name != guarantee.conversion and points:
            label = f"{guarantee_text.conversion(name)} {format_epsilon(points[-1][1])}"
            dash = _DASHES.get(name, ())
            lines.append(
                Curve(name=label, points=points, colour=Palette.QUIET, width=1.5, dash=dash)
            )
    label = f"{guarantee_text.conversion(guarantee.conversion)} {format_epsilon(guarantee.epsilon)}"
    points = _select_finite((at, account.epsilon_charged) for at, account in rounds)
    lines.append(Curve(name=f"{label.strip()}, charged", points=points, width=2.75))
    budget = guarantee.epsilon_budget
    return lines, [Level(name=f"budget {format_epsilon(budget)}", value=budget)]


def _build_clipping_figure(run: RunSummary, rounds: Sequence[RoundLine]) -> Figure | None:
    points = _list_points(rounds, lambda line: line.clipped_fraction)
    if not points:
        return None
    from parley.server.statements.dp_sgd_text import format_clipped_fraction  # noqa: PLC0415 - spares its code for other jobs

    finding = "Released and charged with the model, within the same ε: one number for all parties, "
    finding += "because only sums leave them. "
    shown = format_clipped_fraction(run)
    finding += f"{shown or f'{format_number(points[-1][1])} in the last round'}."
    rows = [
        [str(line.round), format_number(line.clipped_fraction)]
        for line in _select_rounds([line for line in rounds if line.clipped_fraction is not None])
    ]
    caption = "Noise can move it below 0 or above 1"
    data = Table(caption=caption, head=["round", "clipped"], rows=rows)
    title = "Fraction of clipped gradients"
    if len(points) == 1:
        return Figure(title=title, finding=finding, data=data)
    chart = plot_curves([Curve(name="clipped", points=points)])
    return draw_figure(f"{title} by round", finding, chart, data)


def _build_size_figure(run: RunSummary) -> Figure | None:
    sizes = run.records_by_party
    if not sizes:
        return None
    total, least, most = sum(sizes), min(sizes), max(sizes)
    title = "Records by party"
    finding = (
        f"{format_number(total)} {format_noun(total, 'record')}; from "
        f"{format_number(least)} to {format_number(most)} a party"
    )
    if least == most:
        who = "One party" if len(sizes) == 1 else f"{format_number(len(sizes))} parties"
        each = "" if len(sizes) == 1 else " each"
        finding = f"{who} with {format_number(least)} {format_noun(least, 'record')}{each}"
    if run.weights == "size":
        finding += ". Their public total determines the noise"
    elif run.min_records:
        finding += f". The public minimum, {format_number(run.min_records)}, determines the noise"
    finding += "."
    if len(sizes) <= _MAX_BARS:
        bars = [(party - 0.5, party + 0.5, float(n)) for party, n in enumerate(sizes, start=1)]
        rows = [[str(party), format_number(size)] for party, size in enumerate(sizes, start=1)]
        data = Table(caption=title, head=["party", "records"], rows=rows)
        x_title, y_title = "party", "records"
    else:
        bars = _compute_histogram(sizes)
        rows = [[_format_interval(start, end), format_number(count)] for start, end, count in bars]
        data = Table(caption=title, head=["records", "parties"], rows=rows)
        x_title, y_title = "records a party", "parties"
    simulated = "records_by_party" in run.simulation_only
    if least == most and len(sizes) > _MAX_BARS:  # equal sizes need no plot
        return Figure(title=title, finding=finding, data=data, simulated=simulated)
    layer = Bars(name=y_title, bars=bars, colour=Palette.QUIET)
    chart = plot_bars([layer], x_title=x_title, y_title=y_title)
    return draw_figure(title, finding, chart, data, simulated=simulated)


def _compute_histogram(sizes: Sequence[int]) -> list[tuple[float, float, float]]:
    """Return counts in about 20 intervals [start, end) of one round width (1, 2, 5 × a power of
    ten).
    """
    least, most = min(sizes), max(sizes)
    rough = max((most - least + 1) / 20, 1)
    power = 10 ** math.floor(math.log10(rough))
    width = next(power * step for step in (1, 2, 5, 10) if power * step >= rough)
    counts = Counter(size // width for size in sizes)
    steps = range(least // width, most // width + 1)
    return [(step * width, (step + 1) * width, float(counts[step])) for step in steps]


def _format_interval(start: float, end: float) -> str:
    last = "" if end - start == 1 else f" to {format_number(end - 1)}"
    return f"{format_number(start)}{last}"


def _build_absence_figure(rounds: Sequence[RoundLine]) -> Figure | None:
    lost = [line for line in rounds if line.parties.dropped or line.parties.declined]
    if not lost:
        return None
    span = math.ceil(len(rounds) / 100)  # rounds per bar, so that bars stay visible
    kinds: list[tuple[str, Callable[[RoundLine], int], Palette]] = [
        ("dropped out", lambda line: line.parties.dropped, Palette.QUIET),
        ("declined", lambda line: line.parties.declined, Palette.LIMIT),
    ]
    counts = {name: sum(map(of, lost)) for name, of, _ in kinds}
    layers = [
        Bars(name=name, bars=_sum_by_span(rounds, of, span), colour=colour)
        for name, of, colour in kinds
        if counts[name]
    ]
    outcomes = " and ".join(
        f"{format_number(count)} {name}" for name, count in counts.items() if count
    )
    asked = format_number(sum(line.parties.asked for line in rounds))
    finding = f"Of {asked} requests to parties, {outcomes}, in {format_number(len(lost))} of "
    finding += f"{format_number(len(rounds))} {format_noun(len(rounds), 'round')}."
    y_title = "parties" if span == 1 else f"parties in {span} rounds"
    names = ("asked", "answered", "dropped", "declined")
    rows = [
        [str(line.round), *(str(getattr(line.parties, name)) for name in names)]
        for line in _select_rounds(lost)
    ]
    head = ["round", "asked", "answered", "dropped out", "declined"]
    return draw_figure(
        "Parties lost by round",
        finding,
        plot_bars(layers, x_title="round", y_title=y_title),
        Table(caption="Rounds with losses", head=head, rows=rows),
        keys=build_legend(layers),
    )


def _sum_by_span(
    rounds: Iterable[RoundLine], count: Callable[[RoundLine], int], span: int
) -> list[tuple[float, float, float]]:
    totals: Counter[int] = Counter()
    for line in rounds:
        totals[(line.round - 1) // span] += count(line)
    return [(i * span + 0.5, (i + 1) * span + 0.5, float(totals[i])) for i in sorted(totals)]


def _list_points(
    rounds: Iterable[RoundLine], get_value: Callable[[RoundLine], float | None]
) -> list[tuple[float, float]]:
    return _select_finite((line.round, get_value(line)) for line in rounds)


def _select_finite(pairs: Iterable[tuple[int, float | None]]) -> list[tuple[float, float]]:
    return [(float(x), y) for x, y in pairs if y is not None and math.isfinite(y)]


def _select_rounds(rounds: Sequence[T]) -> list[T]:
    """Return at most 12 rounds, evenly chosen, including the first and the last."""
    if len(rounds) <= _MAX_ROWS:
        return list(rounds)
    step = (len(rounds) - 1) / (_MAX_ROWS - 1)
    return [rounds[round(index * step)] for index in range(_MAX_ROWS)]
