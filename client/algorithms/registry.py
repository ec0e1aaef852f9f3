"""Every algorithm by its name, and the task: what a party computes, in plain values that travel.

`describe_task(algorithm)` says everything that `local` depends on; `task_from` builds the algorithm
again on the party's side, from values alone: a server can name an algorithm or a model, it cannot
send code. One's own algorithm is a class in one's own file
(`parley.client.algorithms.own_algorithm`). No ε rests on what is built: the same object states the
claim that its plan is held to, and computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from parley.client.algorithms.algorithm_spec import (
    Kind,
    Party,
    check_keys,
    network_size,
    plain_size,
    settings_of,
)
from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.gradient_perturbation import GradientPerturbation, RajkumarAgarwal
from parley.client.algorithms.held_out_counts import HeldOutCounts
from parley.client.algorithms.objective_perturbation import ObjectivePerturbationOfParties
from parley.client.algorithms.output_perturbation import OutputPerturbation, PathakAveraging
from parley.client.algorithms.own_algorithm import own_kind, own_task
from parley.client.contract.assumptions import FEATURES, OWN_CLAIM
from parley.client.contract.model_state import State
from parley.client.contract.party_protocol import Declined, Reason
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.strict_decoding import DecodingError, as_came, facts_from, value_from
from parley.client.models.linear_serialization import described, linear_model_from
from parley.safe_io.path_names import is_own, public_name

LARGEST_TOLERANCE = 1.0
"""κ: beyond, θ = 0 is a certified optimum of many a party."""

Linear = GradientPerturbation | OutputPerturbation


def linear_kind(algorithm: type[Linear], **words: Any) -> Kind:
    """The row of one of them."""
    return Kind(
        to_task=_to_task,
        of_task=partial(_of_task, algorithm),
        size=_size,
        check=_check,
        check_state=_check_state,
        **words,
    )


def _to_task(algorithm: Linear) -> dict[str, Any]:
    return {"model": described(algorithm.model), "settings": settings_of(algorithm, "model")}


def _of_task(kind: type[Linear], task: Mapping[str, Any], _: Party) -> Linear:
    check_keys(task, "model", "settings")
    return facts_from(kind, task["settings"], model=linear_model_from(task["model"]))


def _size(task: Mapping[str, Any]) -> tuple[str, int]:
    """The loss, and features times classes."""
    model = task.get("model")
    loss = model.get("loss") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or not isinstance(loss, Mapping):
        raise DecodingError("Expected a model with a loss, got none.")
    widths = [model.get("features"), loss.get("classes", 1)]
    return value_from(str, loss.get("kind"), "loss.kind"), plain_size(widths)


def _check(algorithm: Linear, _: ReleasePlan) -> None:
    """Refuses tasks at which parties contribute nothing."""
    if degenerate := algorithm.model.loss.degenerate:
        raise Declined(Reason.DEGENERATE, degenerate)
    relative = getattr(algorithm, "relative_tolerance", 0.0)
    if relative > LARGEST_TOLERANCE:
        raise Declined(
            Reason.DEGENERATE,
            f"Expected relative_tolerance <= {LARGEST_TOLERANCE:g}, got {relative:g}.",
        )


def _check_state(algorithm: Linear, state: State) -> None:
    """Refuses a model at which the plan's G does not hold: ridge's is proved for ‖θ‖ ≤ R."""
    radius, theta = algorithm.model.loss.theta_radius, state["theta"]
    # A projection ends within rounding of the ball; the plan's rounding margin covers that.
    allowed = radius * (1 + (theta.size + 8) * 2.0**-52)
    if not float(np.sqrt(np.vecdot(theta, theta))) <= allowed:
        raise Declined(Reason.SENSITIVITY, f"Expected ‖θ‖ <= {radius:g}, got a longer one.")


def _later(module: str, name: str) -> Callable[..., Any]:
    """A function of a module of this room, which is imported when it is called.

    `predict` needs none of them, nor `plan` of another kind: torch takes 1.4 s.
    """

    def called(*args: Any) -> Any:
        return getattr(import_module(f"{__package__}.{module}"), name)(*args)

    return called


def _codec(module: str) -> dict[str, Any]:
    """The three that every row has."""
    return {name: _later(module, name) for name in ("to_task", "of_task", "size")}


def _network(title: str, **more: Any) -> Kind:
    """The row of an algorithm that trains a network."""
    codec = {**_codec("network_task"), "size": network_size}
    return Kind(title=title, **codec, check=_later("network_task", "check"), trains=True, **more)


def _counts_task(algorithm: HeldOutCounts) -> dict[str, Any]:
    return {
        "learner": describe_task(algorithm.learner),
        "settings": settings_of(algorithm, "learner"),
    }


def _counts_of(task: Mapping[str, Any], party: Party) -> HeldOutCounts:
    learner = _learner(task)
    check_keys(task, "learner", "settings")
    built = ALGORITHMS[learner["kind"]].of_task(learner, party)
    return facts_from(HeldOutCounts, task["settings"], learner=built)


def _counts_size(task: Mapping[str, Any]) -> tuple[str, int]:
    learner = _learner(task)
    return ALGORITHMS[learner["kind"]].size(learner)


def _learner(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """The task that a model is learned by: one of those whose answers can be counted."""
    learner = task.get("learner")
    known = [name for name, row in ALGORITHMS.items() if not (row.ahead or row.after)]
    if not isinstance(learner, Mapping) or learner.get("kind") not in known:
        raise DecodingError(f"Expected a learner of {', '.join(known)}, got another.")
    return learner


_CLIPPED = ", and a record's gradient is bounded by the loss or clipped"
_CERTIFIED = ", and every party certifies that its local optimum is one"

ALGORITHMS: dict[str, Kind] = {
    "gradient-perturbation": linear_kind(
        GradientPerturbation,
        title="gradient perturbation",
        bounded=_CLIPPED,
    ),
    "output-perturbation": linear_kind(
        OutputPerturbation,
        title="output perturbation",
        bounded=_CERTIFIED,
        remedy=("algorithm.kind=gradient-perturbation",),
        advice="{remedy} usually loses less at the same ε, where δ > 0 is acceptable",
    ),
    "objective-perturbation": linear_kind(
        ObjectivePerturbationOfParties,
        title="objective perturbation in the parties",
        bounded=", and every party certifies its perturbed optimum",
        remedy=("algorithm.kind=output-perturbation", "privacy.noise-point=share"),
        advice="Noise of every party by itself is √m times what a sum needs: {remedy} loses less",
    ),
    "pathak": linear_kind(
        PathakAveraging,
        title="output perturbation as of Pathak et al.",
        bounded=_CERTIFIED,
        remedy=("algorithm.kind=output-perturbation",),
        advice="This noise is m times what its ε needs: {remedy} has the part of it",
    ),
    "rajkumar-agarwal": linear_kind(
        RajkumarAgarwal,
        title="gradient perturbation as of Rajkumar & Agarwal",
        bounded=_CLIPPED,
        remedy=("algorithm.kind=gradient-perturbation",),
        advice="Every round is charged in full: {remedy} spreads its budget over all rounds",
    ),
    "fedavg": _network(
        "federated averaging",
        remedy=("algorithm.kind=distributed-dp-sgd",),
        advice="Every party adds noise alone: {remedy} has one for the batches of all parties "
        "together",
    ),
    "distributed-dp-sgd": _network("distributed DP-SGD", summed=True),
    "marginals": Kind(title="two-way marginals", **_codec("pair_tables"), summed=True),
    "random-features": Kind(
        title="random features",
        **_codec("kernel_mean_embedding"),
        check=_later("kernel_mean_embedding", "check_waves"),
        summed=True,
    ),
    "query": Kind(
        title="queries",
        **_codec("query_release"),
        check=_later("query_release", "check_grid"),
        bind=_later("query_release", "bound_to"),
        summed=True,
    ),
    "second-moments": Kind(title="second moments", **_codec("second_moments"), ahead=True),
    "held-out-counts": Kind(
        title="counts of held-out records",
        to_task=_counts_task,
        of_task=_counts_of,
        size=_counts_size,
        after=True,
        summed=True,
    ),
}


def kind_of(name: str) -> Kind:
    """The row of an algorithm, or one made of your own class, which this imports.

    Raises OwnAlgorithmError, KeyError.
    """
    return own_kind(name) if is_own(name) else ALGORITHMS[name]


def title_of(name: str) -> str:
    """What an algorithm is called, to be shown: one's own by its name, and nothing is imported."""
    return ALGORITHMS[name].title if name in ALGORITHMS else public_name(name)


