"""A run's figures in words: what terminal, report and model metadata say, said in one place.

Plain text comes out, never markup. A sentence with an ε in it says δ, unit and neighbouring
relation too. What was spent is rounded up, so that no figure promises too much.

    >>> join((Fact("scale", "0.05"), Fact("calibration", "exact", brief=False)))
    'scale 0.05'
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from parley.privacy.accounting.rounding import as_written, shown_down, shown_up
from parley.server.records.data_account import DataAccount
from parley.server.records.guarantee_summary import AdversaryAccount, GuaranteeSummary, NoiseShares
from parley.server.records.laws import law_words
from parley.server.records.numerals import epsilon_text
from parley.server.records.points import point_words
from parley.server.records.summary import DpSgd, RunSummary


class Fact(NamedTuple):
    """A named figure; "name value" reads as a phrase. `brief`: said where there is little room."""

    name: str
    value: str
    brief: bool = True


def join(facts: Iterable[Fact]) -> str:
    """The brief facts in one line."""
    return "; ".join(f"{fact.name} {fact.value}" for fact in facts if fact.brief)


def _present(*facts: Fact | None) -> tuple[Fact, ...]:
    return tuple(fact for fact in facts if fact is not None and fact.value)


# What a guarantee came to.

_RELATIONS = {
    "replace-one": "neighbours differ by replacing one {unit}",
    "add-or-remove-one": "neighbours differ by adding or removing one {unit}",
}
_UNITS = {
    "record": "one record",
    "party": "everything that one party holds",
}
_CONVERSIONS = {"cks20": "CKS20", "zcdp": "zCDP", "rdp": "RDP", "pld": "PLD"}

ADVERSARIES = {
    "readers": "whoever sees what the run released, if everyone else is honest",
    "server-and-colluders": "the server and the parties that may collude with it",
    "all-others": "the server and all other parties",
    "attendance-known": "the same, who also know which rounds a party was in",
    "attendance-hidden": "the same, if they don't know which rounds a party was in",
    "attendance-either": "the same, whether they know which rounds a party was in or not",
}
"""Whom an account holds against (`AdversaryAccount.adversary`); others are called by their name."""


class Scoped(Protocol):
    """What says its unit and neighbouring relation: a guarantee, its summary, an outlook."""

    @property
    def unit(self) -> str:
        """What one neighbour differs by."""

    @property
    def neighbouring(self) -> str:
        """In which way."""


class Accounted(Protocol):
    """What has accounts: a guarantee's summary, an outlook."""

    @property
    def accounts(self) -> tuple[AdversaryAccount, ...]:
        """By adversary."""


def unit(of: Scoped) -> str:
    """The unit of privacy beside an ε: "per record"."""
    return f"per {of.unit}"


def relation(of: Scoped) -> str:
    """The neighbouring relation beside an ε."""
    known = _RELATIONS.get(of.neighbouring)
    return known.format(unit=of.unit) if known else f"neighbouring relation: {of.neighbouring}"


def scope(of: Scoped) -> str:
    """Unit and relation."""
    return f"{unit(of)}; {relation(of)}"


def protected(of: Scoped) -> str:
    """What the guarantee protects."""
    return _UNITS.get(of.unit, f"one {of.unit}")


def points(epsilon: float | None, delta: float) -> str:
    """A pair (ε, δ) that was spent, rounded up."""
    return f"ε = {epsilon_text(epsilon)} at δ = {shown_up(delta, 3)}"


def account(epsilon: float | None, delta: float, *, charged: bool) -> str:
    """What a release or a run comes to against one adversary; None where no bound is proved."""
    stats = "no bound is proved (ε = ∞)" if epsilon is None else points(epsilon, delta)
    return f"{stats}{' (charged)' if charged else ''}"


def spent(of: GuaranteeSummary) -> str:
    """What was charged."""
    return points(of.epsilon, of.delta)


