"""A job's guarantees, noise and sum in words: plain text, said in one place.

A sentence with an ε in it says δ, unit and neighbouring relation too. What was spent is rounded up,
so that no figure promises too much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from parley.privacy.accounting.account_certificates import Certificate
from parley.privacy.accounting.rounding import as_written, shown_down, shown_up
from parley.privacy.accounting.threat_model import Adversary, Neighbouring, Unit, point_named
from parley.server.records import attacker_text
from parley.server.records.noise_law_text import law_words
from parley.server.records.number_format import epsilon_text

if TYPE_CHECKING:
    from parley.server.records.guarantee_facts import (
        AdversaryAccount,
        DataAccount,
        GuaranteeSummary,
        NoiseShares,
        RecordBounds,
    )
    from parley.server.records.plan_parts import DistributedOutlook, DpSgdOutlook, Grid
    from parley.server.records.run_summary import DpSgd, RunSummary, SecureAggregation


class Fact(NamedTuple):
    """A named figure; "name value" reads as a phrase. `brief`: said where there is little room."""

    name: str
    value: str
    brief: bool = True


def join(facts: Iterable[Fact]) -> str:
    """The brief facts in one line."""
    return "; ".join(f"{fact.name} {fact.value}".strip() for fact in facts if fact.brief)


def _present(*facts: Fact | None) -> tuple[Fact, ...]:
    return tuple(fact for fact in facts if fact is not None and fact.value)


def _number(name: str, value: float | None, *, brief: bool = True) -> Fact | None:
    return None if value is None else Fact(name, f"{value:.4g}", brief)


# What a guarantee comes to.

_CONVERSIONS = {"cks20": "CKS20", "zcdp": "zCDP", "rdp": "RDP", "pld": "PLD"}


class Scoped(Protocol):
    """What says its unit and neighbouring relation: a guarantee, a budget."""

    @property
    def unit(self) -> Unit:
        """What one neighbour differs by."""

    @property
    def neighbouring(self) -> Neighbouring:
        """In which way."""


def unit(of: Scoped) -> str:
    """The unit of privacy beside an ε: "per record"."""
    return f"per {of.unit}"


def relation(of: Scoped) -> str:
    """The neighbouring relation beside an ε."""
    return f"neighbours differ by {of.neighbouring.words} one {of.unit}"


def scope(of: Scoped) -> str:
    """Unit and relation."""
    return f"{unit(of)}; {relation(of)}"


def points(epsilon: float | None, delta: float) -> str:
    """A pair (ε, δ) that was spent, rounded up."""
    return f"ε = {epsilon_text(epsilon)} at δ = {shown_up(delta, 3)}"


def account(row: AdversaryAccount) -> str:
    """What a guarantee comes to against one adversary; no ε where no bound is proved."""
    unproved = row.epsilon is None
    stats = "no bound is proved (ε = ∞)" if unproved else points(row.epsilon, row.delta)
    return f"{stats}{' (charged)' if row.charged else ''}"


def spent(of: GuaranteeSummary) -> str:
    """What is charged."""
    return points(of.epsilon, of.delta)


def stated(of: GuaranteeSummary) -> str:
    """What is charged, with unit and relation."""
    return f"{spent(of)}, {scope(of)}"


FIXED: Final = "for releases fixed beforehand"
"""For which analysts a figure of what was spent so far holds: none who stops because of an answer.

It stands once on each page or screen with such figures."""


def promise(of: GuaranteeSummary) -> str:
    """Return what a run promises: its budget, however early it ends."""
    return f"{budget(of)} for this run as planned, whenever it ends"


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
        f"{more}{'' if of.jobs == 1 else 's'} fit{'s' if of.jobs == 1 else ''}{_blocks(of)}"
        f"{_holds(of)}"
    )


def _holds(of: DataAccount) -> str:
    """For which analysts the budget holds; empty if a run's record does not contain it."""
    if not of.certificate:
        return ""
    return f"; the budget holds {Certificate(of.certificate).promise}"


