"""The report's tables of how good a model is on held-out records; a simulation's alone."""

from __future__ import annotations

from parley.report.parts import Table
from parley.server.records import result_words
from parley.server.records.judgement import Judgement
from parley.server.records.numerals import number
from parley.server.records.summary import RunSummary

_MOST_LABELS = 12
"""Labels up to which a confusion matrix can be read."""


def judgement_tables(summary: RunSummary) -> list[Table]:
    """The figures, the decisions by label, and how often a probability came true."""
    found = summary.judgement
    if found is None:
        return []
    tables = [
        Table(
            caption=f"On {number(found.records)} held-out records",
            head=["", "private", "non-private"],
            rows=[[row.name, row.private, row.non_private] for row in result_words.judged(summary)],
        )
    ]
    if not isinstance(found, Judgement):
        return tables
    if len(found.labels) <= _MOST_LABELS:
        tables.append(
            Table(
                caption="Records by true label (row) and predicted label (column)",
                head=["", *found.labels],
                rows=[
                    [name, *map(number, row)]
                    for name, row in zip(found.labels, found.confusion, strict=True)
                ],
            )
        )
    if found.calibration:
        of = found.labels[1] if len(found.labels) == 2 else "the predicted label"
        tables.append(
            Table(
                caption=f"Probability of {of}, and how often it came true",
                head=["mean probability", "came true", "records"],
                rows=[
                    [number(each.predicted, 3), number(each.observed, 3), number(each.records)]
                    for each in found.calibration
                ],
            )
        )
    return tables
