"""How good a run's model is and how the run ended, in words; what a plan says of both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parley.privacy.accounting.rounding import as_written, shown_down
from parley.privacy.accounting.threat_model import Adversary
from parley.safe_io.plurals import noun
from parley.server.records.evaluation import Judged, Judgement, TargetJudgement
from parley.server.records.guarantee_text import points, scope
from parley.server.records.number_format import byte_text, number

if TYPE_CHECKING:
    from parley.server.records.plan_parts import (
        EvaluationOutlook,
        SimulationOutlook,
        SyntheticOutlook,
    )
    from parley.server.records.run_summary import RunSummary, Synthetic


def cell_noise(run: RunSummary) -> float:
    """Standard deviation of the noise on a released count, that of all shares; 0: not known."""
    noise = run.primary.noise
    return (noise.scale_of_sum or 0.0) * (noise.shares.inflation if noise.shares else 1.0)


def release_ahead(ahead: SyntheticOutlook | None) -> str:
    """What a plan says of the release: its size, its noise beside what it holds."""
    if ahead is None:
        return ""
    said = (
        f"{ahead.released}, {byte_text(ahead.vector_bytes)} a party; Δ₂ of the sum "
        f"{number(ahead.sensitivity, 4)}; noise of standard deviation "
        f"{number(ahead.noise, 3)} on each"
    )
    if ahead.average is not None:
        said += f", the average cell holds {number(ahead.average, 3)} records"
    said += f"; on the mean over the records the noise is about {number(ahead.noise_norm, 3)} long"
    if ahead.largest:
        named = ", ".join(f"{name} ({size:,} values)" for name, size in ahead.largest)
        said += f". The largest columns: {named}"
    return said


def table_said(run: RunSummary) -> str:
    """What was drawn from what; empty where a run makes no table."""
    table = run.synthetic
    if table is None:
        return ""
    said = (
        f"{table.rows:,} rows in {table.path}, drawn from {_released(table)} that say there are "
        f"about {round(table.records):,} records"
    )
    drawn = cell_noise(run)
    if table.tables and drawn and run.dimension:
        average = table.records * table.tables / run.dimension
        said += (
            f"; a cell's noise has the standard deviation {number(drawn, 3)}, the average cell "
            f"holds {number(average, 3)}"
        )
    return said


def _released(table: Synthetic) -> str:
    if table.tables:
        return f"{table.tables} noisy tables"
    return f"the noisy sums of random features of {table.classes} classes"


_MEASURED = (
    ("columns, mean total variation to the records", "tv1", None),
    ("pairs of columns, mean total variation", "tv2", None),
    ("area under the ROC curve, logistic regression on it", "tstr_auc", "real_auc"),
    ("the same, on the table without noise", "twin_auc", None),
    ("the same, on independent columns", "independent_auc", None),
    ("area under the ROC curve, boosted trees on it", "tstr_trees_auc", "real_trees_auc"),
    ("accuracy, logistic regression on it", "tstr_accuracy", "real_accuracy"),
    ("the same, on what is drawn without noise", "twin_accuracy", None),
    ("the same, always answering the commonest label", None, "majority_accuracy"),
)
_COMMONEST = "always answering the commonest label"

_CLOSEST = (
    ("rows that equal one of them", "copies", "held_out_copies"),
    ("mean distance of a row to the closest", "nearest", "held_out_nearest"),
)


def table_measured(run: RunSummary) -> tuple[Measured, ...]:
    """How near the table is to the records, where a simulation knows; beside the records'."""
    return _rows(run.synthetic, _MEASURED)


def closest_measured(run: RunSummary) -> tuple[Measured, ...]:
    """How near rows are to training records, and beside it to as many held-out ones."""
    return _rows(run.synthetic, _CLOSEST)


def closest_said(run: RunSummary) -> str:
    """How well a record's distance to the closest row tells whether it was among the records."""
    table = run.synthetic
    if table is None or table.membership_auc is None:
        return ""
    return (
        "Information, and no evidence of privacy: whether a record was among them is judged by "
        f"others by its distance to the closest row with an AUC of "
        f"{number(table.membership_auc, 3)} (.5 is chance). The guarantee is the ε above."
    )


def _rows(
    table: Synthetic | None, named: tuple[tuple[str, str | None, str | None], ...]
) -> tuple[Measured, ...]:
    """Those of which one is known at least."""

    def shown(key: str | None) -> str:
        value = None if key is None else getattr(table, key)
        return "" if value is None else number(value, 4)

    every = () if table is None else named
    rows = [
        Measured(name=name, private=shown(own), non_private=shown(other))
        for name, own, other in every
    ]
    return tuple(row for row in rows if row.private or row.non_private)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A figure that only a simulation may know, beside the non-private model's."""

    name: str
    private: str
    non_private: str


