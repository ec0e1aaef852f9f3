"""What a simulated run says of its model first, and what would give a better one.

The non-private twin is asked first: where it is of no use either, no ε makes the model good, and
what it learns from is named: the feature map, the steps, the schema. Else the noise is to blame,
and the formulas of `parley plan` say how much smaller each public change would make it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from parley.client.algorithms.registry import ALGORITHMS
from parley.client.data.schema import Schema
from parley.client.features.base import FeatureError
from parley.privacy.accounting.rounding import as_written
from parley.server.jobs.job import Job
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.planning.job_planner import algorithm_for
from parley.server.planning.stage_planner import format_settings
from parley.server.records.evaluation import Judgement, TargetJudgement
from parley.server.records.number_format import number
from parley.server.records.result_text import RANKS, shortcoming
from parley.server.records.run_summary import RunSummary
from parley.simulations.data.public_shape import feature_map
from parley.simulations.data.simulated_world import Experiment
from parley.simulations.metrics.noise_reduction import (
    LARGEST_EPSILON,
    MAY_LOSE,
    against_noise,
    ways_to,
)
from parley.simulations.metrics.tried_settings import is_accepted_here

_NEAR = 0.05
"""An AUC that is so much lower ranks as well, for whoever asks for a threshold."""

_FOUND = 0.3
"""Of a rare label's records a threshold finds so many, where one does."""

_FEW = 100
"""Held-out records below which a figure is held against chance."""

_CLEAR = 0.05
"""Of accuracy or AUC beyond chance, or R²: so much the twin has to learn."""

_SMALL = 5
"""Times as many records that half of the parties hold, if the smallest stands out."""

_MOST_WAYS = 4
_HELD_OUT = "held-out records"

_ROUNDS = "algorithm.rounds=auto"
_AUTO_OF_NETWORKS = (
    "sampling-rate",
    "batch-size",
    "local-epochs",
    "local-steps",
    "clip-norm",
    "learning-rate",
    "momentum",
)
_AUTO = ("rounds", "learning-rate", "momentum", "nesterov", "clip-norm", "average")


def advised(summary: RunSummary, *, job: Job, world: Experiment) -> tuple[str, list[str]]:
    """The verdict on a run's model, empty where nothing is known against it; and further advice."""
    found, twin = summary.judgement, summary.baseline_judgement
    weighted, lost = bool(summary.class_weights), _lost(summary)
    wrong = shortcoming(found, records=_HELD_OUT, weighted=weighted)
    wrong = wrong or (_half_lost(found, twin) if lost else "")
    if few := _too_few(found):
        return _sentences(wrong, few), _further(summary, job, world)
    if wrong and twin is not None and not _by_noise(found, twin, weighted=weighted):
        said = f"The non-private model is no better{_figures(twin)}: noise is not the cause"
        learned = _settings(job, world) or _curves(job, world)
        cures = [each for each in (learned, _threshold(found)) if each]
        return _sentences(wrong, said, *(cures or [_schema(world)])), []
    unanswered = _unanswered(found, job, world)
    if not (wrong or lost):
        return "", unanswered
    further = [*_further(summary, job, world), *unanswered]
    if not wrong:
        return "", further
    if twin is None:
        return _sentences(wrong), further
    better = f"The non-private model is better{_figures(twin)}"
    if job.model.learns == "network":
        better += ": noise, clipping and the number of steps lie between them"
    return _sentences(wrong, better, _against_noise(summary, job, world, lost)), further


def _half_lost(found: Any, twin: Any) -> str:
    """That the noise takes most of what the twin learns; empty where it does not."""
    if isinstance(found, TargetJudgement):
        pairs = [(found.r2 or 0.0, twin.r2 or 0.0)]
    elif isinstance(found, Judgement):
        always = found.commonest[1] / found.records
        pairs = [(found.accuracy - always, twin.accuracy - always)]
        pairs.append(((found.auc or 0.5) - 0.5, (twin.auc or 0.5) - 0.5))
    else:
        return ""
    most = any(2 * own < other and other > _CLEAR for own, other in pairs)
    return f"The noise takes most of what is learned{_figures(found)}" if most else ""


