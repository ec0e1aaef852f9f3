"""The report's sections on how good a model is: in a simulation, by public records, by counts.

The same figures and tables for all three; where a figure is noisy it stands with its interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from parley.report.components import Figure, Table, keys_of
from parley.report.plots import Box, Curve, Palette, unit_square
from parley.server.records import result_text
from parley.server.records.evaluation import Judged, Judgement, TargetJudgement
from parley.server.records.number_format import number
from parley.server.records.result_text import estimated
from parley.server.records.run_summary import RunSummary

_MOST_LABELS = 12
"""Labels up to which a confusion matrix can be read."""
_MOST_ROWS = 24
_CHANCE = Curve(
    name="chance", points=[(0, 0), (1, 1)], colour=Palette.QUIET, width=1.5, dash=(2, 3)
)
_CALIBRATED = Curve(
    name="as often as said", points=_CHANCE.points, colour=Palette.QUIET, width=1.5, dash=(2, 3)
)


@dataclass(frozen=True, kw_only=True)
class Section:
    """What one set of records says of the model."""

    title: str
    text: str
    figures: Sequence[Figure]
    tables: Sequence[Table]
    simulated: bool = False


def judgement_sections(run: RunSummary) -> list[Section]:
    """One for each set of held-out records that the model was judged by."""
    sections = []
    if run.judgement is not None:
        twin = run.baseline_judgement
        sections.append(
            _section("How good the model is", "", run.judgement, _of_simulation(run), twin=twin)
        )
    if run.public_test is not None and run.public_test.judgement is not None:
        said = result_text.public_test(run)
        title = "How good the model is on public records"
        sections.append(_section(title, f"On {said}.", run.public_test.judgement, []))
    if run.evaluation is not None and run.evaluation.judgement is not None:
        found = run.evaluation.judgement
        text = (
            f"Of the records that the parties hold out: {result_text.evaluation(run)}. Behind "
            "each figure is where it lies on the same records without the noise, each by itself; "
            "what other records would say is another question."
            + " Scores of one interval of probabilities count as equal."
            * bool(found.roc)
        )
        title = "How good the model is on records that the parties hold out"
        sections.append(_section(title, text, found, []))
    return sections


def _section(
    title: str,
    text: str,
    found: Judgement | TargetJudgement,
    tables: list[Table],
    *,
    twin: Judgement | TargetJudgement | None = None,
) -> Section:
    simulated, figures = bool(tables), []
    if isinstance(found, Judgement):
        other = twin if isinstance(twin, Judgement) else None
        figures = [each for each in (_roc(found, other), _calibration(found)) if each]
        tables = [*tables, *_tables(found)]
    return Section(title=title, text=text, figures=figures, tables=tables, simulated=simulated)


def _of_simulation(run: RunSummary) -> list[Table]:
    records = run.judgement.records if run.judgement else 0
    return [
        Table(
            caption=f"On {number(records)} held-out records",
            head=["", "private", "non-private"],
            rows=[[row.name, row.private, row.non_private] for row in result_text.judged(run)],
        )
    ]


def _tables(found: Judgement) -> Iterator[Table]:
    """The decisions by label, and what comes of each threshold."""
    if len(found.labels) <= _MOST_LABELS:
        yield Table(
            caption="Records by true label (row) and predicted label (column)",
            head=["", *found.labels],
            rows=[
                [name, *(number(round(count)) for count in row)]
                for name, row in zip(found.labels, found.confusion, strict=True)
            ],
        )
    if found.by_label:
        yield Table(
            caption="By label",
            head=["", "recall", "precision"],
            rows=[_row(of.label, of, "recall", "precision") for of in found.by_label],
        )
    if found.thresholds:
        step = -(-len(found.thresholds) // _MOST_ROWS)
        yield Table(
            caption=f"Answering {found.labels[1]} from a probability on "
            "(parley predict RUN ROWS --threshold …)",
            head=["probability", "share answered so", "precision", "recall"],
            rows=[
                _row(f"{row.least:g}", row, "positive", "precision", "recall")
                for row in found.thresholds[::step]
            ],
        )


def _row(name: str, of: Judged, *figures: str) -> list[str]:
    return [name, *(estimated(of, each) for each in figures)]


def _roc(found: Judgement, twin: Judgement | None) -> Figure | None:
    if not found.roc:
        return None
    lines = [_CHANCE]
    if twin is not None and twin.roc:
        points = [(at.false_alarms, at.recall) for at in twin.roc]
        lines.append(Curve(name="non-private", points=points, colour=Palette.LIMIT, width=1.5))
    points = [(at.false_alarms, at.recall) for at in found.roc]
    lines.append(Curve(name="the model", points=points))
    ends = [at.within for at in found.roc if at.within]
    boxes: list[Box] = [(*each["false_alarms"], *each["recall"]) for each in ends]
    step = -(-len(found.roc) // _MOST_ROWS)
    return Figure.drawn(
        "ROC curve",
        f"The area under it is {estimated(found, 'auc', 3 if boxes else 4)}.",
        partial(
            unit_square,
            lines,
            boxes,
            x_title="share of the others answered so",
            y_title=f"share of {found.labels[1]} found",
        ),
        Table(
            caption="By falling threshold",
            head=["false alarms", "recall"],
            rows=[
                [estimated(at, "false_alarms"), estimated(at, "recall")] for at in found.roc[::step]
            ],
        ),
        keys=keys_of([*reversed(lines)]),
    )


def _calibration(found: Judgement) -> Figure | None:
    rows = found.calibration
    if not rows:
        return None
    of = found.labels[1] if len(found.labels) == 2 else "the predicted label"
    line = Curve(name="the model", points=[(row.predicted, row.observed) for row in rows])
    boxes: list[Box] = [
        (row.predicted - 0.008, row.predicted + 0.008, *row.within["observed"])
        for row in rows
        if row.within
    ]
    said = "middle of an interval" if boxes else "mean"
    return Figure.drawn(
        "Calibration",
        f"How often {of} came true, by the probability that the model gave it.",
        partial(
            unit_square,
            [_CALIBRATED, line],
            boxes,
            x_title=f"probability of {of}",
            y_title="came true",
        ),
        Table(
            caption=f"Probability of {of}, and how often it came true",
            head=[f"probability ({said})", "came true", "records"],
            rows=[
                [
                    number(row.predicted, 3),
                    estimated(row, "observed"),
                    number(round(row.records)),
                ]
                for row in rows
            ],
        ),
        keys=keys_of([line, _CALIBRATED]),
    )
