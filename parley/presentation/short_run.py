"""Build what the terminal, `print(run)` and a notebook show of a run.

The overview is a document; its short form has at most 15 lines of 80 columns.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from parley.presentation.document import (
    Code,
    Document,
    Items,
    Section,
    StatusLine,
    Table,
    Text,
    build_section,
)
from parley.presentation.result_text import (
    format_evaluation,
    format_public_test,
    format_status,
    list_evaluation_metrics,
    list_model_metrics,
)
from parley.presentation.short_guarantee import format_short_account, list_promise_rows
from parley.presentation.short_layout import Row, format_rows
from parley.presentation.summary_sections import build_summary_sections
from parley.privacy.accounting.rounding import format_rounded_down
from parley.safe_io.plurals import format_noun
from parley.server.model_file import ARRAYS_FILE

if TYPE_CHECKING:
    from parley.server.records.run_summary import RunSummary

_NOT_LEARNED = "none"
"""Kind of a model that a job does not learn."""
_EXACT_NOTE = "* Exact: no noise was added to this score. Only a simulation can show it."


def build_overview_document(run: RunSummary, folder: Path) -> Document:
    """Build the overview of a run that is kept in `folder`: how it ended, figures and costs."""
    statuses = []
    if run.status != "complete":
        statuses.append(StatusLine(format_status(run)))
    if run.verdict:
        statuses.append(StatusLine(run.verdict, simulated="verdict" in run.simulation_only))
    sections = [
        _build_measured(run),
        *build_summary_sections(run),
        build_section("run folder", Code(str(folder))),
        build_section("", Items(run.advice)) if run.advice else None,
    ]
    return Document(headline="", statuses=statuses, sections=[each for each in sections if each])


def _build_measured(run: RunSummary) -> Section | None:
    """Return what only a simulation can measure."""
    rows = [*list_model_metrics(run), *list_evaluation_metrics(run)]
    if run.synthetic is not None:
        from parley.presentation.synthetic_text import list_table_metrics  # noqa: PLC0415 - spares its code for a run without rows

        rows += list_table_metrics(run.synthetic)
    if not rows:
        return None
    note = "* simulation only: a real run would have to release each figure, and pay for it"
    table = Table(
        head=["", "private", "non-private"], rows=[[f"{name} *", *values] for name, *values in rows]
    )
    return build_section("", table, Text(note))


def list_run_lines(run: RunSummary, folder: Path) -> list[str]:
    """Return the lines of a run that is kept in `folder`."""
    measured = "accuracy" in run.simulation_only and run.accuracy is not None
    status = "" if run.status == "complete" else format_status(run)
    rows = [
        Row("", status),
        Row("", run.verdict),
        Row("", _format_size(run), rank=2),
        Row(*_format_accuracy(run)),
        *list_promise_rows(run.guarantees),
        *(Row("Ledger", format_short_account(each), rank=1) for each in run.data_accounts or ()),
        Row("Evaluation", format_evaluation(run), rank=2),
        Row("Test set", format_public_test(run), rank=2),
        Row("Table", _format_table(run), rank=2),
        Row("Self-audit", _format_self_audit(run), rank=1),
        Row("Saved", str(folder), whole=True),
        Row("", _EXACT_NOTE if measured else ""),
        Row("", _format_next(run, folder), rank=4),
    ]
    return format_rows(rows)


def _format_size(run: RunSummary) -> str:
    """Return who learned what from how many records."""
    simulated = " (simulated)" if run.simulation_only else ""
    parts = (
        f"{run.parties:,} {format_noun(run.parties, 'party')}",
        "" if run.model == _NOT_LEARNED else run.model,
        _format_records(run),
        f"{run.rounds_done:,} {format_noun(run.rounds_done, 'round')}{simulated}",
    )
    return ", ".join(filter(None, parts))


def _format_records(run: RunSummary) -> str:
    if run.records_by_party:
        count = sum(run.records_by_party)
        return f"{count:,} {format_noun(count, 'record')}"
    if run.min_records is None:
        return ""
    return f"at least {run.min_records:,} {format_noun(run.min_records, 'record')} each"


def _format_accuracy(run: RunSummary) -> tuple[str, str]:
    """Return the figure's name, and its value next to those of simpler models."""
    name = "R²" if run.metric == "r2" else "Accuracy"
    if run.accuracy is None:
        return name, ""
    star = "*" if "accuracy" in run.simulation_only else ""
    parts = [f"{run.accuracy:.3f}{star}"]
    if run.baseline_accuracy is not None:
        parts.append(f"without privacy {run.baseline_accuracy:.3f}")
    if run.majority_accuracy is not None:
        parts.append(f"most common answer {run.majority_accuracy:.3f}")
    return name, "   ".join(parts)


def _format_self_audit(run: RunSummary) -> str:
    """Return the lower bound on ε from the run's canaries; empty without them."""
    found = run.self_audit
    if found is None:
        return ""
    return (
        f"ε ≥ {format_rounded_down(found.epsilon_lower, 4)} with {100 * found.confidence:g}% "
        f"confidence, against all who see the results: a lower bound, not an estimate"
    )


def _format_table(run: RunSummary) -> str:
    """Return how large the synthetic table is; empty if the run makes none."""
    table = run.synthetic
    return "" if table is None else f"{table.rows:,} rows in {table.path}"


def _format_next(run: RunSummary, folder: Path) -> str:
    if run.status == "interrupted":
        return ""
    if run.synthetic is not None:
        return "Next: parley sample RUN, RUN/report.html"
    if (folder / ARRAYS_FILE).exists():
        return f"Next: RUN/{ARRAYS_FILE}, RUN/report.html"
    if run.model == _NOT_LEARNED:
        return "Next: RUN/report.html"
    return "Next: parley show RUN, parley predict RUN rows.csv, RUN/report.html"