def _blocks(of: DataAccount) -> str:
    """What is left by block, and after one such job; those that it does not read stay."""
    said = [
        f"{block(each.name)} {shown_down(each.left)}"
        + (f" ({shown_down(each.after)} after one such job)" if each.after < each.left else "")
        for each in of.blocks
    ]
    return f"; left by block: {', '.join(said)}" if said else ""


def block(name: str) -> str:
    """A block as it is called."""
    return repr(name) if name else "every other block"


_MANY = 1000


def ledger(run: RunSummary) -> str:
    """Which ledger keeps the total."""
    if run.ledger:
        return f"shared: {run.ledger}"
    if run.deployment:
        return "each party keeps its own and charges this run there; the server's is this run's own"
    return "this run's own; other runs on the same records add to it (share one: privacy.ledger)"


def conversion(name: str) -> str:
    """A conversion as its paper calls it."""
    return _CONVERSIONS.get(name, name)


def charged_by(of: GuaranteeSummary) -> str:
    """Which conversion is charged: " by the exact conversion"; empty if that isn't known."""
    return f" by the {conversion(of.conversion)} conversion" if of.conversion else ""


def accounts(of: GuaranteeSummary) -> list[str]:
    """Against whom the guarantee holds, and what it comes to against each, where it is not one."""
    if len(of.accounts) == 1:
        return [of.accounts[0].adversary.words]
    return [f"{row.adversary.words}: {account(row)}" for row in of.accounts]


def charged(of: GuaranteeSummary) -> Adversary:
    """Whom the charged account holds against."""
    return Adversary(next(row.adversary for row in of.accounts if row.charged))


def against(of: GuaranteeSummary) -> str:
    """The same in one line."""
    return "; ".join(f"against {each}" for each in accounts(of))


def attacked(of: GuaranteeSummary) -> str:
    """What an attacker finds; empty where a run's record does not say."""
    return "" if of.found is None else attacker_text.sentence(of.found, of.unit)


def assumed(of: GuaranteeSummary) -> str:
    """What the guarantee rests on beyond its proof, in one line; empty where that is nothing."""
    return "not known" if of.assumptions is None else "; ".join(of.assumptions)


def bounds(stats: RecordBounds | None, of: GuaranteeSummary) -> str:
    """Both bounds of a record's ε, where two are proved; else empty."""
    if stats is None:
        return ""
    charged = "the noise on the sum" if stats.charged == "outer" else "DP-SGD"
    return (
        f"By DP-SGD in its party alone, which holds against the server too, a record's ε is "
        f"{epsilon_text(stats.inner.epsilon)}; by the noise on the sum it is "
        f"{epsilon_text(stats.outer.epsilon)} (δ = {shown_up(of.delta, 3)}, {scope(of)}). "
        f"Charged is the bound by {charged}."
    )


# The noise.

_SOURCES = {True: "a seed: it protects nobody", False: "the operating system's entropy", None: ""}


def noise(of: GuaranteeSummary, *, rounds: int, counted: bool) -> tuple[Fact, ...]:
    """The noise of one guarantee; `counted`: a fraction of clipped gradients is released, too."""
    stats, law = of.noise, law_words(of.noise.law)
    on = "a batch's sum" if law.on_batches else "the average"
    often = "step" if law.on_batches else "round"
    each = f" in every {often}" if law.on_batches or rounds > 1 else ""
    length = stats.expected_norm
    return _present(
        Fact("law", stats.law),
        Fact("calibration", of.calibration or "", brief=False),
        _number(f"scale on {on}, {law.letter(counted=counted)} =", stats.scale),
        None if law.on_batches else _number("scale on the sum", stats.scale_of_sum, brief=False),
        Fact("expected length", "" if length is None else f"{length:.4g}{each}"),
        _number(f"sensitivity of {on}", stats.sensitivity, brief=False),
        _number("updates clipped to", of.clip_norm) if of.unit is Unit.PARTY else None,
        Fact("added by", point_named(stats.point).added_by),
        Fact("shares", "" if stats.shares is None else _shares(stats.shares)),
        Fact("drawn from", _SOURCES[stats.seeded]),
        Fact("ρ spent (zCDP)", "" if of.rho is None else shown_up(of.rho, 3), brief=False),
    )


