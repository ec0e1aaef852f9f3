"""What the terminal shows: live progress, the closing table, plans and ledgers."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from parley.privacy.accounting.events import parse_event
from parley.privacy.accounting.rounding import as_written, round_up, shown_down, shown_up
from parley.report.words import epsilon_text

if TYPE_CHECKING:
    from types import TracebackType

    from parley.client.contract.plan import ReleasePlan
    from parley.server.jobs.job import Job
    from parley.server.records.round_line import RoundLine
    from parley.server.records.run import Run
    from parley.server.records.summary import (
        PartyLevel,
        RecordBounds,
        RunSummary,
        SecureAggregation,
    )

__all__ = ["RunDisplay", "print_ledger", "print_outlook", "print_result"]

_FEW = 5
_LOST = {"declined", "dropped", "failed"}


class RunDisplay:
    """Live progress on stderr; a context manager and an `Observer`."""

    def __init__(
        self, *, quiet: bool, farewell: Callable[[KeyboardInterrupt], str] | None = None
    ) -> None:
        """A display; `farewell` says how a run that was interrupted goes on."""
        self._farewell = farewell
        self._console = Console(stderr=True, quiet=quiet, highlight=False)
        self._progress = Progress(
            TextColumn("[bold]{task.description}", table_column=Column(min_width=9)),
            BarColumn(bar_width=12),
            MofNCompleteColumn(table_column=Column(min_width=7, no_wrap=True)),
            TimeElapsedColumn(table_column=Column(min_width=7, no_wrap=True)),
            # On a narrow terminal these are what is cut.
            TextColumn(
                "{task.fields[figures]}", table_column=Column(no_wrap=True, overflow="ellipsis")
            ),
            console=self._console,
            transient=True,
        )
        self._folder: Path | None = None
        self._figures = ""
        self._unit = ""
        self._told: set[tuple[str, int]] = set()

    def __enter__(self) -> Self:
        self._progress.start()
        self._task = self._progress.add_task("preparing", total=None, figures="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
        if not isinstance(error, KeyboardInterrupt):
            return
        if self._farewell is not None:
            # Whole lines: a command that is broken over two cannot be copied.
            said = self._farewell(error)
            self._console.print(said, style="yellow", soft_wrap=True, markup=False)
        elif self._folder:
            self._console.print(
                f"Stopped after the last committed round. Continue with:\n"
                f"  parley run --resume {shlex.quote(str(self._folder))}",
                style="yellow",
                soft_wrap=True,
                markup=False,
            )

    def started(self, job: Job, plan: ReleasePlan, folder: Path, done: int) -> None:
        """Shows what is about to happen."""
        self._folder = folder
        own = plan.primary
        self._unit = f"{own.unit}, {own.neighbouring}"
        seeded = " · seeded noise (simulation only, protects nobody)" if plan.seeded else ""
        self._console.print(
            f"{plan.parties} {'party' if plan.parties == 1 else 'parties'} · {plan.algorithm} · "
            f"{job.model.kind} · d = {plan.parameters} · budget "
            f"{_budget(job.privacy.epsilon, job.privacy.delta)} (unit {own.unit}, "
            f"{own.neighbouring}) · {own.mechanism.law} noise{seeded}",
            style="dim",
        )
        for other, asked in zip(plan.guarantees[1:], job.budgets[1:], strict=True):
            self._console.print(
                f"and budget {_budget(asked.epsilon, asked.delta)} (unit {other.unit}, "
                f"{other.neighbouring}) · updates clipped to {other.clip_norm:g} · "
                f"{other.mechanism.law} noise on their sum",
                style="dim",
            )
        if own.delta > job.privacy.delta:
            self._console.print(
                f"δ = {as_written(job.privacy.delta)} becomes δ = {shown_up(own.delta, 3)}: "
                "the distance of the rounded l2-laplace sampler. laplace-l1 keeps δ = 0.",
                style="yellow",
            )
        if plan.parties == 1:
            self._console.print(
                "One party is the centralised case: its own contribution is the sum, only the "
                "noise protects its records.",
                style="yellow",
            )
        if done:
            self._console.print(f"Resuming after round {done}.", style="dim")
        self._progress.update(self._task, description="training", total=job.rounds, completed=done)

    def parties(self, board: dict[str, Any]) -> None:
        """Shows where the parties of real processes stand: each of a few, else how many."""
        parties = board["parties"]
        if len(parties) <= _FEW:
            shown = ", ".join(_standing(party) for party in parties)
        else:
            counts = Counter(party["state"] for party in parties)
            shown = ", ".join(f"{count} {state}" for state, count in counts.items())
        self._progress.update(self._task, description=board["stage"], figures=shown)
        for party in parties:
            if party["state"] in _LOST and (party["name"], board["round"]) not in self._told:
                self._told.add((party["name"], board["round"]))
                where = f"round {board['round']}" if board["round"] else "before the first round"
                self._console.print(f"{_standing(party)}, {where}", style="yellow")

    def round_done(self, line: RoundLine) -> None:
        """Moves the bar; loss and accuracy are marked as the simulation's."""
        figures = line.simulation_only
        if figures:
            accuracy = figures.get("accuracy")
            shown = f" · accuracy {accuracy:.3f}" if accuracy is not None else ""
            loss = "diverged" if figures["loss"] is None else f"{figures['loss']:.4f}"
            self._figures = f"loss {loss}{shown} (simulation only)"
        clipped = line.clipped_fraction
        told = "" if clipped is None else f"clipped {clipped:.2f} · "
        self._progress.update(
            self._task,
            completed=line.round,
            figures=f"ε {epsilon_text(line.epsilon_charged)} at δ {shown_up(line.delta)} "
            f"({self._unit}){_of_party(line)} · {told}{self._figures}",
        )


