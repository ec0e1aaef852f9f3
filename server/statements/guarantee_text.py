"""Format a job's guarantees, noise and sum as plain text, in one place.

A sentence with an ε also states δ, unit and neighbouring relation. What was spent is rounded up, so
that no number promises too much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from parley.privacy.accounting.rounding import format_exact, format_rounded_up
from parley.privacy.accounting.threat_model import Adversary, Neighbouring, Unit, find_noise_point
from parley.server.statements import attack_rate_text
from parley.server.statements.noise_law_text import get_law_text
from parley.server.statements.number_format import format_epsilon

if TYPE_CHECKING:
    from parley.server.records.guarantee_facts import (
        AdversaryAccount,
        GuaranteeSummary,
        NoiseShares,
        RecordBounds,
    )
    from parley.server.records.plan_summary_parts import GridSummary
    from parley.server.records.run_summary import RunSummary, SecureSumSummary


class Fact(NamedTuple):
    """A named value; "name value" reads as a phrase. `brief`: shown where there is little room."""

    name: str
    value: str
    brief: bool = True


def join_facts(facts: Iterable[Fact]) -> str:
    """Join the brief facts in one line."""
    return "; ".join(f"{fact.name} {fact.value}".strip() for fact in facts if fact.brief)


def drop_absent(*facts: Fact | None) -> tuple[Fact, ...]:
    """Return the facts that have a value."""
    return tuple(fact for fact in facts if fact is not None and fact.value)


def build_number_fact(name: str, value: float | None, *, brief: bool = True) -> Fact | None:
    """Build a fact from a value; None if it is not known."""
    return None if value is None else Fact(name, f"{value:.4g}", brief)


# The cost of a guarantee.

_CONVERSIONS = {"cks20": "CKS20", "zcdp": "zCDP", "rdp": "RDP", "pld": "PLD"}


class HasPrivacyUnit(Protocol):
    """A guarantee or a budget: it has a unit and a neighbouring relation."""

    @property
    def unit(self) -> Unit:
        """Unit by which neighbours differ."""

    @property
    def neighbouring(self) -> Neighbouring:
        """Neighbouring relation."""


def format_unit(scoped: HasPrivacyUnit) -> str:
    """Format the unit of privacy that follows an ε: "per record"."""
    return f"per {scoped.unit}"


def format_relation(scoped: HasPrivacyUnit) -> str:
    """Format the neighbouring relation that follows an ε."""
    return f"neighbours differ by {scoped.neighbouring.words} one {scoped.unit}"


def format_scope(scoped: HasPrivacyUnit) -> str:
    """Format unit and relation."""
    return f"{format_unit(scoped)}; {format_relation(scoped)}"


def format_epsilon_delta(epsilon: float | None, delta: float) -> str:
    """Format a spent pair (ε, δ), rounded up."""
    return f"ε = {format_epsilon(epsilon)} at δ = {format_rounded_up(delta, 3)}"


def format_account(row: AdversaryAccount) -> str:
    """Format a guarantee's cost against one adversary; no ε if no bound is proved."""
    stats = "no bound is proved (ε = ∞)"
    if row.epsilon is not None:
        stats = format_epsilon_delta(row.epsilon, row.delta)
    return f"{stats}{' (charged)' if row.charged else ''}"


def format_spent(guarantee: GuaranteeSummary) -> str:
    """Format what is charged."""
    return format_epsilon_delta(guarantee.epsilon, guarantee.delta)


def format_guarantee(guarantee: GuaranteeSummary) -> str:
    """Format what is charged, with unit and relation."""
    return f"{format_spent(guarantee)}, {format_scope(guarantee)}"


FIXED_RELEASES_NOTE: Final = "for releases fixed beforehand"
"""Analysts for whom an ε spent so far holds: not one who stops because of an answer. Each page or
screen with such numbers shows it once.
"""


def format_promise(guarantee: GuaranteeSummary) -> str:
    """Return what a run promises: its budget, however early it ends."""
    return f"{format_budget(guarantee)} for this run as planned, whenever it ends"


def format_allowed(epsilon: float, delta: float) -> str:
    """Format what a person allowed, with all digits."""
    return f"ε = {format_exact(epsilon)} at δ = {format_exact(delta)}"


def format_budget(guarantee: GuaranteeSummary) -> str:
    """Format the budget of a guarantee."""
    return format_allowed(guarantee.epsilon_budget, guarantee.delta_budget)


def format_ledger(run: RunSummary) -> str:
    """Return which ledger holds the total."""
    if run.ledger:
        return f"shared: {run.ledger}"
    if run.deployment:
        return "each party charges this run to its own ledger; the server's is only for this run"
    return (
        "only for this run; other runs on the same records add to it (to share one: privacy.ledger)"
    )


def conversion(name: str) -> str:
    """Return the name of a conversion in its paper."""
    return _CONVERSIONS.get(name, name)


def format_charged_conversion(guarantee: GuaranteeSummary) -> str:
    """Format the charged conversion, as " by the exact conversion"; empty if it is not known."""
    return f" by the {conversion(guarantee.conversion)} conversion" if guarantee.conversion else ""


def format_accounts(guarantee: GuaranteeSummary) -> list[str]:
    """Return against whom the guarantee holds, with its cost against each if there are several."""
    if len(guarantee.accounts) == 1:
        return [guarantee.accounts[0].adversary.words]
    return [f"{row.adversary.words}: {format_account(row)}" for row in guarantee.accounts]


