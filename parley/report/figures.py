"""The report's figures: each a finding in a sentence, a key, a plot, and the same as a table.

A figure of loss or accuracy carries the mark *simulation only*; a figure of ε carries unit and
neighbouring relation. A run of one round has no curves: its figures are rankings.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from parley.report.parts import figure, key, table
from parley.report.plots import Bars, Curve, Level, Palette, bars, curves, ranking
from parley.report.record import RoundRecord, RunRecord
from parley.report.spread import label_figure
from parley.report.words import cost, epsilon_text, metric_title, number, relation, unit

__all__ = ["figures"]

_MOST_BARS = 60
_MOST_ROWS = 12
_CONVERSIONS = {"cks20": "CKS20", "zcdp": "zCDP"}
_DASHES: dict[str, tuple[int, ...]] = {"zcdp": (2, 3), "pure": (7, 3), "mixed": (1, 3)}


def figures(run: RunRecord) -> list[str]:
    """Every figure the run's folder has the facts for, as HTML `<figure>` elements, in order."""
    parties = run.of_parties()
    drawn = [_loss(run), _accuracy(run), _epsilon(run)]
    drawn += [] if parties is None else [_epsilon(parties)]
    drawn += [_clipped(run), _sizes(run), label_figure(run), _absences(run)]
    return [each for each in drawn if each]


def _loss(run: RunRecord) -> str:
    final, baseline = run.figures["loss"], run.figures["baseline_loss"]
    excess = run.figures["excess_loss"]
    held_out = _points(run.rounds, lambda line: line.test_loss)
    finding = f"The training loss ended at {number(final, 4)}"
    if baseline is not None and excess is not None:
        side = "above" if excess >= 0 else "below"
        finding += f", {number(abs(excess))} {side} the non-private {number(baseline, 4)}"
    lines = [Curve(name="training loss", points=_points(run.rounds, lambda line: line.loss))]
    if held_out:
        beside = Curve(name="held-out loss", points=held_out, colour=Palette.QUIET, width=1.5)
        lines.insert(0, beside)
    return _metric(run, "loss", "Loss", f"{finding}.", lines=lines, levels=[_baseline(baseline)])


def _accuracy(run: RunRecord) -> str:
    final, baseline = run.figures["accuracy"], run.figures["baseline_accuracy"]
    majority = run.figures["majority_accuracy"]
    title = metric_title(run)
    noun = title if run.metric == "r2" else title.lower()
    finding = f"On held-out records the {noun} ended at {number(final, 4)}"
    if baseline is not None:
        finding += f"; a non-private model reaches {number(baseline, 4)}"
    levels = [_baseline(baseline)]
    if majority is not None and run.metric != "r2":
        finding += f", always guessing the commonest class {number(majority, 4)}"
        quiet = Level(name="commonest class", value=majority, colour=Palette.QUIET, dash=(2, 3))
        levels.append(quiet)
    lines = [Curve(name=noun, points=_points(run.rounds, lambda line: line.accuracy))]
    return _metric(run, "accuracy", title, f"{finding}.", lines=lines, levels=levels)


def _baseline(value: float | None) -> Level | None:
    return None if value is None else Level(name="non-private baseline", value=value)


def _metric(
    run: RunRecord,
    name: str,
    title: str,
    finding: str,
    *,
    lines: Sequence[Curve],
    levels: Sequence[Level | None],
) -> str:
    """A simulation-only figure by round; after a single round, private beside the levels."""
    final = run.figures[name]
    known = [level for level in levels if level is not None]
    if final is None:
        return ""
    if len(lines[-1].points) > 1:
        title = f"{title} by round"
        plot = curves(lines, known, title=title, description=f"{finding} Simulation only.")
        columns = [dict(line.points) for line in reversed(lines)]
        rows = [
            [str(line.number), *(number(column.get(line.number), 4) for column in columns)]
            for line in _sampled([x for x in run.rounds if x.number in columns[0]])
        ]
        data = table("Simulation only", ["round", *(x.name for x in reversed(lines))], rows)
        keys = key([*reversed(lines), *known])
        return figure(title, finding, plot=plot, data=data, keys=keys, simulated=True)
    ranked = [("private", final, number(final, 4), Palette.ACCENT)]
    for level in known:
        shown = level.name.removesuffix(" baseline")
        ranked.append((shown, level.value, number(level.value, 4), Palette.QUIET))
    simulated = name in run.simulation_only
    plot = ranking(ranked, title=title, description=finding)
    rows = [[label, text] for label, _, text, _ in ranked]
    data = table("Simulation only" if simulated else title, ["model", title], rows)
    return figure(title, finding, plot=plot, data=data, simulated=simulated)