def stated(of: GuaranteeSummary) -> str:
    """What was charged, with unit and relation."""
    return f"{spent(of)}, {scope(of)}"


def allowed(epsilon: float, delta: float) -> str:
    """What a person allowed, with all digits."""
    return f"ε = {as_written(epsilon)} at δ = {as_written(delta)}"


def budget(of: GuaranteeSummary) -> str:
    """What was allowed."""
    return allowed(of.epsilon_budget, of.delta_budget)


def data_set(of: DataAccount) -> str:
    """What all runs spent of a data set's budget, what is left, and how many such jobs fit."""
    held = f"; {of.held} releases to come are held" if of.held else ""
    more = f"{of.jobs:,}{' or more' if of.jobs >= _MANY else ''} more such job"
    return (
        f"{of.name!r} has spent ε = {epsilon_text(of.spent)} of {allowed(of.epsilon, of.delta)} in "
        f"{of.releases} releases of all runs, {scope(of)}{held}; left ε = {shown_down(of.left)}: "
        f"{more}{'' if of.jobs == 1 else 's'} fit{'s' if of.jobs == 1 else ''}"
    )


_MANY = 1000


def conversion(name: str) -> str:
    """A conversion as its paper calls it."""
    return _CONVERSIONS.get(name, name)


def charged_by(of: GuaranteeSummary) -> str:
    """Which conversion was charged: " by the exact conversion"; empty if the run doesn't say."""
    return f" by the {conversion(of.conversion)} conversion" if of.conversion else ""


def accounts(of: Accounted) -> tuple[Fact, ...]:
    """Against whom the guarantee holds, and what it comes to against each.

    One account alone has no value: it is what was charged.
    """
    return tuple(
        Fact(
            f"against {ADVERSARIES.get(row.adversary, row.adversary)}",
            account(row.epsilon, row.delta, charged=row.charged) if len(of.accounts) > 1 else "",
        )
        for row in of.accounts
    )


def against(of: GuaranteeSummary) -> str:
    """Against whom the guarantee holds, in one line."""
    return "; ".join(f"{name}: {value}" if value else name for name, value, _ in accounts(of))


def bounds(run: RunSummary) -> str:
    """Both bounds of a record's ε, where two are proved; else empty."""
    stats, of = run.record_bounds, run.primary
    if stats is None:
        return ""
    charged = "the noise on the sum" if stats.charged == "outer" else "DP-SGD"
    return (
        f"By DP-SGD in its party alone, which holds against the server too, a record's ε is "
        f"{epsilon_text(stats.inner.epsilon)}; by the noise on the sum it is "
        f"{epsilon_text(stats.outer.epsilon)} (δ = {shown_up(of.delta, 3)}, {scope(of)}). "
        f"The run charged the bound by {charged}."
    )


# The noise.


def noise(run: RunSummary, of: GuaranteeSummary) -> tuple[Fact, ...]:
    """The noise of one guarantee."""
    stats, batch = of.noise, on_batches(of)
    on = "a batch's sum" if batch else "the average"
    letter = symbol(run, of)
    often = "step" if batch else "round"
    each = f" in every {often}" if batch or run.rounds > 1 else ""
    length = of.noise.expected_norm
    return _present(
        Fact("law", stats.law),
        Fact("calibration", of.calibration or "", brief=False),
        _number(f"scale on {on}, {letter} =", stats.scale),
        None if batch else _number("scale on the sum", stats.scale_of_sum, brief=False),
        Fact("expected length", "" if length is None else f"{length:.4g}{each}"),
        _number(f"sensitivity of {on}", stats.sensitivity, brief=False),
        Fact("added by", point_words(stats.point).added_by),
        Fact("shares", "" if stats.shares is None else shares(stats.shares)),
        Fact("drawn from", _SOURCES[of.noise.seeded]),
        Fact("ρ spent (zCDP)", "" if of.rho is None else shown_up(of.rho, 3), brief=False),
    )


