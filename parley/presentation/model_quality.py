"""Build the report's sections on model quality: in a simulation, on public records, by noisy
counts.

All three have the same figures and tables. A noisy figure has its interval next to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parley.presentation import result_text
from parley.presentation.document import Figure, Figures, Part, Section, Table, Text, build_section
from parley.presentation.plots import (
    Box,
    Curve,
    Palette,
    build_legend,
    draw_figure,
    plot_unit_square,
)
from parley.presentation.result_text import format_estimate
from parley.server.records.evaluation import ClassifierMetrics, Metrics, RegressionMetrics
from parley.server.records.run_summary import RunSummary
from parley.server.statements.number_format import format_number

_MAX_LABELS = 12
"""Maximum number of labels for a legible confusion matrix."""
_MAX_ROWS = 24
_CHANCE = Curve(
    name="chance", points=[(0, 0), (1, 1)], colour=Palette.QUIET, width=1.5, dash=(2, 3)
)
_CALIBRATED = replace(_CHANCE, name="as often as predicted")


def build_quality_sections(run: RunSummary) -> list[Section]:
    """Return a section per set of held-out records that evaluated the model."""
    sections = []
    found, twin = run.judgement, run.baseline_judgement
    if found is not None:
        table = Table(
            caption=f"On {format_number(found.records)} held-out records",
            head=["", "private", "non-private"],
            rows=result_text.list_evaluation_metrics(run),
        )
        sections.append(_build_section("Model quality", "", found, table, baseline=twin))
    if run.public_test is not None and run.public_test.judgement is not None:
        said = result_text.format_public_test(run)
        title = "Model quality on public records"
        sections.append(_build_section(title, f"On {said}.", run.public_test.judgement))
    if run.evaluation is not None and run.evaluation.judgement is not None:
        found = run.evaluation.judgement
        text = (
            f"On the parties' held-out records: {result_text.format_evaluation(run)}. The range "
            "after each figure covers its noise, for each figure separately. It does not cover the "
            "variation between samples of records."
            + " Scores of one interval of probabilities count as equal."
            * bool(found.roc)
        )
        title = "Model quality on the parties' held-out records"
        sections.append(_build_section(title, text, found))
    return sections


def _build_section(
    title: str,
    text: str,
    evaluation: ClassifierMetrics | RegressionMetrics,
    table: Table | None = None,
    *,
    baseline: ClassifierMetrics | RegressionMetrics | None = None,
) -> Section:
    parts: list[Part | None] = [Text(text) if text else None]
    if isinstance(evaluation, ClassifierMetrics):
        other = baseline if isinstance(baseline, ClassifierMetrics) else None
        both = _build_roc_figure(evaluation, other), _build_calibration_figure(evaluation)
        figures = [each for each in both if each]
        parts += [Figures(figures, "pair") if figures else None, table]
        parts += _build_decision_tables(evaluation)
    else:
        parts.append(table)
    return build_section(title, *parts, simulated=table is not None)


def _build_decision_tables(evaluation: ClassifierMetrics) -> Iterator[Table]:
    """Yield tables of the decisions by label, and of the results at each threshold."""
    if len(evaluation.labels) <= _MAX_LABELS:
        counts = [[format_number(round(n)) for n in row] for row in evaluation.confusion]
        yield Table(
            caption="Records by true label (row) and predicted label (column)",
            head=["", *evaluation.labels],
            rows=[[name, *row] for name, row in zip(evaluation.labels, counts, strict=True)],
        )
    if evaluation.by_label:
        yield Table(
            caption="By label",
            head=["", "recall", "precision"],
            rows=[_format_row(of.label, of, "recall", "precision") for of in evaluation.by_label],
        )
    if evaluation.thresholds:
        step = -(-len(evaluation.thresholds) // _MAX_ROWS)
        shown = evaluation.thresholds[::step]
        names = ("positive", "precision", "recall")
        yield Table(
            caption=f"Predicting {evaluation.labels[1]} from this probability on (parley predict "
            "RUN ROWS --threshold …)",
            head=["probability", "share predicted", "precision", "recall"],
            rows=[_format_row(f"{row.least:g}", row, *names) for row in shown],
        )


def _format_row(name: str, evaluation: Metrics, *figures: str) -> list[str]:
    return [name, *(format_estimate(evaluation, each) for each in figures)]


def _build_roc_figure(
    evaluation: ClassifierMetrics, baseline: ClassifierMetrics | None
) -> Figure | None:
    if not evaluation.roc:
        return None
    lines = [_CHANCE]
    if baseline is not None and baseline.roc:
        points = [(at.false_alarms, at.recall) for at in baseline.roc]
        lines.append(Curve(name="non-private", points=points, colour=Palette.LIMIT, width=1.5))
    points = [(at.false_alarms, at.recall) for at in evaluation.roc]
    lines.append(Curve(name="the model", points=points))
    ends = [at.within for at in evaluation.roc if at.within]
    boxes: list[Box] = [(*each["false_alarms"], *each["recall"]) for each in ends]
    step = -(-len(evaluation.roc) // _MAX_ROWS)
    shown = evaluation.roc[::step]
    rows = [[format_estimate(at, name) for name in ("false_alarms", "recall")] for at in shown]
    y_title = f"true positive rate ({evaluation.labels[1]})"
    return draw_figure(
        "ROC curve",
        f"The area under the curve is {format_estimate(evaluation, 'auc', 3 if boxes else 4)}.",
        plot_unit_square(lines, boxes, x_title="false positive rate", y_title=y_title),
        Table(caption="By decreasing threshold", head=["false alarms", "recall"], rows=rows),
        keys=build_legend([*reversed(lines)]),
    )


def _build_calibration_figure(evaluation: ClassifierMetrics) -> Figure | None:
    rows = evaluation.calibration
    if not rows:
        return None
    of = evaluation.labels[1] if len(evaluation.labels) == 2 else "the predicted label"
    line = Curve(name="the model", points=[(row.predicted, row.observed) for row in rows])
    boxes: list[Box] = [
        (row.predicted - 0.008, row.predicted + 0.008, *row.within["observed"])
        for row in rows
        if row.within
    ]
    shown = []
    for row in rows:
        shares = format_number(row.predicted, 3), format_estimate(row, "observed")
        shown.append([*shares, format_number(round(row.records))])
    said = "middle of an interval" if boxes else "mean"
    lines, x_title = [_CALIBRATED, line], f"probability of {of}"
    return draw_figure(
        "Calibration",
        f"How often {of} was true, by predicted probability.",
        plot_unit_square(lines, boxes, x_title=x_title, y_title="came true"),
        Table(
            caption=f"Predicted probability of {of}, and how often it was true",
            head=[f"probability ({said})", "came true", "records"],
            rows=shown,
        ),
        keys=build_legend([line, _CALIBRATED]),
    )