def get_charged_adversary(guarantee: GuaranteeSummary) -> Adversary:
    """Return the adversary of the charged account."""
    return Adversary(next(row.adversary for row in guarantee.accounts if row.charged))


def format_adversaries(guarantee: GuaranteeSummary) -> str:
    """Format the adversaries in one line."""
    return "; ".join(f"against {each}" for each in format_accounts(guarantee))


def format_attack(guarantee: GuaranteeSummary) -> str:
    """Format an attacker's rates; empty if a run's record has none."""
    if guarantee.found is None:
        return ""
    return attack_rate_text.format_attack(guarantee.found, guarantee.unit)


def format_assumptions(guarantee: GuaranteeSummary) -> str:
    """Format what the guarantee depends on beyond its proof, in one line; may be empty."""
    return "not known" if guarantee.assumptions is None else "; ".join(guarantee.assumptions)


def format_bounds(stats: RecordBounds | None, guarantee: GuaranteeSummary) -> str:
    """Format both bounds of a record's ε, if two are proved; else empty."""
    if stats is None:
        return ""
    charged = "the noise on the sum" if stats.charged == "outer" else "DP-SGD"
    return (
        f"A record's ε is {format_epsilon(stats.inner.epsilon)} by only the DP-SGD in its party, "
        f"which holds against the server too, and {format_epsilon(stats.outer.epsilon)} by the "
        f"noise on the sum (δ = {format_rounded_up(guarantee.delta, 3)}, "
        f"{format_scope(guarantee)}). The bound by {charged} is charged."
    )


# The noise.

_SOURCES = {True: "a seed: it protects nobody", False: "the operating system's entropy", None: ""}


def build_noise_facts(
    guarantee: GuaranteeSummary, *, rounds: int, counted: bool
) -> tuple[Fact, ...]:
    """Build the facts on one guarantee's noise.

    Args:
        counted: whether a fraction of clipped gradients is released too.
    """
    stats, law = guarantee.noise, get_law_text(guarantee.noise.law)
    on = "a batch's sum" if law.on_batches else "the average"
    often = "step" if law.on_batches else "round"
    each = f" in every {often}" if law.on_batches or rounds > 1 else ""
    length = stats.expected_norm
    return drop_absent(
        Fact("law", stats.law),
        Fact("calibration", guarantee.calibration or "", brief=False),
        build_number_fact(f"scale on {on}, {law.get_symbol(counted=counted)} =", stats.scale),
        None
        if law.on_batches
        else build_number_fact("scale on the sum", stats.scale_of_sum, brief=False),
        Fact("expected length", "" if length is None else f"{length:.4g}{each}"),
        build_number_fact(f"sensitivity of {on}", stats.sensitivity, brief=False),
        build_number_fact("updates clipped to", guarantee.clip_norm)
        if guarantee.unit is Unit.PARTY
        else None,
        Fact("added by", find_noise_point(stats.point).added_by),
        Fact("shares", "" if stats.shares is None else _format_shares(stats.shares)),
        Fact("drawn from", _SOURCES[stats.seeded]),
        Fact(
            "ρ spent (zCDP)",
            "" if guarantee.rho is None else format_rounded_up(guarantee.rho, 3),
            brief=False,
        ),
    )


def _format_shares(stats: NoiseShares) -> str:
    """Format how the noise is split, and whether a simulation drew it at once."""
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
    return f"{split}; drawn as one sum, with the distribution of r shares; only in a simulation"


def is_on_batches(guarantee: GuaranteeSummary) -> bool:
    """Return whether the noise is on sums over batches, several per round, not on an average."""
    return get_law_text(guarantee.noise.law).on_batches


def build_number_facts(named: Mapping[str, float | None]) -> tuple[Fact, ...]:
    """Build facts from the values that are known."""
    return drop_absent(*(build_number_fact(name, value) for name, value in named.items()))


def format_components(run: RunSummary) -> str:
    """Format the release ahead of the rounds; empty without one."""
    stats = run.components
    if stats is None:
        return ""
    by = find_noise_point(stats.noise_point).added_by if stats.noise_point else ""
    return (
        "one release of the parties' second moments before round 1, within the same ε, summed "
        f"over {stats.parties.summed} of {stats.parties.asked} parties"
        + (f", with noise added by {by}" if by else "")
    )


# The sum.


def build_grid_facts(stats: GridSummary | SecureSumSummary) -> tuple[Fact, ...]:
    """Build facts on the integers that are summed."""
    grown = None if stats.inflation is None else f"{100 * stats.inflation:.3g} % (charged)"
    return drop_absent(
        Fact("ring", f"integers modulo 2^{stats.ring_bits}" if stats.ring_bits else ""),
        Fact("grid", "" if stats.scale_bits is None else f"steps of 2^−{stats.scale_bits}"),
        Fact("sensitivity added by the grid", grown or "", brief=False),
    )


def build_secure_sum_facts(stats: SecureSumSummary) -> tuple[Fact, ...]:
    """Build facts on which secure sum ran, and on which integers."""
    return drop_absent(
        Fact("backend", stats.backend),
        *build_grid_facts(stats),
        Fact("minimum number of survivors", f"{stats.min_survivors or ''}", brief=False),
        Fact("masked check", stats.masked_check),
    )