def class_weights(of: Sequence[float] | None) -> str:
    """Public weights of the labels; empty where every record counts once."""
    weights = " : ".join(f"{weight:g}" for weight in of or ())
    return f"{weights} (public, of the labels in their order)" if weights else ""


def metric(run: RunSummary) -> str:
    """What the figure called accuracy measures."""
    return "R²" if run.metric == "r2" else "accuracy"


def measured(run: RunSummary) -> tuple[Measured, ...]:
    """Accuracy and loss, where the run has them; a loss that is not finite has diverged."""
    rows: list[tuple[str, float | None, float | None]] = []
    if run.accuracy is not None:
        rows.append((f"{metric(run)}, held-out records", run.accuracy, run.baseline_accuracy))
    if run.majority_accuracy is not None:
        rows.append((_COMMONEST, run.majority_accuracy, run.majority_accuracy))
    if run.loss is not None or run.baseline_loss is not None:
        rows.append(("training loss", run.loss, run.baseline_loss))
    return tuple(
        Measured(
            name=name,
            private="diverged" if value is None else number(value, 4),
            non_private=number(baseline, 4),
        )
        for name, value, baseline in rows
    )


_JUDGED = {
    "auc": "area under the ROC curve",
    "average_precision": "average precision",
    "recall": "recall",
    "precision": "precision",
    "log_loss": "log loss",
    "brier": "Brier score",
    "rmse": "root of the mean squared error",
}
"""What a judgement measures, in its order."""


def judged(run: RunSummary) -> tuple[Measured, ...]:
    """How good the model is on held-out records, beside the non-private one."""
    found, twin = run.judgement, run.baseline_judgement
    if found is None:
        return ()
    return tuple(
        Measured(
            name=name,
            private=number(getattr(found, key), 4),
            non_private=number(getattr(twin, key, None), 4),
        )
        for key, name in _JUDGED.items()
        if getattr(found, key, None) is not None
    )


RANKS = 0.6
"""An AUC from which a model ranks at all."""

_HARDLY = 0.2
"""Of two labels the rarer is hardly answered, where it is for so small a part of its records."""


def shortcoming(
    found: Judgement | TargetJudgement | None, *, records: str, weighted: bool = False
) -> str:
    """Why a model is of no use, without a full stop; empty: it is of some.

    Args:
        records: which ones it was asked about, as "held-out records".
        weighted: classes have weights, for which accuracy is given up on purpose.
    """
    if found is None:
        return ""
    of = f"{found.records:,} {records}"
    if isinstance(found, TargetJudgement):
        worse = found.r2 is not None and found.r2 <= 0
        return f"The model predicts {of} no better than their mean does" if worse else ""
    name, count = found.commonest
    share = number(found.accuracy, 4)
    if len(found.answered) == 1:
        return f"The model answers {found.answered[0]!r} for all of {of} (accuracy {share})"
    if found.right <= count and not weighted:
        always = f"always answering {name!r} has {number(count / found.records, 4)}"
        return f"The model's accuracy on {of} is {share}; {always}"
    if len(found.labels) == 2 and not weighted:
        rare = 1 - found.labels.index(name)
        given, held = sum(row[rare] for row in found.confusion), sum(found.confusion[rare])
        if given < _HARDLY * held:
            said = f"The model answers {found.labels[rare]!r} for {number(round(given))} of {of}"
            return f"{said}, {number(round(held))} of which are (accuracy {share})"
    ranks = found.auc is None or found.auc >= RANKS
    return "" if ranks else f"The model ranks {of} hardly better than chance"


def public_test(run: RunSummary) -> str:
    """How good a real run's model is on its server's public records."""
    stats = run.public_test
    if stats is None:
        return ""
    said = [f"{stats.records} public records, which cost no ε"]
    if stats.judgement is None:
        said.append("the model says nothing finite of them")
    else:
        said += _found(stats.judgement)
    return "; ".join(said)


def _found(found: Judgement | TargetJudgement) -> list[str]:
    if isinstance(found, TargetJudgement):
        r2 = [] if found.r2 is None else [f"R² {number(found.r2, 4)}"]
        return [f"{_JUDGED['rmse']} {number(found.rmse, 4)}", *r2]
    auc = [] if found.auc is None else [f"{_JUDGED['auc']} {number(found.auc, 4)}"]
    return [
        f"accuracy {number(found.accuracy, 4)}",
        f"{_COMMONEST} {number(found.commonest[1] / found.records, 4)}",
        *auc,
    ]


_ENDS = {
    "interrupted": "Interrupted after {rounds}. `parley run --resume` with this run's folder "
    "continues it: nothing is released or paid for twice.",
    "budget-exhausted": "Budget exhausted after {rounds}: the run ended there and kept its last "
    "model.{reason}",
    "too-few-survivors": "Stopped after {rounds}: too few parties survived the next one.{reason}",
}


