"""Registry of algorithms by name, and the task: what a party computes, in plain values that travel.

`describe_task(algorithm)` contains everything that `local` depends on. `decode_task` builds the
algorithm again on the party's side, only from values: a server can name an algorithm or a model but
cannot send code. A user-defined algorithm is a class in the user's own file
(`parley.client.algorithms.own_algorithm`). No ε depends on how the algorithm was built: the same
object states the claim that its plan is checked against, and computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from parley.client.algorithms.algorithm_spec import (
    AlgorithmSpec,
    PartyResources,
    check_keys,
    compute_min_parameters,
    get_settings,
    parse_network_size,
)
from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.gradient_perturbation import GradientPerturbation, RajkumarAgarwal
from parley.client.algorithms.held_out_counts import HeldOutCounts
from parley.client.algorithms.objective_perturbation import ObjectivePerturbationOfParties
from parley.client.algorithms.output_perturbation import OutputPerturbation, PathakAveraging
from parley.client.algorithms.own_algorithm import build_own_spec, describe_own_task
from parley.client.contract.assumptions import OWN_CLAIM, OWN_FEATURE_MAP
from parley.client.contract.model_state import State
from parley.client.contract.party_protocol import Declined, Reason
from parley.client.contract.release_plan import ReleasePlan
from parley.client.contract.strict_decoding import (
    DecodingError,
    decode_dataclass,
    decode_value,
    format_received,
)
from parley.client.models.linear_serialization import decode_linear_model, encode_linear_model
from parley.safe_io.path_names import get_public_name, is_own_code

MAX_TOLERANCE = 1.0
"""Maximum κ. Beyond, θ = 0 is a certified optimum for many parties."""

Linear = GradientPerturbation | OutputPerturbation


def build_linear_spec(algorithm: type[Linear], **other_fields: Any) -> AlgorithmSpec:
    """Build the row of a linear algorithm."""
    return AlgorithmSpec(
        to_task=_to_task,
        from_task=partial(_from_task, algorithm),
        parse_size=_parse_size,
        check=_check,
        check_state=_check_state,
        **other_fields,
    )


def _to_task(algorithm: Linear) -> dict[str, Any]:
    return {
        "model": encode_linear_model(algorithm.model),
        "settings": get_settings(algorithm, "model"),
    }


def _from_task(kind: type[Linear], task: Mapping[str, Any], _: PartyResources) -> Linear:
    check_keys(task, "model", "settings")
    return decode_dataclass(kind, task["settings"], model=decode_linear_model(task["model"]))


def _parse_size(task: Mapping[str, Any]) -> tuple[str, int]:
    """Return the loss, and features times classes."""
    model = task.get("model")
    loss = model.get("loss") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or not isinstance(loss, Mapping):
        raise DecodingError("Expected a model with a loss, got none.")
    widths = [model.get("features"), loss.get("classes", 1)]
    return decode_value(str, loss.get("kind"), "loss.kind"), compute_min_parameters(widths)


def _check(algorithm: Linear, _: ReleasePlan) -> None:
    """Refuse tasks in which parties contribute nothing."""
    if degenerate := algorithm.model.loss.degenerate_reason:
        raise Declined(Reason.DEGENERATE, degenerate)
    relative = getattr(algorithm, "relative_tolerance", 0.0)
    if relative > MAX_TOLERANCE:
        raise Declined(
            Reason.DEGENERATE,
            f"Expected relative_tolerance <= {MAX_TOLERANCE:g}, got {relative:g}.",
        )


def _check_state(algorithm: Linear, state: State) -> None:
    """Refuse a model at which the plan's G does not hold: ridge's is proved for ‖θ‖ ≤ R."""
    radius, theta = algorithm.model.loss.theta_radius, state["theta"]
    # A projection ends within rounding of the ball. The plan's rounding margin covers that.
    allowed = radius * (1 + (theta.size + 8) * 2.0**-52)
    if not float(np.sqrt(np.vecdot(theta, theta))) <= allowed:
        raise Declined(Reason.SENSITIVITY, f"Expected ‖θ‖ <= {radius:g}, got a longer one.")


def _import_later(module: str, name: str) -> Callable[..., Any]:
    """Return a function of a module of this folder; the module is imported at the first call.

    `predict` needs none of them, nor does `plan` of another kind, and importing torch takes 1.4 s.
    """

    def called(*args: Any) -> Any:
        return getattr(import_module(f"{__package__}.{module}"), name)(*args)

    return called


def _build_codec(module: str) -> dict[str, Any]:
    """Return the three functions that each row has."""
    return {name: _import_later(module, name) for name in ("to_task", "from_task", "parse_size")}


def _build_network_spec(title: str, **other_fields: Any) -> AlgorithmSpec:
    """Build the row of an algorithm that trains a network."""
    codec = {**_build_codec("network_task"), "parse_size": parse_network_size}
    return AlgorithmSpec(
        title=title,
        **codec,
        check=_import_later("network_task", "check"),
        trains_network=True,
        **other_fields,
    )


def _to_counts_task(algorithm: HeldOutCounts) -> dict[str, Any]:
    return {
        "learner": describe_task(algorithm.learner),
        "settings": get_settings(algorithm, "learner"),
    }


def _from_counts_task(task: Mapping[str, Any], party: PartyResources) -> HeldOutCounts:
    learner = _get_learner_task(task)
    check_keys(task, "learner", "settings")
    built = ALGORITHMS[learner["kind"]].from_task(learner, party)
    return decode_dataclass(HeldOutCounts, task["settings"], learner=built)


def _parse_counts_size(task: Mapping[str, Any]) -> tuple[str, int]:
    learner = _get_learner_task(task)
    return ALGORITHMS[learner["kind"]].parse_size(learner)


def _get_learner_task(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the task of the learner: an algorithm with predictions that can be counted."""
    learner = task.get("learner")
    known = [
        name for name, row in ALGORITHMS.items() if not (row.before_rounds or row.after_rounds)
    ]
    if not isinstance(learner, Mapping) or learner.get("kind") not in known:
        raise DecodingError(f"Expected a learner of {', '.join(known)}, got another.")
    return learner


