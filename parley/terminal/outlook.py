"""What the terminal shows of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from parley.privacy.accounting.noise_points import NOISE_POINTS
from parley.privacy.accounting.rounding import shown_up
from parley.server.records import result_words, words
from parley.server.records.numerals import epsilon_text
from parley.server.records.points import point_words
from parley.server.records.synthetic_words import release_ahead
from parley.terminal.screen import Screen
from parley.terminal.tables import plain_table

if TYPE_CHECKING:
    from parley.server.records.outlook import (
        AfterRound,
        Alternative,
        DpSgdOutlook,
        GuaranteeOutlook,
        Offer,
        Outlook,
    )


def print_outlook(outlook: Outlook) -> None:
    """A plan, as tables."""
    console = Screen()
    # Below this the tables' numbers would be cut; a narrow terminal wraps the lines instead.
    console.width = max(console.width, 88)
    title = outlook.algorithm_title or outlook.algorithm
    console.print(
        f"{title}, {outlook.model}: m = {outlook.parties} parties of at "
        f"least n = {outlook.min_records} records ({outlook.min_records_from}), "
        f"d = {outlook.dimension}, T = {outlook.rounds} rounds"
    )
    for of in outlook.guarantees:
        console.print(
            f"budget {words.allowed(of.epsilon, of.delta)}; protects "
            f"{words.protected(of)}, {words.relation(of)}"
        )
    if outlook.sensitivity is not None:
        console.print(
            f"Δ₂ of the average {outlook.sensitivity:.6g}  (G = {outlook.lipschitz:.4g}, "
            f"λ = {outlook.lambda_:g})"
        )
    if weights := result_words.class_weights(outlook):
        console.print(f"class weights {weights}")
    console.print()
    _print_titled(console, "This job", outlook.primary.description)
    if outlook.dp_sgd is None:
        _print_noise_on_the_sum(console, outlook)
    else:
        _print_training(console, outlook, outlook.dp_sgd)
    _print_accounts(console, outlook.primary)
    _print_beside(console, outlook)
    for title, offers in (
        ("Gaussian, by calibration", outlook.calibrations),
        ("Noise laws", outlook.noise_laws),
    ):
        if offers:
            _print_offers(console, title, offers)
    for of in outlook.guarantees:
        scope = f" (one {of.unit})" if len(outlook.guarantees) > 1 else ""
        _print_rounds(console, of.epsilon_by_round, scope)
    if outlook.alternatives is not None:
        _print_alternatives(console, outlook.alternatives, (outlook.parties, outlook.min_records))


def _print_beside(console: Screen, outlook: Outlook) -> None:
    """What synthetic records are made from, the release after the rounds, what data have left, and
    what a simulation takes."""
    if outlook.simulation is not None:
        ahead = result_words.simulation_ahead(outlook.simulation)
        _print_titled(console, "Simulation", f"{ahead}\n")
    if outlook.synthetic is not None:
        _print_titled(console, "Released", f"{release_ahead(outlook.synthetic)}\n")
    if outlook.evaluation is not None:
        ahead = result_words.evaluation_ahead(outlook.evaluation)
        _print_titled(console, "Evaluation", f"{ahead}\n")
    for account in outlook.data_accounts or ():
        _print_titled(console, "The data set", words.data_set(account), between=" ")
    if outlook.data_note:
        _print_titled(console, "The ledger", outlook.data_note)
    if outlook.data_accounts or outlook.data_note:
        console.print()


def _print_titled(console: Screen, title: str, said: str, *, between: str = ": ") -> None:
    console.print(Text(title, style="bold"), between, said, sep="")


def _print_accounts(console: Screen, of: GuaranteeOutlook) -> None:
    """Who adds the noise, how it is split, and ε against each adversary."""
    alone = NOISE_POINTS[of.noise_point].in_contributions and of.shares is None
    if alone and len(of.accounts) == 1:
        return
    console.print(f"  noise added by {point_words(of.noise_point).added_by}")
    if of.shares is not None:
        console.print(f"  shares: {words.shares(of.shares)}")
    if len(of.accounts) > 1:
        for name, value, _ in words.accounts(of):
            console.print(f"  {name}: {value}")
    console.print()


def _print_noise_on_the_sum(console: Screen, outlook: Outlook) -> None:
    chosen, grid = outlook.primary, outlook.grid
    console.print(
        f"  charged ε = {epsilon_text(chosen.epsilon_charged)} by {chosen.conversion}; "
        f"scale on the average {chosen.scale:.6g}, on the sum {chosen.scale_of_sum:.6g}"
    )
    console.print(
        f"  ring 2^{grid.ring_bits}, grid 2^-{grid.scale_bits}: rounding adds "
        f"{grid.inflation:.2g} to the sensitivity (charged)\n"
    )


def _print_training(console: Screen, outlook: Outlook, steps: DpSgdOutlook) -> None:
    console.print(
        f"  {steps.steps_per_round} steps a round, q = {steps.sampling_rate:.4g} (expected "
        f"batch {steps.expected_batch:.6g})"
    )
    if steps.party_clip_norm is not None:
        console.print(f"  a party's update is clipped to S = {steps.party_clip_norm:g}")
    if steps.noise_multiplier is not None:
        console.print(
            f"  σ = {steps.noise_multiplier:.5g}, C = {steps.clip_norm:g}, clipped sums by "
            f"{steps.gradients}"
        )
    if steps.clipped_fraction_share:
        console.print(
            f"  {steps.clipped_fraction_share:g} of every step's privacy for the fraction of "
            f"clipped gradients: noise of {steps.clipped_fraction_deviation:.3g} on it a round, "
            f"and of {steps.gradient_multiplier:.5g}·C on sums"
        )
    if outlook.distributed is not None:
        run = outlook.distributed
        console.print(
            f"  {run.steps:,} steps in all, each a secure sum ({run.vector_bytes:,} bytes a "
            f"party and step); {run.optimiser} at the server"
        )
        advice = "; T <= 150 is advised there" if run.hours > 0.5 else ""
        console.print(
            f"  among real processes about {run.hours:.2g} h, at {run.seconds_a_step:g} s a step"
            f"{advice}"
        )
    if steps.components_mu is not None:
        console.print(f"  principal components: one release of μ = {steps.components_mu:.4g}")
    bounds = outlook.record_bounds
    for of in outlook.guarantees:
        if of is not outlook.primary:
            console.print(f"  {of.description}")
        console.print(
            f"  charged for one {of.unit}: ε = {epsilon_text(of.epsilon_charged)} by "
            f"{of.conversion}"
        )
        if bounds is not None and of is outlook.primary:
            console.print(
                f"  (DP-SGD alone {epsilon_text(bounds.inner.epsilon)}, noise on the sum "
                f"{epsilon_text(bounds.outer.epsilon)}: the lower is charged)"
            )
    console.print()


def _print_offers(console: Screen, title: str, offers: Mapping[str, Offer]) -> None:
    table = plain_table("", "scale", "E‖noise‖ a round", "ε charged", "by", left=1, title=title)
    for name, offer in offers.items():
        if offer.refused is not None:
            table.add_row(name, Text("refused", style="dim"), "", "", "")
            continue
        table.add_row(
            name,
            f"{offer.scale:.6g}",
            f"{offer.expected_norm:.6g}",
            epsilon_text(offer.epsilon_charged),
            offer.conversion,
        )
    console.print(table)
    for name, offer in offers.items():
        if offer.refused is not None:
            console.print(f"  {name}: {offer.refused}", style="dim")
    console.print()


def _print_rounds(console: Screen, rounds: Sequence[AfterRound], scope: str = "") -> None:
    conversions = list(rounds[-1].epsilon)
    names = ("round", "ρ (zCDP)", *conversions, "charged")
    table = plain_table(*names, left=0, title=f"ε after each round{scope}")
    step = max(1, len(rounds) // 10)
    shown = [row for row in rounds if row.round % step == 0 or row.round == 1]
    if shown[-1] is not rounds[-1]:
        shown.append(rounds[-1])
    for row in shown:
        table.add_row(
            str(row.round),
            "–" if row.rho is None else shown_up(row.rho, 4),
            *(epsilon_text(row.epsilon[name]) for name in conversions),
            epsilon_text(row.epsilon_charged),
        )
    console.print(table)
    console.print()


def _print_alternatives(console: Screen, rows: Iterable[Alternative], own: tuple[int, int]) -> None:
    names = ("parties", "records each", "Δ₂", "scale", "E‖noise‖")
    table = plain_table(*names, left=0, title="Other federations (same job)")
    for row in rows:
        table.add_row(
            f"{row.parties:,}",
            f"{row.min_records:,}",
            *(f"{value:.4g}" for value in (row.sensitivity, row.scale, row.expected_norm)),
            style="bold" if (row.parties, row.min_records) == own else None,
        )
    console.print(table)