def takes_sum(algorithm: FederatedAlgorithm) -> bool:
    """Whether its `update` takes the noisy sum, instead of the average over survivors."""
    row = ALGORITHMS.get(algorithm.kind)
    return row is not None and row.summed


def assumption_of(algorithm: FederatedAlgorithm) -> str:
    """What an algorithm's claim rests on beyond its proof; of your own, that it is right."""
    return OWN_CLAIM if is_own(algorithm.kind) else algorithm.assumption


def assumptions_of(algorithm: FederatedAlgorithm, feature_map: str) -> tuple[str, ...]:
    """Those of a release: its algorithm's, and those of one's own map of features; or ""."""
    return assumption_of(algorithm), FEATURES if is_own(feature_map) else ""


def describe_task(algorithm: FederatedAlgorithm) -> dict[str, Any]:
    """The algorithm as plain JSON values."""
    kind = algorithm.kind
    to_task = own_task if is_own(kind) else ALGORITHMS[kind].to_task
    return {"kind": kind, **to_task(algorithm)}


def task_from(
    value: Any,
    *,
    device: str = "cpu",
    own_models: Mapping[str, str] = MappingProxyType({}),
    own_algorithms: Mapping[str, str] = MappingProxyType({}),
) -> FederatedAlgorithm:
    """The algorithm that `describe_task` described. Raises DecodingError.

    Args:
        own_models: models of the party's own code that it allows: their names → where they are.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        raise DecodingError(f"Expected a task with a kind, got {as_came(value)} without one.")
    kind = value["kind"]
    if kind not in ALGORITHMS and kind not in own_algorithms:  # naming one would import it
        known = ", ".join([*ALGORITHMS, *own_algorithms])
        raise DecodingError(f"Expected a task of {known}, got {as_came(kind)}.")
    row = kind_of(own_algorithms.get(kind, kind))
    algorithm = row.of_task(value, Party(device=device, own_models=own_models))
    return cast(FederatedAlgorithm, algorithm)
