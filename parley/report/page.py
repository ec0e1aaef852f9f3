"""The report of a run: one HTML page that needs nothing but itself.

`write_report` turns a run folder into `report.html`: what was learned and by whom, what it cost in
ε and δ with unit and neighbouring relation, how loss and accuracy compare with the non-private
baseline (simulation only), the noise, the secure sum, the guarantee and what it rests on. The page
has no script and asks for nothing over a network; its own content-security policy forbids both.
"""

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata, resources
from pathlib import Path

from parley.report import words
from parley.report.dp_sgd import dp_sgd_section
from parley.report.figures import figures
from parley.report.parts import SIMULATION_ONLY, escape, prose
from parley.report.record import ReportError, RunRecord, read_run

__all__ = ["ReportError", "write_report"]

_FILES = ("job.toml", "rounds.jsonl", "summary.json", "model.safetensors", "ledger.sqlite")


def write_report(run_dir: Path) -> Path:
    """Write `report.html` into the run folder, replacing an older one, and return its path.

    A run that was interrupted gets a report of its rounds so far. Raises ReportError when the
    folder doesn't hold a run, or can't be written to.
    """
    run = read_run(run_dir)
    page = _page(run, [name for name in _FILES if (run_dir / name).exists()])
    target, draft = run_dir / "report.html", run_dir / ".report.html.part"
    try:
        # Written aside and moved into place: a reader never sees half a report.
        draft.write_text(page, encoding="utf-8")
        os.replace(draft, target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ReportError(f"Expected to write {target}, got: {error}.") from error
    return target


def _page(run: RunRecord, files: Sequence[str]) -> str:
    style = resources.files("parley.report").joinpath("report.css").read_text(encoding="utf-8")
    drawn = figures(run)
    sections = [
        _section("Results", f'<div class="plots">{"".join(drawn)}</div>') if drawn else "",
        _section("The guarantee", _guarantee(run)),
        _section("The noise", _noises(run)),
        _dp_sgd(run),
        _section("Secure aggregation", _secure_sum(run)),
        _section("What would improve it", _advice(run)) if run.advice else "",
        _section("The job as run", _job(run)),
    ]
    title = escape(f"{words.headline(run)} · Parley")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"{_header(run)}\n<main>\n{''.join(sections)}</main>\n{_footer(run, files)}\n"
        "</body>\n</html>\n"
    )


def _header(run: RunRecord) -> str:
    name = words.algorithm_name(run)
    facts = [f"{name[:1].upper()}{name[1:]}"]
    if run.rounds_planned > 1:
        planned = "" if run.status == "complete" else " planned"
        facts.append(f"{words.number(run.rounds_planned)} rounds{planned}")
    lede = f"{', '.join(facts)}. "
    if run.epsilon is not None:
        lede += (
            f"It cost ε = {words.epsilon_text(run.epsilon)} at δ = {words.cost(run.delta)}, "
            f"{words.unit(run)}; {words.relation(run)}."
        )
        parties = run.of_parties()
        if parties is not None:
            lede += (
                f" For everything that one party holds it cost ε = "
                f"{words.epsilon_text(parties.epsilon)} at δ = {words.cost(parties.delta)}, "
                f"{words.unit(parties)}; {words.relation(parties)}."
            )
    else:
        lede += "Nothing was charged."
    halted = "" if run.status == "complete" else " halted"
    return (
        f'<header>\n<p class="overline">Parley run {escape(run.name)}</p>\n'
        f"<h1>{_unbroken(words.headline(run))}</h1>\n"
        f'<p class="lede">{escape(lede)}</p>\n'
        f'<p class="status{halted}">{prose(words.status_words(run))}</p>\n'
        f"{_notices(run)}{_cards(run)}</header>"
    )


def _unbroken(text: str) -> str:
    """Escaped text in which short names with a hyphen, such as a data set's, stay on one line."""
    return re.sub(r"(?<!\S)(\S{1,20}-\S{1,20})(?!\S)", r'<span class="one">\1</span>', escape(text))


def _notices(run: RunRecord) -> str:
    notices = list(run.notes)
    if run.status == "interrupted":
        notices.append(
            "This run isn't finished. Its ledger may hold one charge more than the rounds below "
            "show: a round that was reserved and never logged. What the ledger says counts."
        )
    if run.seeded:
        notices.append(
            "This run's noise came from a seed: it shows what a real run would give, and protects "
            "nobody."
        )
    if run.simulation_only and any(run.figures[name] is not None for name in run.figures):
        notices.append(
            "Figures marked simulation only were computed from records without noise, and no "
            "budget covers them. If the records are real, keep this page as closed as the records."
        )
    if not notices:
        return ""
    return f'<div class="notice">{"".join(f"<p>{prose(text)}</p>" for text in notices)}</div>\n'