def _epsilon(run: RunRecord) -> str:
    rounds = [line for line in run.rounds if line.epsilon is not None]
    if not rounds or run.epsilon is None:
        return ""
    scope = f"at δ = {cost(run.delta)}, {unit(run)}; {relation(run)}"
    finding = f"Charged{_by(run)}: ε = {epsilon_text(run.epsilon)}"
    if run.epsilon_budget is not None:
        finding += f" of a budget of {epsilon_text(run.epsilon_budget)}"
    finding += f", {scope}."
    last = rounds[-1]
    names = sorted(last.epsilons, key=lambda name: (name != run.conversion, last.epsilons[name]))
    head = [_CONVERSIONS.get(name, name) for name in names]
    if len(rounds) > 1:
        lines, levels = _epsilon_lines(run, rounds, names)
        title = "ε by round" + (f", {unit(run)}" if run.party_level else "")
        plot = curves(lines, levels, title=title, description=finding, zero=True)
        rows = [
            [str(line.number), epsilon_text(line.epsilon)]
            + [epsilon_text(line.epsilons.get(name)) for name in names]
            for line in _sampled(rounds)
        ]
        data = table(f"ε {scope}", ["round", "charged", *head], rows)
        keys = key([*reversed(lines), *levels], charged=lines[-1].name)
        return figure(title, finding, plot=plot, data=data, keys=keys)
    ranked = [
        (f"{label}, charged", last.epsilons[name], Palette.ACCENT)
        if name == run.conversion
        else (label, last.epsilons[name], Palette.QUIET)
        for name, label in zip(names, head, strict=True)
        if math.isfinite(last.epsilons[name])
    ] or [("charged", run.epsilon, Palette.ACCENT)]
    if run.epsilon_budget is not None:
        ranked.append(("budget", run.epsilon_budget, Palette.LIMIT))
    shown = [(label, value, epsilon_text(value), colour) for label, value, colour in ranked]
    title = "ε by conversion" + (f", {unit(run)}" if run.party_level else "")
    plot = ranking(shown, title=title, description=finding)
    data = table(f"ε {scope}", ["conversion", "ε"], [[row[0], row[2]] for row in shown])
    return figure(title, finding, plot=plot, data=data)


def _epsilon_lines(
    run: RunRecord, rounds: Sequence[RoundRecord], names: Sequence[str]
) -> tuple[list[Curve], list[Level]]:
    """Every proved conversion as a quiet line, the charged one on top; the budget as a level."""
    lines = []
    for name in names:
        points = _points(rounds, lambda line, name=name: line.epsilons.get(name))  # type: ignore[misc]
        if name != run.conversion and points:
            label = f"{_CONVERSIONS.get(name, name)} {epsilon_text(points[-1][1])}"
            dash = _DASHES.get(name, ())
            lines.append(
                Curve(name=label, points=points, colour=Palette.QUIET, width=1.5, dash=dash)
            )
    label = f"{_CONVERSIONS.get(run.conversion, run.conversion)} {epsilon_text(run.epsilon)}"
    points = _points(rounds, lambda line: line.epsilon)
    lines.append(Curve(name=f"{label.strip()}, charged", points=points, width=2.75))
    budget = run.epsilon_budget
    levels = [] if budget is None else [Level(name=f"budget {epsilon_text(budget)}", value=budget)]
    return lines, levels


def _by(run: RunRecord) -> str:
    name = _CONVERSIONS.get(run.conversion, run.conversion)
    return f" by the {name} conversion" if name else ""


def _clipped(run: RunRecord) -> str:
    points = _points(run.rounds, lambda line: line.clipped)
    if not points:
        return ""
    finding = "Released, and charged with the model within the same ε: one number for all parties, "
    finding += "because sums are all that leaves them. "
    if len(points) > 1 and run.clipped:
        finding += f"{_noisy(run, 'mean')} on average over {number(len(points))} rounds, "
    finding += f"{_noisy(run, 'last') if run.clipped else number(points[-1][1])} in the last one."
    title = "Fraction of clipped gradients"
    plot = ""
    if len(points) > 1:
        title += " by round"
        plot = curves([Curve(name="clipped", points=points)], title=title, description=finding)
    rows = [
        [str(line.number), number(line.clipped)]
        for line in _sampled([line for line in run.rounds if line.clipped is not None])
    ]
    data = table("Noise can carry it below 0 or above 1", ["round", "clipped"], rows)
    return figure(title, finding, plot=plot, data=data)


def _noisy(run: RunRecord, name: str) -> str:
    spread = run.clipped["deviation" if name == "last" else "mean_deviation"]
    return f"{number(run.clipped[name])} (standard deviation of the noise: {number(spread, 2)})"