def _standing(party: dict[str, str]) -> str:
    """A party's name and state; why, where it declined."""
    reason = f" ({party['reason']})" if party["reason"] else ""
    return f"{party['name']} {party['state']}{reason}"


def _of_party(line: RoundLine) -> str:
    party = line.party_level
    if party is None:
        return ""
    spent = f"ε {epsilon_text(party.epsilon_charged)} at δ {shown_up(party.delta)}"
    return f", {spent} (party, replace-one)"


def _each(summary: RunSummary) -> str:
    if summary.noise.point == "party":
        return " a step"
    return " a round" if summary.rounds > 1 else ""


def print_result(result: Run) -> None:
    """The closing table."""
    console = Console(highlight=False)
    summary = result.summary
    noise = summary.noise
    if summary.status != "complete":
        console.print(
            f"[yellow]{summary.status} after {summary.rounds_done} of {summary.rounds} "
            f"rounds[/yellow]: {summary.reason}"
        )
    if summary.baseline_loss is not None:
        _print_figures(console, summary)
    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_column(style="dim")
    facts.add_column()
    facts.add_row(
        "spent",
        f"[bold]{_spent(summary)}[/bold] of "
        f"ε = {as_written(summary.epsilon_budget)}, by the {summary.conversion} conversion",
    )
    facts.add_row("protects", f"one {summary.unit}; neighbours differ by {summary.neighbouring}")
    if summary.party_level is not None and summary.record_bounds is not None:
        _add_party_level(facts, summary.party_level, summary.record_bounds)
    facts.add_row(
        "noise",
        f"{noise.law}, scale {noise.scale:.4g} "
        f"{'on each batch of a party' if noise.point == 'party' else 'on the average'} "
        f"({'seeded: protects nobody' if noise.seeded else 'OS entropy'}), "
        f"expected norm {noise.expected_norm:.4g}" + (_each(summary)),
    )
    if summary.dp_sgd is not None:
        steps, largest = summary.dp_sgd, summary.dp_sgd.largest
        accounts = ", ".join(
            f"{name.upper()} {epsilon_text(largest[name])}"
            for name in ("rdp", "pld")
            if name in largest
        )
        facts.add_row(
            "DP-SGD",
            f"q = {steps.sampling_rate:.4g}, σ = {steps.noise_multiplier:.4g}, "
            f"C = {steps.clip_norm:g}, {steps.steps_per_round} steps a round; "
            f"largest ε of a party: {accounts}",
        )
    if summary.clipped_fraction is not None:
        told = summary.clipped_fraction
        facts.add_row(
            "clipped",
            f"{told.mean:.3f} of all gradients, mean over rounds (noise "
            f"{told.mean_deviation:.2g}); in the last {told.last:.3f} (noise "
            f"{told.deviation:.2g}); released within the same ε",
        )
    facts.add_row(
        "parties",
        f"{summary.parties} of at least {summary.min_records} records, "
        f"{summary.rounds_done} rounds, {summary.seconds:.1f} s",
    )
    facts.add_row(
        "ledger",
        f"shared: {summary.ledger}"
        if summary.ledger
        else "this run's own; other runs on the same records add to ε (share one: privacy.ledger)",
    )
    facts.add_row("sum", _secure_sum(summary.secure_aggregation))
    if summary.components is not None:
        counts = summary.components.parties
        facts.add_row(
            "components",
            f"one private release before round 1, {counts.summed} of "
            f"{counts.asked} parties in its sum",
        )
    facts.add_row("run folder", str(result.folder))
    console.print(facts)
    for line in summary.advice:
        console.print(f"→ {line}")


