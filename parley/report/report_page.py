"""Write the report of a run, which is one self-contained HTML page.

The page has no script and makes no network request. Its content-security policy forbids both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from parley.client.algorithms.registry import ALGORITHMS
from parley.report.column_effects import build_column_section
from parley.report.components import Card, ReportTable, write_page
from parley.report.disclosure import (
    build_disclosure_table,
    build_party_table,
    build_range_table,
)
from parley.report.model_quality import build_quality_sections
from parley.report.paragraphs import (
    describe_dp_sgd,
    describe_guarantee,
    describe_noise,
    describe_secure_sum,
    format_algorithm_name,
    format_headline,
    list_assumptions,
)
from parley.report.run_figures import build_run_figures
from parley.safe_io.file_writing import is_own_folder
from parley.safe_io.os_errors import describe_cause
from parley.server.jobs.running import is_in_process
from parley.server.model_file import ModelFileError, open_model
from parley.server.records import attacker_text, guarantee_text, result_text, summary_sections
from parley.server.records.guarantee_facts import GuaranteeSummary
from parley.server.records.guarantee_text import Fact
from parley.server.records.number_format import (
    format_bytes,
    format_duration,
    format_epsilon,
    format_number,
)
from parley.server.records.run_folder import RunFolderError
from parley.server.records.run_reader import RunContent, read_run
from parley.server.records.run_summary import DpSgdSummary, RunSummary
from parley.version import __version__

_MAX_ROUNDS_SHOWN = 50


def write_report(run_dir: Path, *, out: Path | None = None) -> Path:
    """Write a run's page, replacing an older one, and return its path.

    An interrupted run gets a report of its rounds so far. The page is never written into a folder
    that another user filled.

    Args:
        out: Path of the page. The default is `report.html` in the run's folder, or
            `NAME-report.html` next to a folder that is not this user's own.

    Raises:
        RunFolderError: the folder has no run, or the page cannot be written.
    """
    names = _build_context(read_run(run_dir), run_dir)
    if out is not None:
        target = out
    elif is_own_folder(run_dir):
        target = run_dir / "report.html"
    else:
        target = run_dir.resolve().with_name(f"{run_dir.resolve().name}-report.html")
    try:
        return write_page(target, "report.html.j2", **names)
    except OSError as error:
        said = f"Cannot write {target}: {describe_cause(error)}. Name another file: --out FILE."
        raise RunFolderError(said) from error


def _build_context(run: RunContent, folder: Path) -> dict[str, Any]:
    """Return all names that the template uses."""
    summary = run.summary
    simulated = is_in_process(summary.engine) or any(line.simulation_only for line in run.rounds)
    return {
        "run": run,
        "summary": summary,
        "headline": format_headline(summary),
        "lede": _format_lede(summary),
        "status": result_text.format_status(summary),
        "notices": _list_notices(run, folder),
        "costs": [
            card
            for of in summary.guarantees
            for card in _build_cost_cards(of, marked=of is summary.primary)
        ],
        "cards": _build_cards(run),
        "figures": build_run_figures(run),
        "judgements": build_quality_sections(summary),
        "synthetic": _build_synthetic_section(run, folder),
        "guarantees": [_build_guarantee(summary, of) for of in summary.guarantees],
        "more": [
            Fact(each.title, each.line)
            for each in summary_sections.build_run_sections(summary)
            if each.title not in {*_EXPLAINED, *summary_sections.GUARANTEE_TITLES}
        ],
        "learns": [
            *(build_disclosure_table(summary, of) for of in summary.guarantees),
            *(table for table in [build_party_table(folder)] if table),
        ],
        "columns": build_column_section(folder, summary),
        "model": [table for table in [build_range_table(folder)] if table],
        "assumptions": list_assumptions(summary, simulated=simulated),
        "explained": _build_explanations(summary, simulated=simulated),
        "advice_scope": f"An ε here is {guarantee_text.format_scope(summary.primary)}.",
        "job_text": _hide_passwords(run.job_text),
        "keys_text": _strip_comments(run.job_text),
        "footer": _format_footer(run),
    }


def _build_synthetic_section(run: RunContent, folder: Path) -> dict[str, Any] | None:
    """Return the section on synthetic records; None for a run that made none."""
    row = ALGORITHMS.get(run.summary.algorithm)
    if run.summary.synthetic is None and not (row is not None and row.trains_network):
        return None
    from parley.report.synthetic_section import build_synthetic_section  # noqa: PLC0415 - most runs make no synthetic records

    return build_synthetic_section(run, folder)


def _strip_comments(job_text: str) -> str:
    """Return the job's keys without comments, for the printed version."""
    lines = (
        re.sub(r"^(\[[^\]]*\]).*", r"\1", line) for line in _hide_passwords(job_text).splitlines()
    )
    return "\n".join(line for line in lines if line and not line.startswith("#"))


def _hide_passwords(job_text: str) -> str:
    # A ledger's URL may contain a password, and reports are passed on.
    return re.sub(r"(://[^:/@\s]*):\S*@", r"\1:…@", job_text)