def _cards(run: RunRecord) -> str:
    parties = run.of_parties()
    cards = [_privacy_card(run), *([] if parties is None else [_privacy_card(parties)])]
    shown = run.figures
    if shown["accuracy"] is not None:
        beside = [("non-private", "baseline_accuracy"), ("commonest class", "majority_accuracy")]
        cards.append(_figure_card(run, words.metric_title(run), "accuracy", beside))
    if shown["loss"] is not None:
        beside = [("non-private", "baseline_loss"), ("excess", "excess_loss")]
        cards.append(_figure_card(run, "Loss", "loss", beside))
    if run.noise_norm is not None:
        each = " in every round" if run.rounds_planned > 1 else ""
        each = " in every step" if run.law == "dp-sgd" else each
        cards.append(
            _card(
                "Noise on a batch's sum" if run.law == "dp-sgd" else "Noise on the average",
                words.number(run.noise_norm),
                f"expected length (root mean square){each}",
            )
        )
    cards.append(_parties_card(run))
    up, down = _traffic(run)
    moved = up + down
    if moved:
        note = f"{words.byte_text(up)} up, {words.byte_text(moved - up)} down, all parties"
        cards.append(_card("Traffic", words.byte_text(moved), note))
    if run.seconds is not None:
        each_round = run.seconds_per_round
        note = f"{words.duration(each_round)} a round" if each_round is not None else ""
        cards.append(_card("Time", words.duration(run.seconds), note))
    return f'<div class="cards">{"".join(cards)}</div>\n'


def _traffic(run: RunRecord) -> tuple[float, float]:
    """Bytes up and down: of the rounds, and of a release ahead of them."""
    ahead = run.components
    return (
        sum(line.bytes_up for line in run.rounds) + (ahead.get("bytes_up") or 0),
        sum(line.bytes_down for line in run.rounds) + (ahead.get("bytes_down") or 0),
    )


def _privacy_card(run: RunRecord) -> str:
    if run.epsilon is None:
        return _card("Privacy spent", "none", "No release was charged.", wide=True)
    scope = f"{words.unit(run)}; {words.relation(run)}"
    meter, budget = "", ""
    if run.epsilon_budget:
        share = min(max(run.epsilon / run.epsilon_budget, 0.0), 1.0)
        meter = f'<div class="meter"><span style="width:{share:.1%}"></span></div>'
        at = f" at δ = {words.cost(run.delta_budget)}" if run.delta_budget is not None else ""
        budget = f" Budget: ε = {words.epsilon_text(run.epsilon_budget)}{at}."
    return _card(
        "Privacy spent",
        f"ε = {words.epsilon_text(run.epsilon)}, δ = {words.cost(run.delta)}",
        f"{scope[:1].upper()}{scope[1:]}.{budget}",
        wide=True,
        meter=meter,
    )


def _figure_card(run: RunRecord, title: str, name: str, beside: Sequence[tuple[str, str]]) -> str:
    known = [(label, run.figures[key]) for label, key in beside if run.figures[key] is not None]
    note = ", ".join(
        f"{label} {words.number(value, 3 if label == 'excess' else 4)}" for label, value in known
    )
    value = words.number(run.figures[name], 4)
    badge = f" {SIMULATION_ONLY}" if name in run.simulation_only else ""
    return _card(title, value, note, badge=badge)


def _parties_card(run: RunRecord) -> str:
    sizes, least = run.records_by_party, run.min_records
    if not sizes:
        note = f"at least {words.number(least)} records each" if least else ""
        return _card("Parties", words.number(run.parties), note)
    spread = words.number(min(sizes))
    if min(sizes) < max(sizes):
        spread += f" to {words.number(max(sizes))}"
    who = "one party" if run.parties == 1 else f"{words.number(run.parties)} parties, {spread} each"
    badge = f" {SIMULATION_ONLY}" if "records_by_party" in run.simulation_only else ""
    return _card("Records", words.number(sum(sizes)), who, badge=badge)


def _card(
    title: str, value: str, note: str, *, badge: str = "", wide: bool = False, meter: str = ""
) -> str:
    return (
        f'<div class="card{" wide" if wide else ""}"><h2>{escape(title)}{badge}</h2>'
        f'<p class="figure">{escape(value)}</p>{meter}<p class="note">{escape(note)}</p></div>'
    )


def _section(title: str, body: str) -> str:
    return f'<section class="section"><h2>{escape(title)}</h2><div>{body}</div></section>\n'


def _guarantee(run: RunRecord) -> str:
    views = [run, *([] if (parties := run.of_parties()) is None else [parties])]
    # What both guarantees rest on is said once.
    rests = dict.fromkeys(item for view in views for item in words.assumptions(view))
    items = "".join(f"<li>{prose(item)}</li>" for item in rests)
    told = "".join(f"<p>{prose(words.adversary(view))}</p>" for view in views)
    return f'{told}<p>It rests on this:</p><ul class="plain">{items}</ul>'