_CLIPPED = ", and a record's gradient is bounded by the loss or clipped"
_CERTIFIED = ", and every party certifies that its local optimum is one"

ALGORITHMS: dict[str, AlgorithmSpec] = {
    "gradient-perturbation": build_linear_spec(
        GradientPerturbation,
        title="gradient perturbation",
        bounded=_CLIPPED,
    ),
    "output-perturbation": build_linear_spec(
        OutputPerturbation,
        title="output perturbation",
        bounded=_CERTIFIED,
        remedy=("algorithm.kind=gradient-perturbation",),
        advice="{remedy} usually loses less at the same ε, where δ > 0 is acceptable",
    ),
    "objective-perturbation": build_linear_spec(
        ObjectivePerturbationOfParties,
        title="objective perturbation in the parties",
        bounded=", and every party certifies its perturbed optimum",
        remedy=("algorithm.kind=output-perturbation", "privacy.noise-point=share"),
        advice="Noise of every party by itself is √m times what a sum needs: {remedy} loses less",
    ),
    "pathak": build_linear_spec(
        PathakAveraging,
        title="output perturbation as of Pathak et al.",
        bounded=_CERTIFIED,
        remedy=("algorithm.kind=output-perturbation",),
        advice="This noise is m times what its ε needs: {remedy} has the part of it",
    ),
    "rajkumar-agarwal": build_linear_spec(
        RajkumarAgarwal,
        title="gradient perturbation as of Rajkumar & Agarwal",
        bounded=_CLIPPED,
        remedy=("algorithm.kind=gradient-perturbation",),
        advice="Every round is charged in full: {remedy} spreads its budget over all rounds",
    ),
    "fedavg": _build_network_spec(
        "federated averaging",
        remedy=("algorithm.kind=distributed-dp-sgd",),
        advice="Every party adds noise alone: {remedy} has one for the batches of all parties "
        "together",
    ),
    "distributed-dp-sgd": _build_network_spec("distributed DP-SGD", summed=True),
    "marginals": AlgorithmSpec(
        title="two-way marginals", **_build_codec("pair_tables"), summed=True
    ),
    "random-features": AlgorithmSpec(
        title="random features",
        **_build_codec("kernel_mean_embedding"),
        check=_import_later("kernel_mean_embedding", "check_waves"),
        summed=True,
    ),
    "query": AlgorithmSpec(
        title="queries",
        **_build_codec("query_release"),
        check=_import_later("query_release", "check_grid"),
        bind=_import_later("query_release", "bind_schema"),
        summed=True,
    ),
    "second-moments": AlgorithmSpec(
        title="second moments", **_build_codec("second_moments"), before_rounds=True
    ),
    "held-out-counts": AlgorithmSpec(
        title="counts of held-out records",
        to_task=_to_counts_task,
        from_task=_from_counts_task,
        parse_size=_parse_counts_size,
        after_rounds=True,
        summed=True,
    ),
}