def shares(stats: NoiseShares) -> str:
    """How the noise is split, and whether a simulation dealt it."""
    alone = stats.honest == 1 and not stats.colluders
    split = (
        f"each is all of the noise; all {stats.parties} together are √{stats.parties} = "
        f"{stats.inflation:.4g} times as large"
        if alone
        else f"{stats.honest} of {stats.parties} are charged ({stats.colluders} may collude with "
        f"the server); all together are √({stats.parties}/{stats.honest}) = "
        f"{stats.inflation:.4g} times as large"
    )
    if not stats.dealt:
        return split
    return f"{split}; noise dealt as one draw: the law of r shares; simulation only"


_SOURCES = {
    True: "a seed: it protects nobody",
    False: "the operating system's entropy",
    None: "",
}


def on_batches(of: GuaranteeSummary) -> bool:
    """Whether the noise is on sums over batches, several a round, and not on an average."""
    return law_words(of.noise.law).on_batches


def symbol(run: RunSummary, of: GuaranteeSummary) -> str:
    """The letter of the noise's scale: σ for Gaussians, b for Laplace laws."""
    law = law_words(of.noise.law)
    return law.symbol if run.clipped_fraction is None else law.beside_count or law.symbol


def _number(name: str, value: float | None, *, brief: bool = True) -> Fact | None:
    return None if value is None else Fact(name, f"{value:.4g}", brief)


def dp_sgd(stats: DpSgd) -> tuple[Fact, ...]:
    """How the parties trained, and the largest of their accounts."""
    largest = " and ".join(
        f"ε = {epsilon_text(stats.largest[name])} by {conversion(name)}"
        for name in ("rdp", "pld", "exact")
        if name in stats.largest
    )
    return _present(
        _number("sampling rate q =", stats.sampling_rate),
        _number("noise multiplier σ =", stats.noise_multiplier),
        _number("noise multiplier of the gradients σ′ =", stats.gradient_multiplier)
        if stats.clipped_share
        else None,
        _number("clip norm C =", stats.clip_norm),
        Fact("steps", f"{stats.steps_per_round} a round"),
        Fact("a party's largest account", largest),
    )


def clipped(run: RunSummary) -> str:
    """The released fraction of clipped gradients with its noise; empty where there is none."""
    stats = run.clipped_fraction
    if stats is None:
        return ""
    last = f"{_noisy(stats.last, stats.deviation)} in the last round"
    if run.rounds_done < 2:
        return last
    mean = _noisy(stats.mean, stats.mean_deviation)
    return f"{mean} on average over {run.rounds_done} rounds, {last}"


def _noisy(value: float, deviation: float) -> str:
    return f"{value:.3g} (standard deviation of the noise: {deviation:.2g})"


def components(run: RunSummary) -> str:
    """The release ahead of the rounds; empty where there is none."""
    stats = run.components
    if stats is None:
        return ""
    return (
        "one release of the parties' second moments before round 1, within the same ε, summed "
        f"over {stats.parties.summed} of {stats.parties.asked} parties"
        + (
            f", with noise added by {point_words(stats.noise_point).added_by}"
            if stats.noise_point
            else ""
        )
    )


# The sum.


def secure_sum(run: RunSummary) -> tuple[Fact, ...]:
    """Which secure sum ran, on which integers."""
    stats = run.secure_aggregation
    grown = None if stats.inflation is None else f"{100 * stats.inflation:.3g} % (charged)"
    return _present(
        Fact("backend", stats.backend),
        Fact("ring", f"integers modulo 2^{stats.ring_bits}" if stats.ring_bits else ""),
        Fact("grid", "" if stats.scale_bits is None else f"steps of 2^−{stats.scale_bits}"),
        Fact("sensitivity added by the grid", grown or "", brief=False),
        Fact("least number of survivors", f"{stats.min_survivors or ''}", brief=False),
        Fact("masked check", stats.masked_check),
    )