def _format_lede(run: RunSummary) -> str:
    name = format_algorithm_name(run)
    facts = [f"{name[:1].upper()}{name[1:]}"]
    if run.rounds > 1:
        planned = "" if run.status == "complete" else " planned"
        facts.append(f"{format_number(run.rounds)} rounds{planned}")
    costs = " ".join(f"It cost {guarantee_text.format_guarantee(of)}." for of in run.guarantees)
    return f"{', '.join(facts)}. {costs}"


def _list_notices(run: RunContent, folder: Path) -> list[str]:
    notices, summary = [*run.remarks, *_list_model_problems(folder)], run.summary
    if summary.status == "interrupted":
        notices.append(
            "This run is not finished. Its ledger may hold one more charge than the rounds below: "
            "a round that was reserved and not logged. The ledger is authoritative."
        )
    if summary.primary.noise.seeded:
        notices.append(
            "The noise of this run came from a seed. It shows what a real run would give, and "
            "protects no one."
        )
    if summary.simulation_only and result_text.list_model_metrics(summary):
        notices.append(
            "Figures marked simulation only were computed from records without noise, and no "
            "budget covers them. If the records are real, protect this page like the records."
        )
    return notices


def _list_model_problems(folder: Path) -> list[str]:
    """Return what is wrong with the model file, if so; then nothing on this page is from it."""
    try:
        if (folder / "model.safetensors").exists():
            open_model(folder)
    except ModelFileError as error:
        # Reports are passed on, so do not show this machine's folders.
        said = str(error).replace(f"{folder}/", "")
        return [f"The model file is unusable, so this page shows nothing from it. {said}"]
    return []


def _build_cards(run: RunContent) -> list[Card]:
    cards: list[Card] = []
    summary = run.summary
    name = result_text.get_metric_name(summary)
    accuracies = {
        "non-private": summary.baseline_accuracy,
        "commonest class": summary.majority_accuracy,
    }
    losses = {"non-private": summary.baseline_loss, "excess": summary.excess_loss}
    if summary.accuracy is not None:
        title = f"{name[:1].upper()}{name[1:]}"
        cards.append(_build_metric_card(summary, title, "accuracy", accuracies))
    if summary.loss is not None:
        cards.append(_build_metric_card(summary, "Loss", "loss", losses))
    length, batch = (
        summary.primary.noise.expected_norm,
        guarantee_text.is_on_batches(summary.primary),
    )
    if length is not None:
        often = "step" if batch else "round"
        each = f" in every {often}" if batch or summary.rounds > 1 else ""
        cards.append(
            Card(
                title="Noise on a batch's sum" if batch else "Noise on the average",
                value=format_number(length),
                note=f"expected length (root mean square){each}",
            )
        )
    cards.append(_build_parties_card(summary))
    sums = summary.secure_aggregation
    if moved := sums.bytes_up + sums.bytes_down:
        note = (
            f"{format_bytes(sums.bytes_up)} up, {format_bytes(sums.bytes_down)} down, all parties"
        )
        cards.append(Card(title="Traffic", value=format_bytes(moved), note=note))
    if summary.seconds is not None:
        each_round = summary.seconds_per_round
        note = f"{format_duration(each_round)} a round" if each_round is not None else ""
        cards.append(Card(title="Time", value=format_duration(summary.seconds), note=note))
    return cards


def _build_cost_cards(guarantee: GuaranteeSummary, *, marked: bool) -> Iterator[Card]:
    """Yield cards with the promised and spent budget, and what they mean for an attacker.

    Args:
        marked: Whether to print for which analysts the spent figure holds.
    """
    scope = guarantee_text.format_scope(guarantee)
    mark = f" Spent: {guarantee_text.FIXED_RELEASES_NOTE}." if marked else ""
    yield Card(
        title="Privacy spent",
        value=guarantee_text.format_spent(guarantee),
        note=(
            f"{scope[:1].upper()}{scope[1:]}. Promise: "
            f"{guarantee_text.format_promise(guarantee)}.{mark}"
        ),
        wide=True,
        share=min(max(guarantee.epsilon / guarantee.epsilon_budget, 0.0), 1.0)
        if guarantee.epsilon_budget
        else None,
    )
    if guarantee.found:
        one, alarms = guarantee.found[0], attacker_text.format_percent(guarantee.found[0].alarms)
        yield Card(
            title=f"How often an attacker recognises one {guarantee.unit}",
            value=f"in at most {attacker_text.format_percent(one.rate)} of cases",
            note=(
                f"The attacker knows all other {guarantee.unit.plural} and accepts {alarms} false "
                f"alarms. Guessing, without any release: {alarms}."
            ),
            wide=True,
            share=one.rate,
        )


def _build_metric_card(
    run: RunSummary, title: str, name: str, comparisons: dict[str, float | None]
) -> Card:
    return Card(
        title=title,
        value=format_number(getattr(run, name), 4),
        note=", ".join(
            f"{label} {format_number(known, 3 if label == 'excess' else 4)}"
            for label, known in comparisons.items()
            if known is not None
        ),
        simulated=name in run.simulation_only,
    )