def status(run: RunSummary) -> str:
    """How the run ended, in a sentence."""
    if run.status == "complete":
        every = "its one round" if run.rounds <= 1 else f"all {run.rounds:,} rounds"
        return f"Complete: {every} ran."
    rounds = "its one round"
    if run.rounds > 1 or run.rounds_done != run.rounds:
        rounds = f"{run.rounds_done:,} of {run.rounds:,} rounds"
    reason = f" {run.reason}" if run.reason else ""
    if run.status in _ENDS:
        return _ENDS[run.status].format(rounds=rounds, reason=reason)
    return f"{run.status.replace('-', ' ').capitalize()} after {rounds}.{reason}"


def parties(run: RunSummary) -> str:
    """Of how many parties the run was, how many rounds it made, and how long it took."""
    least = (
        ""
        if run.min_records is None
        else f" of at least {run.min_records} {noun(run.min_records, 'record')}"
    )
    took = "" if run.seconds is None else f", {run.seconds:.1f} s"
    return f"{run.parties}{least}, {run.rounds_done} {noun(run.rounds_done, 'round')}{took}"


def evaluation(run: RunSummary) -> str:
    """How good the model is on the parties' held-out records, with the noise; empty: not asked."""
    stats = run.evaluation
    if stats is None:
        return ""
    if not stats.counts:
        return f"not made: {stats.reason}"
    found = stats.judgement
    names = ("accuracy", "auc", "recall", "precision") if found and found.roc else ("accuracy",)
    each = [f"{_JUDGED.get(name, name)} {estimated(found, name)}" for name in names if found]
    return (
        f"{'; '.join(each) or 'lost in the noise'} ({100 * stats.confidence:g} % intervals of the "
        f"noise on counts of {stats.summed} of {stats.asked} parties); one release of "
        f"{points(stats.epsilon, stats.delta)} ({scope(run.primary)}), within what was spent"
    )


def estimated(of: Judged, name: str, digits: int = 3) -> str:
    """A figure, with its interval where it has one."""
    value, ends = getattr(of, name), (of.within or {}).get(name)
    if ends == (0.0, 1.0):
        return "lost in the noise"
    shown = number(value, digits)
    if ends is None:
        return shown
    low, high = math.floor(1000 * ends[0]) / 1000, math.ceil(1000 * ends[1]) / 1000
    return f"{shown} ({number(low)} to {number(high)})"


def evaluation_ahead(stats: EvaluationOutlook | None) -> str:
    """What the release after the rounds will cost, and how exact it is."""
    if stats is None:
        return ""
    return (
        f"{stats.counts} counts of held-out records by label and what the model says of them, "
        f"after the last round, {points(stats.epsilon, stats.delta)} of what is charged; noise "
        f"law {stats.law}, at most {number(stats.within)} records on each count with "
        f"{100 * stats.confidence:g} %"
    )


def simulation_ahead(stats: SimulationOutlook | None) -> str:
    """What a simulation of the job takes on this machine."""
    if stats is None:
        return ""
    where = (
        f"read from a file, being more than {stats.limit_mib:,} MiB (run.memory)"
        if stats.mapped
        else "in memory"
    )
    said = (
        f"at least {stats.data_mib:,.0f} MiB of records, {where}; about "
        f"{stats.memory_mib:,.0f} MiB in all"
    )
    seconds = stats.seconds_a_round
    if seconds is None:
        return said
    return f"{said}, and {number(seconds, 2)} s a round on this machine beside its ledger's disk"


_COINS = {"in-out": "whether each was there", "one-of-two": "which of two records each was"}


def self_audit(run: RunSummary) -> str:
    """What a run's canaries bound, beside what is claimed against who looked; empty without any."""
    found, of = run.self_audit, run.primary
    if found is None:
        return ""
    readers = Adversary.READERS
    claimed = next((row for row in of.accounts if row.adversary is readers), of.accounts[0])
    return (
        f"ε ≥ {shown_down(found.epsilon_lower, 4)} at δ = {as_written(of.delta)} with "
        f"{100 * found.confidence:g} % confidence ({scope(of)}; against {readers.short}); "
        f"claimed there: {points(claimed.epsilon, claimed.delta)}; if its curve is Gaussian, "
        f"ε ≥ {shown_down(found.epsilon_lower_on_gaussian_curve, 4)}; {number(found.right)} of "
        f"{number(found.guesses)} guesses right, of {number(found.canaries)} coins "
        f"({_COINS[found.coins]}), which show ε = {shown_down(found.ceiling, 4)} at the most: a "
        "lower bound, no estimate"
    )