def get_algorithm_spec(name: str) -> AlgorithmSpec:
    """Return the row of an algorithm; for a user-defined class, import it and build its row.

    Raises OwnAlgorithmError, KeyError.
    """
    return build_own_spec(name) if is_own_code(name) else ALGORITHMS[name]


def get_title(name: str) -> str:
    """Return an algorithm's title for display; a user-defined one's name, without importing it."""
    return ALGORITHMS[name].title if name in ALGORITHMS else get_public_name(name)


def needs_sum(algorithm: FederatedAlgorithm) -> bool:
    """Return whether its `update` takes the noisy sum, instead of the average over survivors."""
    row = ALGORITHMS.get(algorithm.kind)
    return row is not None and row.summed


def get_assumption(algorithm: FederatedAlgorithm) -> str:
    """Return what the claim assumes beyond its proof; for a user-defined one, that it is right."""
    return OWN_CLAIM if is_own_code(algorithm.kind) else algorithm.assumption


def list_release_assumptions(algorithm: FederatedAlgorithm, feature_map: str) -> tuple[str, ...]:
    """Return a release's assumptions: the algorithm's, and a user-defined feature map's; "" if
    none.
    """
    return get_assumption(algorithm), OWN_FEATURE_MAP if is_own_code(feature_map) else ""


def describe_task(algorithm: FederatedAlgorithm) -> dict[str, Any]:
    """Return the algorithm as plain JSON values."""
    kind = algorithm.kind
    to_task = describe_own_task if is_own_code(kind) else ALGORITHMS[kind].to_task
    return {"kind": kind, **to_task(algorithm)}


def decode_task(
    value: Any,
    *,
    device: str = "cpu",
    own_models: Mapping[str, str] = MappingProxyType({}),
    own_algorithms: Mapping[str, str] = MappingProxyType({}),
) -> FederatedAlgorithm:
    """Build the algorithm that `describe_task` described. Raises DecodingError.

    Args:
        own_models: user-defined models that the party allows: their names → their paths.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        raise DecodingError(
            f"Expected a task with a kind, got {format_received(value)} without one."
        )
    kind = value["kind"]
    if kind not in ALGORITHMS and kind not in own_algorithms:  # its name would import it
        known = ", ".join([*ALGORITHMS, *own_algorithms])
        raise DecodingError(f"Expected a task of {known}, got {format_received(kind)}.")
    row = get_algorithm_spec(own_algorithms.get(kind, kind))
    algorithm = row.from_task(value, PartyResources(device=device, own_models=own_models))
    return cast(FederatedAlgorithm, algorithm)