def _build_parties_card(run: RunSummary) -> Card:
    sizes, least = run.records_by_party, run.min_records
    if not sizes:
        note = f"at least {format_number(least)} records each" if least else ""
        return Card(title="Parties", value=format_number(run.parties), note=note)
    spread = format_number(min(sizes))
    if min(sizes) < max(sizes):
        spread += f" to {format_number(max(sizes))}"
    who = (
        "one party" if run.parties == 1 else f"{format_number(run.parties)} parties, {spread} each"
    )
    simulated = "records_by_party" in run.simulation_only
    return Card(title="Records", value=format_number(sum(sizes)), note=who, simulated=simulated)


def _build_guarantee(run: RunSummary, guarantee: GuaranteeSummary) -> dict[str, Any]:
    """Return one guarantee's promise, its adversaries, and its meaning for an attacker."""
    several, tables = len(guarantee.accounts) > 1, []
    if guarantee.found:
        tables.append(
            ReportTable(
                caption=attacker_text.format_caption(
                    guarantee.found,
                    guarantee.unit,
                    guarantee.neighbouring,
                    guarantee_text.get_charged_adversary(guarantee),
                ),
                head=[*attacker_text.HEADER],
                rows=attacker_text.build_rows(guarantee.found, guarantee.unit),
            )
        )
    if several:
        tables.append(
            ReportTable(
                caption=f"Protection by adversary, {guarantee_text.format_scope(guarantee)}",
                head=["adversary", "ε and δ"],
                rows=[
                    [row.adversary.words, guarantee_text.format_account(row)]
                    for row in guarantee.accounts
                ],
            )
        )
    return {
        "promise": (
            f"{describe_guarantee(run, guarantee)}"
            f"{'' if several else f' It holds {guarantee_text.format_adversaries(guarantee)}.'}"
        ),
        "tables": tables,
    }


def _build_explanations(run: RunSummary, *, simulated: bool) -> list[dict[str, Any]]:
    """Return the sections of facts with their paragraphs and tables."""
    guarantees = iter(run.guarantees)
    shown = []
    for each in summary_sections.build_run_sections(run):
        if each.title not in _EXPLAINED:
            continue
        told: dict[str, Any] = {"title": _EXPLAINED[each.title], "facts": each.facts, "table": None}
        if each.title == summary_sections.NOISE:
            of = next(guarantees)
            told["text"] = describe_noise(run, of)
            if len(run.guarantees) > 1:
                told["title"] += f", {guarantee_text.format_unit(of)}"
        elif each.title == summary_sections.SUM:
            told["text"] = describe_secure_sum(run, simulated=simulated)
        elif run.dp_sgd is not None:
            told |= {"text": describe_dp_sgd(run), "table": _build_account_table(run, run.dp_sgd)}
        shown.append(told)
    return shown


_EXPLAINED = {
    summary_sections.NOISE: "The noise",
    summary_sections.TRAINING: "DP-SGD in the parties",
    summary_sections.SUM: "Secure aggregation",
}
"""Title of a section of facts → title of the page's section that explains it."""


def _build_account_table(run: RunSummary, facts: DpSgdSummary) -> ReportTable:
    names = [name for name in ("rdp", "pld", "exact") if name in facts.largest]
    # Parties with most steps first: if many parties have the same account, a few rows are enough.
    order = sorted(facts.parties, key=lambda party: (-party.steps, party.party))
    caption = "Every party's account"
    if len(order) > _MAX_ROUNDS_SHOWN:
        caption = f"The {_MAX_ROUNDS_SHOWN} largest accounts of {format_number(len(order))} parties"
    return ReportTable(
        caption=f"{caption}, ε {guarantee_text.format_scope(run.primary)}",
        head=[
            "party",
            "records",
            "steps",
            *(f"ε by {guarantee_text.conversion(n)}" for n in names),
        ],
        rows=[
            [
                str(party.party),
                format_number(party.records),
                format_number(party.steps),
                *(format_epsilon(party.epsilon.get(name)) for name in names),
            ]
            for party in order[:_MAX_ROUNDS_SHOWN]
        ],
    )


def _format_footer(run: RunContent) -> str:
    summary, facts = run.summary, []
    if summary.created:
        facts.append(f"Run of {_format_date(summary.created)}")
    if summary.parley_version:
        facts.append(f"made with Parley {summary.parley_version}")
    now = datetime.now(UTC)
    facts.append(f"report written {now:%Y-%m-%d %H:%M} UTC by Parley {__version__}")
    text = f"{', '.join(facts)}. The folder also has {', '.join(run.files)}. "
    text = text[:1].upper() + text[1:]
    text += "Figures of privacy spent are rounded up, others to the nearest."
    if summary.run_id and summary.run_id != run.name:
        text += f" The ledger's name for this run is {summary.run_id}."
    return text


def _format_date(text: str) -> str:
    try:
        return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return text
