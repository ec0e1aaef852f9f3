"""Build the report of a run as a document, and write it as a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from parley.client.algorithms.registry import ALGORITHMS
from parley.presentation import result_text
from parley.presentation.column_effects import build_column_section
from parley.presentation.disclosure_tables import (
    build_attacker_table,
    build_disclosure_table,
    build_party_table,
    build_range_table,
)
from parley.presentation.document import (
    Card,
    Cards,
    Code,
    Document,
    Figures,
    Items,
    Section,
    StatusLine,
    Table,
    Text,
    build_fact_section,
    build_section,
    drop_empty,
)
from parley.presentation.model_quality import build_quality_sections
from parley.presentation.page_registry import write_page
from parley.presentation.run_figures import build_run_figures
from parley.presentation.run_paragraphs import (
    describe_guarantee,
    describe_noise,
    describe_secure_sum,
    format_algorithm_name,
    format_headline,
    list_assumptions,
)
from parley.presentation.summary_sections import (
    GUARANTEE_TITLES,
    NOISE,
    SUM,
    TRAINING,
    build_summary_sections,
)
from parley.safe_io.file_writing import is_own_folder
from parley.safe_io.os_errors import describe_cause
from parley.server.jobs.run_section import is_in_process
from parley.server.model_file import ModelFileError, open_model
from parley.server.records.guarantee_facts import GuaranteeSummary
from parley.server.records.run_folder import RunFolderError
from parley.server.records.run_reader import RunContent, read_run
from parley.server.records.run_summary import RunSummary
from parley.server.statements import attack_rate_text
from parley.server.statements.guarantee_text import (
    FIXED_RELEASES_NOTE,
    Fact,
    format_account,
    format_adversaries,
    format_guarantee,
    format_promise,
    format_scope,
    format_spent,
    format_unit,
    get_charged_adversary,
    is_on_batches,
)
from parley.server.statements.number_format import format_bytes, format_duration, format_number
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
    run = read_run(run_dir)
    if out is not None:
        target = out
    elif is_own_folder(run_dir):
        target = run_dir / "report.html"
    else:
        target = run_dir.resolve().with_name(f"{run_dir.resolve().name}-report.html")
    try:
        return write_page("run", target, run, run_dir)
    except OSError as error:
        said = f"Cannot write {target}: {describe_cause(error)}. Name another file: --out FILE."
        raise RunFolderError(said) from error


def build_run_document(run: RunContent, folder: Path) -> Document:
    """Build the report of a run that is now in `folder`."""
    summary = run.summary
    simulated = is_in_process(summary.engine) or any(line.simulation_only for line in run.rounds)
    verdict = StatusLine(summary.verdict, simulated="verdict" in summary.simulation_only)
    state = StatusLine(result_text.format_status(summary), good=summary.status == "complete")
    drawn, job_text = build_run_figures(run), _hide_passwords(run.job_text)
    figures = Figures(drawn) if drawn else None
    sections = [
        build_section(
            "The guarantee",
            *(part for of in summary.guarantees for part in _list_guarantee_parts(summary, of)),
            Text("Assumptions:", "then"),
            Items(list_assumptions(summary, simulated=simulated)),
        ),
        build_section("Results", Cards(_build_cards(run)), figures),
        *build_quality_sections(summary),
        build_column_section(folder, summary),
        _build_synthetic_section(run, folder),
        build_section(
            "Who learns what",
            *(build_disclosure_table(summary, of) for of in summary.guarantees),
            build_party_table(folder),
        ),
        *_list_explanations(summary, simulated=simulated),
        build_fact_section("More facts", _list_other_facts(summary)),
        _build_advice(summary),
        build_section("The model and its columns", build_range_table(folder)),
        build_section(
            "The job as run", Code(job_text, title="job.toml", printed=_strip_comments(job_text))
        ),
    ]
    return Document(
        overline=f"Parley run {run.name}",
        headline=format_headline(summary),
        lede=_format_lede(summary),
        statuses=[*([verdict] if summary.verdict else []), state],
        notices=_list_notices(run, folder),
        cards=[card for of in summary.guarantees for card in _list_cost_cards(of, summary.primary)],
        sections=drop_empty(each for each in sections if each is not None),
        footer=_format_footer(run),
    )


def _list_other_facts(summary: RunSummary) -> list[Fact]:
    """Return the facts that the page shows nowhere else."""
    shown, sections = {*_EXPLAINED, *GUARANTEE_TITLES}, build_summary_sections(summary)
    return [Fact(each.title, each.line) for each in sections if each.title not in shown]


def _build_advice(summary: RunSummary) -> Section | None:
    if not summary.advice:
        return None
    scope = f"An ε here is {format_scope(summary.primary)}."
    return build_section("Possible improvements", Items(summary.advice), Text(scope, "fine"))


def _build_synthetic_section(run: RunContent, folder: Path) -> Section | None:
    """Return the section on synthetic records; None for a run that made none."""
    row = ALGORITHMS.get(run.summary.algorithm)
    if run.summary.synthetic is None and not (row is not None and row.trains_network):
        return None
    from parley.presentation.synthetic_section import build_synthetic_section  # noqa: PLC0415 - most runs make no synthetic records

    return build_synthetic_section(run, folder)


def _strip_comments(job_text: str) -> str:
    """Return the job's keys without comments, for the printed version."""
    lines = (re.sub(r"^(\[[^\]]*\]).*", r"\1", line) for line in job_text.splitlines())
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
    costs = " ".join(f"It cost {format_guarantee(of)}." for of in run.guarantees)
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
    majority = summary.majority_accuracy
    accuracies = {"non-private": summary.baseline_accuracy, "most common class": majority}
    losses = {"non-private": summary.baseline_loss, "excess": summary.excess_loss}
    if summary.accuracy is not None:
        title = f"{name[:1].upper()}{name[1:]}"
        cards.append(_build_metric_card(summary, title, "accuracy", accuracies))
    if summary.loss is not None:
        cards.append(_build_metric_card(summary, "Loss", "loss", losses))
    length = summary.primary.noise.expected_norm
    batch = is_on_batches(summary.primary)
    if length is not None:
        title, often = ("Noise on the average", "round")
        if batch:
            title, often = ("Noise on a batch's sum", "step")
        each = f" in every {often}" if batch or summary.rounds > 1 else ""
        note = f"expected length (root mean square){each}"
        cards.append(Card(title=title, value=format_number(length), note=note))
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