def _print_figures(console: Console, summary: RunSummary) -> None:
    """What only a simulation may know."""
    table = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
    for title in ("", "private", "non-private"):
        table.add_column(title, justify="left" if not title else "right")
    metric = "R²" if summary.metric == "r2" else "accuracy"
    if summary.accuracy is not None:
        table.add_row(
            f"{metric}, held-out records *",
            f"{summary.accuracy:.4f}",
            f"{summary.baseline_accuracy:.4f}",
        )
    table.add_row(
        "training loss *",
        "diverged" if summary.loss is None else f"{summary.loss:.5f}",
        f"{summary.baseline_loss:.5f}",
    )
    console.print(table)
    console.print("* simulation only: in a real run each figure would be a release of its own")
    if summary.majority_accuracy is not None:
        console.print(f"  always answering the commonest label: {summary.majority_accuracy:.4f}")


def _add_party_level(facts: Table, party: PartyLevel, bounds: RecordBounds) -> None:
    """The second guarantee, and how the record's bound was chosen."""
    by = "noise on the sum" if bounds.charged == "outer" else "DP-SGD"
    facts.add_row(
        "",
        f"a record's ε by DP-SGD alone {epsilon_text(bounds.inner.epsilon)}, by the noise "
        f"on the sum {epsilon_text(bounds.outer.epsilon)}: charged by {by}",
    )
    facts.add_row(
        "spent",
        f"[bold]{_spent(party)}[/bold] of "
        f"ε = {as_written(party.epsilon_budget)}, by the {party.conversion} conversion",
    )
    facts.add_row(
        "protects",
        f"all that one {party.unit} holds; neighbours differ by {party.neighbouring}",
    )
    noise = party.noise
    facts.add_row(
        "noise",
        f"{noise.law}, scale {noise.scale:.4g} on the average of updates clipped to "
        f"{party.clip_norm:g}",
    )


def _budget(epsilon: float, delta: float) -> str:
    """What a person allowed, with all digits."""
    return f"ε = {as_written(epsilon)}, δ = {as_written(delta)}"


def _spent(totals: RunSummary | PartyLevel) -> str:
    """What it came to, rounded up."""
    return f"ε = {epsilon_text(totals.epsilon)}, δ = {shown_up(totals.delta, 3)}"


def _secure_sum(facts: SecureAggregation) -> str:
    mode = "masked protocol" if facts.mode == "masked" else "ideal functionality (simulation)"
    checked = f"; {facts.masked_check}" if facts.masked_check else ""
    return f"{mode}, ring 2^{facts.ring_bits}, grid 2^-{facts.scale_bits}{checked}"