def _sizes(run: RunRecord) -> str:
    sizes = run.records_by_party
    if not sizes:
        return ""
    total, least, most = sum(sizes), min(sizes), max(sizes)
    title = "Records by party"
    finding = f"{number(total)} records; from {number(least)} to {number(most)} a party"
    if least == most:
        who = "One party" if len(sizes) == 1 else f"{number(len(sizes))} parties"
        each = "" if len(sizes) == 1 else " each"
        finding = f"{who} with {number(least)} records{each}"
    if run.weights == "size":
        finding += ". The noise is set by their public total"
    elif run.min_records:
        finding += f". The noise is set by the public least number, {number(run.min_records)}"
    finding += "."
    if len(sizes) <= _MOST_BARS:
        upright = [(party - 0.5, party + 0.5, float(n)) for party, n in enumerate(sizes, start=1)]
        rows = [[str(party), number(size)] for party, size in enumerate(sizes, start=1)]
        data = table(title, ["party", "records"], rows)
        x_title, y_title = "party", "records"
    else:
        upright = _histogram(sizes)
        rows = [[_interval(start, end), number(count)] for start, end, count in upright]
        data = table(title, ["records", "parties"], rows)
        x_title, y_title = "records a party", "parties"
    layer = Bars(name=y_title, bars=upright, colour=Palette.QUIET)
    plot = ""
    if least < most or len(sizes) <= _MOST_BARS:  # equal sizes of many parties: words are enough
        plot = bars([layer], title=title, description=finding, x_title=x_title, y_title=y_title)
    simulated = "records_by_party" in run.simulation_only
    return figure(title, finding, plot=plot, data=data, simulated=simulated)


def _histogram(sizes: Sequence[int]) -> list[tuple[float, float, float]]:
    """Counts in about 20 intervals [start, end) of one round width (1, 2, 5 × a power of ten)."""
    least, most = min(sizes), max(sizes)
    rough = max((most - least + 1) / 20, 1)
    power = 10 ** math.floor(math.log10(rough))
    width = next(power * step for step in (1, 2, 5, 10) if power * step >= rough)
    counts = Counter(size // width for size in sizes)
    steps = range(least // width, most // width + 1)
    return [(step * width, (step + 1) * width, float(counts[step])) for step in steps]


def _interval(start: float, end: float) -> str:
    return number(start) if end - start == 1 else f"{number(start)} to {number(end - 1)}"


def _absences(run: RunRecord) -> str:
    lost = [line for line in run.rounds if line.dropped or line.declined]
    if not lost:
        return ""
    dropped, declined = sum(x.dropped for x in lost), sum(x.declined for x in lost)
    span = math.ceil(len(run.rounds) / 100)  # rounds to a bar, so that bars stay visible
    kinds: list[tuple[str, int, Callable[[RoundRecord], int], Palette]] = [
        ("dropped out", dropped, lambda line: line.dropped, Palette.QUIET),
        ("declined", declined, lambda line: line.declined, Palette.LIMIT),
    ]
    layers = [
        Bars(name=name, bars=_by_span(run.rounds, of, span), colour=colour)
        for name, count, of, colour in kinds
        if count
    ]
    told = " and ".join(f"{number(count)} {name}" for name, count, _, _ in kinds if count)
    asked = number(sum(line.asked for line in run.rounds))
    finding = f"Of {asked} requests to parties, {told}, in {number(len(lost))} of "
    finding += f"{number(len(run.rounds))} rounds."
    title = "Parties lost by round"
    y_title = "parties" if span == 1 else f"parties in {span} rounds"
    plot = bars(layers, title=title, description=finding, x_title="round", y_title=y_title)
    rows = [
        [str(x.number), str(x.asked), str(x.answered), str(x.dropped), str(x.declined)]
        for x in _sampled(lost)
    ]
    head = ["round", "asked", "answered", "dropped out", "declined"]
    data = table("Rounds with losses", head, rows)
    return figure(title, finding, plot=plot, data=data, keys=key(layers))


def _by_span(
    rounds: Iterable[RoundRecord], of: Callable[[RoundRecord], int], span: int
) -> list[tuple[float, float, float]]:
    totals: Counter[int] = Counter()
    for line in rounds:
        totals[(line.number - 1) // span] += of(line)
    return [(i * span + 0.5, (i + 1) * span + 0.5, float(totals[i])) for i in sorted(totals)]


def _points(
    rounds: Iterable[RoundRecord], of: Callable[[RoundRecord], float | None]
) -> list[tuple[float, float]]:
    pairs = ((line.number, of(line)) for line in rounds)
    return [(float(x), y) for x, y in pairs if y is not None and math.isfinite(y)]


def _sampled(rounds: Sequence[RoundRecord]) -> list[RoundRecord]:
    """At most 12 rounds, evenly chosen, the first and the last among them."""
    if len(rounds) <= _MOST_ROWS:
        return list(rounds)
    step = (len(rounds) - 1) / (_MOST_ROWS - 1)
    return [rounds[round(index * step)] for index in range(_MOST_ROWS)]