def _too_few(found: Judgement | TargetJudgement | None) -> str:
    """Held-out records that do not tell a model from the commonest label."""
    if not isinstance(found, Judgement) or found.records >= _FEW:
        return ""
    records, right = round(found.records), round(found.right)
    low, high = _wilson(right, records)
    if low > found.commonest[1] / records:
        return ""
    return (
        f"{records} held-out records are too few to tell a good model from a poor one: on others "
        f"its accuracy may be {number(low, 2)} to {number(high, 2)}"
    )


def _wilson(right: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    share, z2 = right / count, 1.96**2
    middle, scale = share + z2 / (2 * count), 1 + z2 / count
    half = math.sqrt(z2 * (share * (1 - share) / count + z2 / (4 * count**2)))
    return (middle - half) / scale, (middle + half) / scale


def _unanswered(
    found: Judgement | TargetJudgement | None, job: Job, world: Experiment
) -> list[str]:
    """The weights by which rare ones of several labels are answered, too."""
    if not isinstance(found, Judgement) or len(found.labels) == 2 or job.model.weights_of_classes:
        return []
    held = {name: sum(row) for name, row in zip(found.labels, found.confusion, strict=True)}
    root = {name: round(math.sqrt(max(held.values()) / max(held[name], 1))) for name in held}
    rare = [name for name in held if root[name] > 1 and name not in found.answered and held[name]]
    weights = ",".join(str(root[name] if name in rare else 1) for name in held)
    key = f"model.class-weights=[{weights}]"
    if not rare or not is_accepted_here(job, world, [key]):
        return []
    named = ", ".join(map(repr, rare))
    return [f"It never answers {named}: `parley run … --set '{key}'` does."]


def _against_noise(summary: RunSummary, job: Job, world: Experiment, lost: float) -> str:
    """What helps a model of no use, whose twin is of some."""
    found, twin = summary.judgement, summary.baseline_judgement
    both = isinstance(found, Judgement) and isinstance(twin, Judgement)
    if both and _gap(found, twin) < _NEAR and (cure := _threshold(found)):
        return cure
    row = ALGORITHMS.get(summary.algorithm)
    # What costs nothing goes before what costs ε.
    if job.model.learns == "network" and (cure := _settings(job, world)):
        return cure
    if row and row.remedy and is_accepted_here(job, world, row.remedy):
        return row.advice.format(remedy=f"`{format_settings(row.remedy)}`")
    return against_noise(summary, job, world, lost)


def _further(summary: RunSummary, job: Job, world: Experiment) -> list[str]:
    """What makes the noise smaller, or less of it do harm."""
    ways = "; ".join(
        f"{way.times:.2g} times with {way.said}" for way in ways_to(job, world)[:_MOST_WAYS]
    )
    found = [_smallest_party(summary, job, world)]
    if ways:
        found.append(f"By the formulas of `parley plan` the noise would be smaller: {ways}.")
    if (keys := _off_rule(job, world)) and is_accepted_here(job, world, keys):
        found.append(
            f"`parley run … {format_settings(keys)}` makes the steps that this budget buys."
        )
    return [each for each in found if each]


def _smallest_party(summary: RunSummary, job: Job, world: Experiment) -> str:
    """Which party's few records decide how large the noise is; empty if none stands out."""
    sizes = world.block.sizes
    least, others = int(sizes.argmin()), float(np.median(sizes))
    few = world.federation.min_records == sizes[least] and _SMALL * sizes[least] < others
    if not few or job.parties.weights == "size" or job.privacy.private_sizes:
        return ""
    names = summary.partition.parties if summary.partition else None
    name = repr(names[least]) if names else str(least)
    held = f"{sizes[least]} record{'' if sizes[least] == 1 else 's'}"
    key = "parties.weights=size"
    weigh = f", or weigh parties by their records (`--set {key}`)"
    return (
        f"Party {name} holds {held}, half of the parties {others:.0f} or more. With equal weights "
        "the smallest party sets the noise: leave its records out of the data"
        f"{weigh if is_accepted_here(job, world, [key]) else ''}."
    )


def _sentences(*said: str) -> str:
    return " ".join(f"{each}." for each in said if each)


def _by_noise(
    found: Judgement | TargetJudgement | None,
    twin: Judgement | TargetJudgement,
    *,
    weighted: bool,
) -> bool:
    """Whether the twin is of use where the model is of none, or ranks far better."""
    if not shortcoming(twin, records=_HELD_OUT, weighted=weighted):
        return True
    if not (isinstance(found, Judgement) and isinstance(twin, Judgement)):
        return False
    return (twin.auc or 0) >= RANKS and _gap(found, twin) >= 0.1


def _gap(found: Any, twin: Any) -> float:
    """By how much the twin ranks better; of judgements."""
    return float((twin.auc or 0.0) - (found.auc or 0.0))


def _figures(of: Judgement | TargetJudgement) -> str:
    if isinstance(of, TargetJudgement):
        return "" if of.r2 is None else f" (R² {number(of.r2, 3)})"
    auc = "" if of.auc is None else f", AUC {number(of.auc, 3)}"
    return f" (accuracy {number(of.accuracy, 4)}{auc})"


def _lost(summary: RunSummary) -> float:
    """What the noise cost in accuracy, AUC, R² or loss, beyond a standard error; 0: too little."""
    found, twin = summary.judgement, summary.baseline_judgement
    if isinstance(found, TargetJudgement) and isinstance(twin, TargetJudgement):
        lost = (twin.r2 or 0.0) - (found.r2 or 0.0)
        return lost if lost > MAY_LOSE else 0.0
    if not (isinstance(found, Judgement) and isinstance(twin, Judgement)):
        excess = summary.excess_loss or 0.0  # all that is known without held-out records
        return excess if found is None and excess > MAY_LOSE else 0.0
    rarest = max(min(sum(row) for row in twin.confusion), 1)
    kinds = [((twin.right - found.right) / twin.records, twin.right / twin.records, twin.records)]
    kinds.append((_gap(found, twin), twin.auc or 0.5, rarest))
    return max(
        lost if lost > max(MAY_LOSE, math.sqrt(of * (1 - of) / count)) else 0.0
        for lost, of, count in kinds
    )


# What is learned from.


def _settings(job: Job, world: Experiment) -> str:
    """The command that learns from more; empty where the job says what it would say."""
    hats = ["model.features=hats"] if _hats_differ(job, world) else []
    keys = hats + _off_rule(job, world)
    if not keys or not is_accepted_here(job, world, keys):
        return ""
    return f"Try {'this' if len(keys) == 1 else 'these'}: `parley run … {format_settings(keys)}`"


def _off_rule(job: Job, world: Experiment) -> list[str]:
    """Keys that leave the steps to the rule of public facts, where it says clearly others."""
    autos = [f"algorithm.{key}=auto" for key in _AUTO]
    if job.model.learns == "network":
        autos = [_ROUNDS, *(f"dp-sgd.{key}=auto" for key in _AUTO_OF_NETWORKS)]
    else:
        autos.append("model.lambda=auto")
    try:
        asked = load_job(values=job.values(), overrides=autos)
        ruled = asked.settled(world.federation, world.data.classes)
    except JobError:
        return []
    if job.model.learns == "network":
        pairs = list(zip(_way_of(job, world), _way_of(ruled, world), strict=True))
        own, other = job.values(), ruled.values()
        differ = [key for key in autos[1:] if _at(own, key) != _at(other, key)]
        # Rounds and steps make the way together.
        found = [_ROUNDS, *differ]
    elif getattr(ruled.algorithm, "learning_rate", "auto") == "auto":
        return []  # there is no rule for it
    else:
        pairs = [(job.rounds, ruled.rounds)]
        pairs.append((job.model.regularisation, ruled.model.regularisation))
        found = [_ROUNDS]
    return found if any(max(a, b) > 2 * min(a, b) for a, b in pairs) else []


def _at(values: dict[str, dict[str, Any]], key: str) -> Any:
    section, name = key.removesuffix("=auto").split(".")
    return values[section][name]


def _way_of(job: Job, world: Experiment) -> tuple[float, float]:
    """How far a network's steps lead, and q."""
    algorithm: Any = algorithm_for(job, world.model, world.federation)
    training = algorithm.training
    length = training.longest_step / (1 - training.momentum)
    return length * training.steps * job.rounds, training.sampling_rate


def _hats_differ(job: Job, world: Experiment) -> bool:
    """Whether the job learns from no map, and hats would give it more than the columns are."""
    if job.model.feature_map:
        return False
    schema = Schema.from_toml(world.data.schema)
    try:
        hats = feature_map(load_job(values=job.values(), overrides=["model.features=hats"]))
        wider = hats is not None and hats.on(schema).width > schema.dimension
        return wider and _hats_by_rule(job, world) is not False
    except (FeatureError, JobError):
        return False  # it takes no map, or no such columns


def _hats_by_rule(job: Job, world: Experiment, *keys: str) -> bool | None:
    """Whether the rule takes hats with other keys; None: there is no rule for such a job."""
    autos = ("model.features=auto", _ROUNDS, "algorithm.learning-rate=auto")
    try:
        asked = load_job(values=job.values(), overrides=[*autos, *keys])
        ruled = asked.settled(world.federation, world.data.classes)
    except JobError:
        return None
    if getattr(ruled.algorithm, "learning_rate", "auto") == "auto":
        return None
    return bool(ruled.model.feature_map)


def _curves(job: Job, world: Experiment) -> str:
    """From which ε on the rule learns curves, where this one buys none."""
    if job.model.is_mapped or _hats_by_rule(job, world) is not False:
        return ""
    epsilon = job.privacy.epsilon
    while 2 * epsilon <= LARGEST_EPSILON:
        epsilon *= 2
        key = f"privacy.epsilon={as_written(epsilon)}"
        if _hats_by_rule(job, world, key) and is_accepted_here(job, world, [key]):
            return (
                "So little signal is learned from columns as they are; where curves (hats) begin "
                f"to pay: `parley run … --set {key}`"
            )
    return ""


def _schema(world: Experiment) -> str:
    """What a person can look at where nothing else is left."""
    schema = Schema.from_toml(world.data.schema)
    unread = [name for name in schema.columns if name not in schema.used]
    left = f" and columns that it ignores ({', '.join(map(repr, unread[:5]))})" if unread else ""
    return (
        "These columns, as the schema reads them, do not tell what is asked: look there for ranges "
        f"far wider than the values{left}"
    )


def _threshold(found: Judgement | TargetJudgement | None) -> str:
    """From which probability on as many records are answered positive as there are, or more."""
    if not isinstance(found, Judgement) or not found.thresholds or (found.auc or 0) < RANKS:
        return ""
    share = sum(found.confusion[1]) / found.records
    useful = [row for row in found.thresholds if row.recall]
    if not useful:
        return ""
    useful = [row for row in useful if (row.recall or 0) >= _FOUND] or useful
    best = min(useful, key=lambda row: abs(row.positive - share))
    return (
        f"It does rank (AUC {number(found.auc, 3)}): `parley predict RUN ROWS --threshold "
        f"{best.least:g}` answers {found.labels[1]!r} for {number(best.positive, 3)} of them, with "
        f"precision {number(best.precision, 3)} and recall {number(best.recall, 3)}"
    )