def print_outlook(outlook: dict[str, Any]) -> None:
    """A plan, as tables."""
    console = Console(highlight=False)
    # Below this the tables' numbers would be cut; a narrow terminal wraps the lines instead.
    console.width = max(console.width, 88)
    chosen, grid = outlook["chosen"], outlook["grid"]
    console.print(
        f"{outlook['algorithm']}, {outlook['model']}: m = {outlook['parties']} parties of at "
        f"least n = {outlook['min_records']} records ({outlook['min_records_from']}), "
        f"d = {outlook['dimension']}, T = {outlook['rounds']} rounds"
    )
    console.print(
        f"budget {_budget(outlook['epsilon'], outlook['delta'])}; protects one "
        f"{outlook['unit']}, neighbours differ by {outlook['neighbouring']}"
    )
    if "party_level" in outlook:
        party = outlook["party_level"]
        console.print(
            f"budget {_budget(party['epsilon'], party['delta'])}; protects all that one "
            f"{party['unit']} holds, neighbours differ by {party['neighbouring']}"
        )
    if "dp_sgd" in outlook:
        _print_network(console, outlook)
        return
    console.print(
        f"Δ₂ of the average {outlook['sensitivity']:.6g}  (G = {outlook['lipschitz']:.4g}, "
        f"λ = {outlook['lambda']:g})\n"
    )
    console.print(f"[bold]This job[/bold]: {chosen['description']}")
    console.print(
        f"  charged ε = {epsilon_text(chosen['epsilon_charged'])} by {chosen['conversion']}; "
        f"scale on the average {chosen['scale']:.6g}, on the sum {chosen['scale_of_sum']:.6g}"
    )
    console.print(
        f"  ring 2^{grid['ring_bits']}, grid 2^-{grid['scale_bits']}: rounding adds "
        f"{grid['inflation']:.2g} to the sensitivity (charged)\n"
    )
    _print_offers(console, "Gaussian, by calibration", outlook["calibrations"])
    _print_offers(console, "Noise laws", outlook["noise_laws"])
    _print_rounds(console, outlook["epsilon_by_round"])
    table = Table(title="Other federations (same job)", title_justify="left", box=None)
    for name in ("parties", "records each", "Δ₂", "scale", "E‖noise‖"):
        table.add_column(name, justify="right")
    for row in outlook["alternatives"]:
        own = row["parties"] == outlook["parties"] and row["min_records"] == outlook["min_records"]
        table.add_row(
            f"{row['parties']:,}",
            f"{row['min_records']:,}",
            *(f"{row[key]:.4g}" for key in ("sensitivity", "scale", "expected_norm")),
            style="bold" if own else None,
        )
    console.print(table)


def _print_network(console: Console, outlook: dict[str, Any]) -> None:
    steps, chosen = outlook["dp_sgd"], outlook["chosen"]
    console.print(f"\n[bold]This job[/bold]: {chosen['description']}")
    console.print(
        f"  {steps['steps_per_round']} steps a round, q = {steps['sampling_rate']:.4g} (expected "
        f"batch {steps['expected_batch']:.6g})"
    )
    if steps["party_clip_norm"] is not None:
        console.print(f"  a party's update is clipped to S = {steps['party_clip_norm']:g}")
    if steps["noise_multiplier"] is not None:
        console.print(
            f"  σ = {steps['noise_multiplier']:.5g}, C = {steps['clip_norm']:g}, clipped sums by "
            f"{steps['gradients']}"
        )
    if steps["clipped_fraction_share"]:
        console.print(
            f"  {steps['clipped_fraction_share']:g} of every step's privacy for the fraction of "
            f"clipped gradients: noise of {steps['clipped_fraction_deviation']:.3g} on it a round, "
            f"and of {steps['gradient_multiplier']:.5g}·C on sums"
        )
    if steps["components_mu"] is not None:
        console.print(f"  principal components: one release of μ = {steps['components_mu']:.4g}")
    scope = f"one {outlook['unit']}"
    console.print(
        f"  charged for {scope}: ε = {epsilon_text(chosen['epsilon_charged'])} by "
        f"{chosen['conversion']}"
    )
    party = outlook.get("party_level")
    if party is None:
        console.print()
        _print_rounds(console, outlook["epsilon_by_round"])
        return
    bounds = outlook["record_bounds"]
    console.print(
        f"  (DP-SGD alone {epsilon_text(bounds['inner']['epsilon'])}, noise on the sum "
        f"{epsilon_text(bounds['outer']['epsilon'])}: the lower is charged)"
    )
    console.print(f"  {party['description']}")
    console.print(
        f"  charged for one party: ε = {epsilon_text(party['epsilon_charged'])} by "
        f"{party['conversion']}; scale on the average {party['scale']:.6g}\n"
    )
    _print_rounds(console, outlook["epsilon_by_round"], f" ({scope})")
    _print_rounds(console, party["epsilon_by_round"], f" (one {party['unit']})")


