"""Format DP-SGD in the parties: the steps, the accounts, the fraction of clipped gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.server.statements.guarantee_text import (
    Fact,
    build_number_fact,
    conversion,
    drop_absent,
)
from parley.server.statements.number_format import format_epsilon

if TYPE_CHECKING:
    from parley.server.records.plan_summary_parts import PlannedDpSgd
    from parley.server.records.run_summary import DpSgdSummary, RunSummary


def build_step_facts(
    stats: DpSgdSummary | PlannedDpSgd, *, counted: bool
) -> tuple[Fact | None, ...]:
    """Build the facts that a training plan and its account share."""
    return (
        build_number_fact("sampling rate q =", stats.sampling_rate),
        build_number_fact("noise multiplier σ =", stats.noise_multiplier),
        build_number_fact("noise multiplier of the gradients σ′ =", stats.gradient_multiplier)
        if counted
        else None,
        build_number_fact("clip norm C =", stats.clip_norm),
        Fact("steps", f"{stats.steps_per_round} per round"),
    )


def build_dp_sgd_facts(stats: DpSgdSummary) -> tuple[Fact, ...]:
    """Build facts on how the parties trained, and the largest of their accounts."""
    largest = " and ".join(
        f"ε = {format_epsilon(stats.largest[name])} by {conversion(name)}"
        for name in ("rdp", "pld", "exact")
        if name in stats.largest
    )
    steps = build_step_facts(stats, counted=bool(stats.clipped_share))
    return drop_absent(*steps, Fact("a party's largest account", largest))


def format_clipped_fraction(run: RunSummary) -> str:
    """Format the released fraction of clipped gradients with its noise; empty without one."""
    stats = run.clipped_fraction
    if stats is None:
        return ""
    last = f"{_format_noisy(stats.last, stats.deviation)} in the last round"
    if run.rounds_done < 2:
        return last
    mean = _format_noisy(stats.mean, stats.mean_deviation)
    return f"{mean} on average over {run.rounds_done} rounds, {last}"


def _format_noisy(value: float, deviation: float) -> str:
    return f"{value:.3g} (standard deviation of the noise: {deviation:.2g})"