def _list_cost_cards(guarantee: GuaranteeSummary, primary: GuaranteeSummary) -> Iterator[Card]:
    """Yield cards with the promised and spent budget, and what they mean for an attacker.

    The primary guarantee's card also states for which analysts the spent figure holds.
    """
    scope, budget = format_scope(guarantee), guarantee.epsilon_budget
    mark = f" Spent: {FIXED_RELEASES_NOTE}." if guarantee is primary else ""
    yield Card(
        title="Privacy spent",
        value=format_spent(guarantee),
        note=f"{scope[:1].upper()}{scope[1:]}. Promise: {format_promise(guarantee)}.{mark}",
        wide=True,
        share=min(max(guarantee.epsilon / budget, 0.0), 1.0) if budget else None,
    )
    if guarantee.found:
        one, alarms = guarantee.found[0], attack_rate_text.format_percent(guarantee.found[0].alarms)
        yield Card(
            title=f"How often an attacker recognises one {guarantee.unit}",
            value=f"in at most {attack_rate_text.format_percent(one.rate)} of cases",
            note=f"The attacker knows all other {guarantee.unit.plural} and accepts {alarms} false "
            f"alarms. Guessing, without any release: {alarms}.",
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
    many = f"{format_number(run.parties)} parties, {spread} each"
    who = "one party" if run.parties == 1 else many
    simulated = "records_by_party" in run.simulation_only
    return Card(title="Records", value=format_number(sum(sizes)), note=who, simulated=simulated)


def _list_guarantee_parts(run: RunSummary, guarantee: GuaranteeSummary) -> Iterator[Text | Table]:
    """Yield one guarantee's promise, its meaning for an attacker, and its adversaries."""
    several = len(guarantee.accounts) > 1
    holds = "" if several else f" It holds {format_adversaries(guarantee)}."
    yield Text(f"{describe_guarantee(run, guarantee)}{holds}")
    if guarantee.found:
        adversary = get_charged_adversary(guarantee)
        yield build_attacker_table(guarantee.found, guarantee, adversary)
    if several:
        yield Table(
            caption=f"Protection by adversary, {format_scope(guarantee)}",
            head=["adversary", "ε and δ"],
            rows=[[row.adversary.words, format_account(row)] for row in guarantee.accounts],
        )


def _list_explanations(run: RunSummary, *, simulated: bool) -> Iterator[Section]:
    """Yield the sections of facts that are explained, with their paragraphs and tables."""
    guarantees = iter(run.guarantees)
    for each in build_summary_sections(run):
        title, table = _EXPLAINED.get(each.title), None
        if title is None:
            continue
        if each.title == NOISE:
            of = next(guarantees)
            text = describe_noise(run, of)
            title += f", {format_unit(of)}" if len(run.guarantees) > 1 else ""
        elif each.title == SUM:
            text = describe_secure_sum(run, simulated=simulated)
        else:
            from parley.presentation.dp_sgd_section import build_account_table, describe_dp_sgd  # noqa: PLC0415 - spares its code for parties without DP-SGD

            text = describe_dp_sgd(run)
            table = None if run.dp_sgd is None else build_account_table(run, run.dp_sgd)
        yield build_section(title, Text(text), *each.parts, table)


_EXPLAINED = {NOISE: "The noise", TRAINING: "DP-SGD in the parties", SUM: "Secure aggregation"}
"""Title of a section of facts → title of the page's section that explains it."""


def _format_footer(run: RunContent) -> str:
    summary, facts = run.summary, []
    if summary.created:
        facts.append(f"Run of {_format_date(summary.created)}")
    if summary.parley_version:
        facts.append(f"made with Parley {summary.parley_version}")
    facts.append(f"report written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by Parley {__version__}")
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