def _print_offers(console: Console, title: str, offers: dict[str, dict[str, Any]]) -> None:
    if not offers:
        return
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("")
    for name in ("scale", "E‖noise‖ a round", "ε charged", "by"):
        table.add_column(name, justify="right")
    for name, offer in offers.items():
        if "refused" in offer:
            table.add_row(name, "[dim]refused[/dim]", "", "", "")
            continue
        table.add_row(
            name,
            f"{offer['scale']:.6g}",
            f"{offer['expected_norm']:.6g}",
            epsilon_text(offer["epsilon_charged"]),
            offer["conversion"],
        )
    console.print(table)
    for name, offer in offers.items():
        if "refused" in offer:
            console.print(f"  {name}: {offer['refused']}", style="dim")
    console.print()


def _print_rounds(console: Console, rounds: list[dict[str, Any]], scope: str = "") -> None:
    table = Table(title=f"ε after each round{scope}", title_justify="left", box=None)
    conversions = list(rounds[-1]["epsilon"])
    for name in ("round", "ρ (zCDP)", *conversions, "charged"):
        table.add_column(name, justify="right")
    step = max(1, len(rounds) // 10)
    shown = [row for row in rounds if row["round"] % step == 0 or row["round"] == 1]
    if shown[-1] is not rounds[-1]:
        shown.append(rounds[-1])
    for row in shown:
        table.add_row(
            str(row["round"]),
            f"{shown_up(row['rho'], 4)}",
            *(epsilon_text(row["epsilon"][name]) for name in conversions),
            epsilon_text(row["epsilon_charged"]),
        )
    console.print(table)
    console.print()


_LAST_ENTRIES = 200


def print_ledger(content: dict[str, Any]) -> None:
    """A ledger: data sets with what is left, then the entries."""
    console = Console(highlight=False)
    for totals in content["datasets"]:
        budget, left = totals["budget"], totals["remaining"]
        console.print(
            f"[bold]{budget['name']}[/bold]: {totals['releases']} releases, spent "
            f"ε = {epsilon_text(min(totals['epsilon'].values(), default=math.inf))} of "
            f"{as_written(budget['epsilon'])} at δ = {as_written(budget['delta'])} "
            f"(unit {budget['unit']}, {budget['neighbouring']}), left {shown_down(left['epsilon'])}"
        )
        for run, releases in totals["held"].items():
            console.print(f"  {run} holds {releases} releases to come; they are not left to others")
    table = Table(box=None)
    for name in ("run", "party", "release", "unit", "state", "law", "ρ", "survivors"):
        table.add_column(name)
    entries = content["entries"]
    for recorded in entries[-_LAST_ENTRIES:]:
        entry = recorded["entry"]
        table.add_row(
            entry["run_id"],
            entry["party"],
            str(entry["index"]),
            entry["facts"]["unit"],
            recorded["state"],
            entry["facts"]["noise_law"],
            shown_up(round_up(parse_event(entry["event"]).exact_rho), 4),
            str((recorded["outcome"] or {}).get("survivors", "–")),
        )
    if len(entries) > _LAST_ENTRIES:
        console.print(
            f"The last {_LAST_ENTRIES} of {len(entries)} entries; --json shows all of them."
        )
    console.print(table)