def _noises(run: RunRecord) -> str:
    parties = run.of_parties()
    if parties is None:
        return _noise(run)
    return (
        f"<h3>Per record: in the parties</h3>{_noise(run)}"
        f"<h3>Per party: on the sum of their updates</h3>{_noise(parties)}"
    )


def _noise(run: RunRecord) -> str:
    letter = words.symbol(run)
    on, each = ("the average", "the average")
    if run.law == "dp-sgd":
        on, each = "a batch's sum", "a batch's noise"
    facts = [
        ("Law", run.law),
        ("Calibration", run.calibration),
        (f"Scale on {on}, {letter}", words.number(run.noise_scale)),
        (
            f"Scale on the sum, {letter}",
            "" if run.law == "dp-sgd" else words.number(run.noise_scale_of_sum),
        ),
        (
            f"Expected length of {each}" if run.law == "dp-sgd" else f"Expected length on {each}",
            words.number(run.noise_norm),
        ),
        (f"Sensitivity of {on}", words.number(run.sensitivity)),
        (
            "Added by",
            {"server": "the server", "share": "parties, in shares", "party": "each party"}.get(
                run.noise_point, run.noise_point
            ),
        ),
        ("Drawn from", {True: "a seed", False: "system entropy", None: ""}[run.seeded]),
        ("ρ spent (zCDP)", words.cost(run.rho)),
    ]
    return f"<p>{prose(' '.join(words.noise_words(run)))}</p>{_facts(facts)}"


def _dp_sgd(run: RunRecord) -> str:
    if not run.dp_sgd:
        return ""
    body = dp_sgd_section(
        run.dp_sgd,
        delta=run.delta,
        relation=words.relation(run),
        lower_outside=run.record_bounds.get("charged") == "outer",
    )
    return _section("DP-SGD in the parties", body)


def _secure_sum(run: RunRecord) -> str:
    told = run.secure_sum

    def whole(key: str) -> str:
        value = told.get(key)
        return f"{value}" if isinstance(value, int | float) else ""

    inflation = told.get("inflation")
    ring, scale = whole("ring_bits"), whole("scale_bits")
    facts = [
        ("Functionality", str(told.get("mode") or "")),
        ("Ring", f"integers modulo 2^{ring}" if ring else ""),
        ("Grid", f"steps of 2^−{scale}" if scale else ""),
        (
            "Sensitivity added by the grid",
            f"{words.number(float(inflation) * 100)} %"
            if isinstance(inflation, int | float)
            else "",
        ),
        ("Least number of survivors", whole("min_survivors")),
        ("Sent by the parties", words.byte_text(_traffic(run)[0])),
        ("Sent to the parties", words.byte_text(_traffic(run)[1])),
        ("Principal components, summed over", _ahead(run)),
    ]
    return f"<p>{prose(' '.join(words.secure_sum_words(run)))}</p>{_facts(facts)}"


def _ahead(run: RunRecord) -> str:
    counts = run.components.get("parties")
    if not isinstance(counts, dict):
        return ""
    return f"{counts.get('summed')} of {counts.get('asked')} parties"


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{prose(value)}</dd></div>"
        for name, value in facts
        if value and value != "–"
    )
    return f"<dl>{rows}</dl>" if rows else ""


def _advice(run: RunRecord) -> str:
    items = "".join(f"<li>{prose(item)}</li>" for item in run.advice)
    fine = f'<p class="fine">An ε here is {words.unit(run)}; {words.relation(run)}.</p>'
    return f'<ul class="plain">{items}</ul>{fine if "ε" in items else ""}'


def _job(run: RunRecord) -> str:
    # A ledger may be named by a URL with a password in it, and a report is passed around.
    text = re.sub(r"(://[^:/@\s]*):[^@\s]*@", r"\1:…@", run.job_text)
    return f"<details><summary>job.toml</summary><pre><code>{escape(text)}</code></pre></details>"


def _footer(run: RunRecord, files: Sequence[str]) -> str:
    facts = []
    if run.created:
        facts.append(f"Run of {_date(run.created)}")
    if run.parley_version:
        facts.append(f"made with Parley {run.parley_version}")
    now = datetime.now(UTC)
    facts.append(f"report written {now:%Y-%m-%d %H:%M} UTC by Parley {_own_version()}")
    told = f"{', '.join(facts)}. Beside it in the folder: {', '.join(files)}. "
    told = told[:1].upper() + told[1:]
    told += "A figure of privacy spent is rounded up, others to the nearest."
    if run.run_id and run.run_id != run.name:
        told += f" In the ledger this run is {run.run_id}."
    return f"<footer><p>{escape(told)}</p></footer>"


def _own_version() -> str:
    try:
        return metadata.version("parley")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _date(text: str) -> str:
    try:
        return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return text