def _shares(stats: NoiseShares) -> str:
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


def on_batches(of: GuaranteeSummary) -> bool:
    """Whether the noise is on sums over batches, several a round, and not on an average."""
    return law_words(of.noise.law).on_batches


def numbers(named: Mapping[str, float | None]) -> tuple[Fact, ...]:
    """Those that are known."""
    return _present(*(_number(name, value) for name, value in named.items()))


def _steps(stats: DpSgd | DpSgdOutlook, *, counted: bool) -> tuple[Fact | None, ...]:
    """What a plan of training and its account both say."""
    return (
        _number("sampling rate q =", stats.sampling_rate),
        _number("noise multiplier σ =", stats.noise_multiplier),
        _number("noise multiplier of the gradients σ′ =", stats.gradient_multiplier)
        if counted
        else None,
        _number("clip norm C =", stats.clip_norm),
        Fact("steps", f"{stats.steps_per_round} a round"),
    )


def dp_sgd(stats: DpSgd) -> tuple[Fact, ...]:
    """How the parties trained, and the largest of their accounts."""
    largest = " and ".join(
        f"ε = {epsilon_text(stats.largest[name])} by {conversion(name)}"
        for name in ("rdp", "pld", "exact")
        if name in stats.largest
    )
    steps = _steps(stats, counted=bool(stats.clipped_share))
    return _present(*steps, Fact("a party's largest account", largest))


def training(stats: DpSgdOutlook) -> tuple[Fact, ...]:
    """How the parties will train."""
    share, noise = stats.clipped_fraction_share, stats.clipped_fraction_deviation
    fraction = f"{share:g} of every step's privacy, with noise of {noise or 0:.3g} on it a round"
    return _present(
        *_steps(stats, counted=bool(share)),
        _number("expected batch", stats.expected_batch),
        Fact("clipped sums by", stats.gradients if stats.noise_multiplier is not None else ""),
        Fact("fraction of clipped gradients for", fraction if share else ""),
        _number("principal components by one release of μ =", stats.components_mu),
    )


def distributed(run: DistributedOutlook | None) -> tuple[Fact, ...]:
    """Steps that are secure sums, and what they take."""
    if run is None:
        return ()
    advice = "; T <= 150 is advised there" if run.hours > 0.5 else ""
    return (
        Fact("", f"{run.steps:,} in all, each a secure sum ({run.vector_bytes:,} bytes a party)"),
        Fact("optimiser at the server", run.optimiser),
        Fact(
            "among real processes",
            f"about {run.hours:.2g} h, at {run.seconds_a_step:g} s a step{advice}",
        ),
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
    by = point_named(stats.noise_point).added_by if stats.noise_point else ""
    return (
        "one release of the parties' second moments before round 1, within the same ε, summed "
        f"over {stats.parties.summed} of {stats.parties.asked} parties"
        + (f", with noise added by {by}" if by else "")
    )


# The sum.


def grid(stats: Grid | SecureAggregation) -> tuple[Fact, ...]:
    """On which integers sums are taken."""
    grown = None if stats.inflation is None else f"{100 * stats.inflation:.3g} % (charged)"
    return _present(
        Fact("ring", f"integers modulo 2^{stats.ring_bits}" if stats.ring_bits else ""),
        Fact("grid", "" if stats.scale_bits is None else f"steps of 2^−{stats.scale_bits}"),
        Fact("sensitivity added by the grid", grown or "", brief=False),
    )


def secure_sum(stats: SecureAggregation) -> tuple[Fact, ...]:
    """Which secure sum ran, on which integers."""
    return _present(
        Fact("backend", stats.backend),
        *grid(stats),
        Fact("least number of survivors", f"{stats.min_survivors or ''}", brief=False),
        Fact("masked check", stats.masked_check),
    )
