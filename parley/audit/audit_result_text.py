"""Format the results of an audit, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator

from parley.privacy.accounting.rounding import format_exact, format_rounded_down, format_rounded_up
from parley.privacy.accounting.threat_model import Adversary
from parley.simulations.audit.audit_results import AuditReport, AuditResult

_ROW = "{:<11}{:<12}{:>11}  {:<12}{:>9}  {}"


def format_claim(report: AuditReport) -> str:
    """Return the claim in one line: ε, δ, unit, relation, distribution, rounds and adversary."""
    claim = report.claim
    against = Adversary(claim.against).short
    releases = "1 release" if claim.rounds == 1 else f"{claim.rounds} releases"
    return (
        f"ε = {format_rounded_up(claim.epsilon, 4)} at δ = {format_exact(claim.delta)} "
        f"({claim.unit}, {claim.neighbouring}, against {against}), {claim.law}, {claim.release}, "
        f"{releases}, by the {claim.accountant} account"
    )


def format_bound(result: AuditResult) -> str:
    """Return a bound, truncated and never rounded up, or a dash if the method gives none."""
    return "–" if result.epsilon_lower is None else format_rounded_down(result.epsilon_lower, 4)


def format_verdict(result: AuditResult) -> str:
    """Return whether one result contradicts the claim, as text."""
    if not result.refuted:
        return ""
    return "REFUTED, confirmed" if result.confirmed else "exceeded, not confirmed"


def format_report(report: AuditReport) -> Iterator[str]:
    """Yield the terminal's lines on one audited guarantee."""
    confidence = f"{100 * report.confidence:g} %"
    yield f"claim  {format_claim(report)}"
    yield _ROW.format("attack", "method", "trials", "ε at least", "of claim", f"({confidence})")
    for result in report.results:
        share = "" if result.fraction_of_claim is None else f"{result.fraction_of_claim:.3f}"
        words = [f"assumes: {result.assumption}" if result.assumption != "none" else ""]
        if result.noise_scale:
            low, high = result.noise_scale
            words.append(f"noise {low:.4f}–{high:.4f} of the claimed")
        words += [result.note, format_verdict(result)]
        yield _ROW.format(
            result.attack,
            result.method,
            f"{result.trials_in + result.trials_threshold:,}",
            format_bound(result),
            share,
            "; ".join(word for word in words if word),
        ).rstrip()
    yield from _list_substitutions(report)
    first = report.results[0]
    reach = ""
    if first.reach is not None:
        reach = f"sensitivity reached by the canaries: {first.reach:.4f}"
        if first.reach < 0.95:
            reach += " (below 0.95: the canaries show less than the claim allows)"
        reach += "; "
    yield f"{reach}{first.trials_per_second:,.0f} worlds a second"
    ceiling = report.environment["ceiling_of_trials"]
    if ceiling <= report.claim.epsilon:
        yield (
            f"With so few trials the audit can prove at most ε = {format_rounded_down(ceiling, 4)} "
            "without an assumption, so it cannot refute this claim. Increase --trials."
        )
    yield ""


def _list_substitutions(report: AuditReport) -> Iterator[str]:
    """Yield a line if another model than the job's was run."""
    for change in report.environment.get("changed", ()):
        if change.startswith("model.kind = "):
            yield (
                f"Audited with {change}: the job's own layers, and its own loss if it has one, did "
                "not run."
            )
