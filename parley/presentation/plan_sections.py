"""Build the sections of a plan: what is chosen, the cost, noise and training."""

from __future__ import annotations

from parley.presentation import result_text
from parley.presentation.document import Section, build_fact_section, build_text_section, drop_empty
from parley.presentation.summary_sections import SUM, TRAINING, list_cost_sections
from parley.server.records.plan_summary import PlanSummary
from parley.server.records.plan_summary_parts import (
    PlannedDpSgd,
    PlannedEvaluation,
    PlannedSecureSteps,
    PlannedSimulation,
    PlannedSynthetic,
)
from parley.server.statements.dp_sgd_text import build_step_facts
from parley.server.statements.guarantee_text import (
    Fact,
    build_grid_facts,
    build_number_fact,
    build_number_facts,
    drop_absent,
    format_epsilon_delta,
)
from parley.server.statements.number_format import format_bytes, format_number


def build_plan_sections(plan: PlanSummary) -> list[Section]:
    """Build the sections of a plan: it is the summary before round 1."""
    counted = plan.dp_sgd is not None and bool(plan.dp_sgd.clipped_fraction_share)
    chosen = build_text_section("chosen", "; ".join(plan.chosen))
    costs = list_cost_sections(plan, "charged", counted=counted)
    return drop_empty([chosen, *costs, *_list_noise_sections(plan)])


def _list_noise_sections(plan: PlanSummary) -> list[Section]:
    moved = build_number_facts(
        {"Δ₂ of the average": plan.sensitivity, "G =": plan.lipschitz, "λ =": plan.lambda_}
    )
    weights = result_text.format_class_weights(plan.class_weights)
    return [
        build_fact_section("sensitivity", moved),
        build_fact_section(
            TRAINING, () if plan.dp_sgd is None else _build_training_facts(plan.dp_sgd)
        ),
        build_fact_section("steps", _build_distributed_facts(plan.distributed)),
        build_text_section("class weights", weights),
        build_text_section("evaluation", _format_planned_evaluation(plan.evaluation)),
        build_text_section("synthetic", _format_planned_synthetic(plan.synthetic)),
        build_text_section("simulation", _format_planned_simulation(plan.simulation)),
        build_text_section("ledger", plan.data_note or ""),
        build_fact_section(SUM, build_grid_facts(plan.grid)),
    ]


def _build_training_facts(stats: PlannedDpSgd) -> tuple[Fact, ...]:
    """Build facts on how the parties will train."""
    share, noise = stats.clipped_fraction_share, stats.clipped_fraction_deviation
    fraction = f"{share:g} of every step's privacy, with noise of {noise or 0:.3g} on it per round"
    return drop_absent(
        *build_step_facts(stats, counted=bool(share)),
        build_number_fact("expected batch", stats.expected_batch),
        Fact("clipped sums by", stats.gradients if stats.noise_multiplier is not None else ""),
        Fact("fraction of clipped gradients for", fraction if share else ""),
        build_number_fact("principal components by one release of μ =", stats.components_mu),
    )


def _build_distributed_facts(run: PlannedSecureSteps | None) -> tuple[Fact, ...]:
    """Build facts on steps that are secure sums, and their cost."""
    if run is None:
        return ()
    advice = "; T <= 150 is advised there" if run.hours > 0.5 else ""
    total = f"{run.steps:,} in total, each a secure sum ({run.vector_bytes:,} bytes per party)"
    time = f"about {run.hours:.2g} h, at {run.seconds_a_step:g} s per step{advice}"
    optimiser = Fact("optimiser at the server", run.optimiser)
    return Fact("", total), optimiser, Fact("among real processes", time)


def _format_planned_synthetic(planned: PlannedSynthetic | None) -> str:
    """Format a planned release: its size, and its noise compared with its content."""
    if planned is None:
        return ""
    said = (
        f"{planned.released}, {format_bytes(planned.vector_bytes)} per party; Δ₂ of the sum "
        f"{format_number(planned.sensitivity, 4)}; noise of standard deviation "
        f"{format_number(planned.noise, 3)} on each"
    )
    if planned.average is not None:
        said += f", the average cell holds {format_number(planned.average, 3)} records"
    said += (
        f"; noise of length about {format_number(planned.noise_norm, 3)} on the mean over the "
        "records"
    )
    if planned.largest:
        named = ", ".join(f"{name} ({size:,} values)" for name, size in planned.largest)
        said += f". The largest columns: {named}"
    return said


def _format_planned_evaluation(stats: PlannedEvaluation | None) -> str:
    """Format the cost of the release after the rounds, and its precision."""
    if stats is None:
        return ""
    return (
        f"{stats.counts} counts of held-out records by label and prediction, after the last "
        f"round, {format_epsilon_delta(stats.epsilon, stats.delta)} of what is charged; "
        f"{stats.law} noise, at most {format_number(stats.within)} records on each count at "
        f"{100 * stats.confidence:g} %"
    )


def _format_planned_simulation(stats: PlannedSimulation | None) -> str:
    """Format what a simulation of the job costs on this machine."""
    if stats is None:
        return ""
    where = "in memory"
    if stats.mapped:
        where = f"read from a file, because they exceed {stats.limit_mib:,} MiB (run.memory)"
    said = (
        f"at least {stats.data_mib:,.0f} MiB of records, {where}; about {stats.memory_mib:,.0f} "
        "MiB in total"
    )
    seconds = stats.seconds_a_round
    if seconds is None:
        return said
    return (
        f"{said}, and {format_number(seconds, 2)} s per round on this machine, plus disk writes "
        "of the ledger"
    )
