"""Every algorithm by its name, and the task: what a party computes, in plain values that travel.

`describe_task(algorithm)` says everything that `local` depends on; `task_from` builds the algorithm
again on the party's side, from values alone: a server can name an algorithm or a model, it cannot
send code. One's own algorithm is a class in one's own file (`parley.client.algorithms.own`): job
and `party.toml` name it as `file.py:Class`.

    >>> from parley.client.algorithms.gradient_perturbation import GradientPerturbation
    >>> from parley.client.models.linear import LinearModel
    >>> from parley.client.models.losses import Logistic
    >>> algorithm = GradientPerturbation(
    ...     model=LinearModel(loss=Logistic(), features=3), lambda_=0.01, lipschitz=1.0,
    ...     weights="uniform", rounds=10, learning_rate=0.5, momentum=0.0, average=True,
    ... )
    >>> task_from(describe_task(algorithm)) == algorithm
    True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any, cast

from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.algorithms.gradient_perturbation import GradientPerturbation
from parley.client.algorithms.held_out_counts import HeldOutCounts
from parley.client.algorithms.kind import Kind, Party
from parley.client.algorithms.linear import LinearTask
from parley.client.algorithms.network_task import NetworkTask, averaging, distributed
from parley.client.algorithms.objective_perturbation import ObjectivePerturbationOfParties
from parley.client.algorithms.output_perturbation import OutputPerturbation
from parley.client.algorithms.own import is_own, own_kind, own_task
from parley.client.algorithms.pathak import PathakAveraging
from parley.client.algorithms.rajkumar_agarwal import RajkumarAgarwal
from parley.client.contract.decoding import DecodingError, as_came, facts_from
from parley.client.contract.model_names import public_name


def _marginals() -> ModuleType:
    from parley.client.algorithms import pair_tables  # noqa: PLC0415 - start-up: `predict` needs none of it, nor `plan` of another kind (.06 to .1 s)

    return pair_tables


def _random_features() -> ModuleType:
    from parley.client.algorithms import random_features  # noqa: PLC0415 - start-up: `predict` needs none of it, nor `plan` of another kind (.06 to .1 s)

    return random_features


def _queries() -> ModuleType:
    from parley.client.algorithms import queries  # noqa: PLC0415 - start-up: `predict` needs none of it, nor `plan` of another kind (.06 to .1 s)

    return queries


def _second_moments() -> ModuleType:
    from parley.client.algorithms import second_moments  # noqa: PLC0415 - start-up: `predict` needs none of it, nor `plan` of another kind (.06 to .1 s)

    return second_moments


def _later(load: Callable[[], ModuleType], name: str) -> Callable[..., Any]:
    """A function of a module that is imported when it is called."""

    def called(*args: Any) -> Any:
        return getattr(load(), name)(*args)

    return called


def _codec(load: Callable[[], ModuleType]) -> dict[str, Any]:
    """The three that every row has."""
    return {name: _later(load, name) for name in ("to_task", "of_task", "size")}


def _counts_task(algorithm: HeldOutCounts) -> dict[str, Any]:
    """The learner's own task, and how its answers are counted."""
    settings = {"by_class": algorithm.by_class, "neighbouring": str(algorithm.neighbouring)}
    return {"learner": describe_task(algorithm.learner), "settings": settings}


def _counts_of(task: Mapping[str, Any], party: Party) -> HeldOutCounts:
    """The inverse; raises DecodingError."""
    learner = _learner(task)
    if set(task) != {"kind", "learner", "settings"}:
        raise DecodingError("Expected learner and settings in a task of counts, got others.")
    built = ALGORITHMS[learner["kind"]].of_task(learner, party)
    return facts_from(HeldOutCounts, task["settings"], learner=built)


def _counts_size(task: Mapping[str, Any]) -> tuple[str, int]:
    """The learner's."""
    learner = _learner(task)
    return ALGORITHMS[learner["kind"]].size(learner)


def _learner(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """The task that a model is learned by: one of those whose answers can be counted."""
    learner = task.get("learner")
    known = [name for name, row in ALGORITHMS.items() if not (row.ahead or row.after)]
    if not isinstance(learner, Mapping) or learner.get("kind") not in known:
        raise DecodingError(f"Expected a learner of {', '.join(known)}, got another.")
    return learner


ALGORITHMS: dict[str, Kind] = {
    "gradient-perturbation": LinearTask(GradientPerturbation).kind("gradient perturbation"),
    "output-perturbation": LinearTask(OutputPerturbation).kind("output perturbation"),
    "objective-perturbation": LinearTask(ObjectivePerturbationOfParties).kind(
        "objective perturbation in the parties"
    ),
    "pathak": LinearTask(PathakAveraging).kind("output perturbation as of Pathak et al."),
    "rajkumar-agarwal": LinearTask(RajkumarAgarwal).kind(
        "gradient perturbation as of Rajkumar & Agarwal"
    ),
    "fedavg": NetworkTask(averaging).kind("federated averaging"),
    "distributed-dp-sgd": NetworkTask(distributed).kind("distributed DP-SGD", summed=True),
    "marginals": Kind(
        title="two-way marginals",
        **_codec(_marginals),
        summed=True,
    ),
    "random-features": Kind(
        title="random features",
        **_codec(_random_features),
        check=_later(_random_features, "check_waves"),
        summed=True,
    ),
    "query": Kind(
        title="queries",
        **_codec(_queries),
        check=_later(_queries, "check_grid"),
        bind=_later(_queries, "bound_to"),
        summed=True,
    ),
    "second-moments": Kind(
        title="second moments",
        **_codec(_second_moments),
        ahead=True,
    ),
    "held-out-counts": Kind(
        title="counts of right answers",
        to_task=_counts_task,
        of_task=_counts_of,
        size=_counts_size,
        after=True,
        summed=True,
    ),
}


def kind_of(name: str) -> Kind:
    """The row of an algorithm, or one made of your own class, which this imports.

    Raises:
        OwnAlgorithmError: a file or class that is not there, or is no algorithm.
        KeyError: neither.
    """
    return own_kind(name) if is_own(name) else ALGORITHMS[name]


def title_of(name: str) -> str:
    """What an algorithm is called, to be shown: one's own by its name, and nothing is imported."""
    return ALGORITHMS[name].title if name in ALGORITHMS else public_name(name)


def takes_sum(algorithm: FederatedAlgorithm) -> bool:
    """Whether its `update` takes the noisy sum, instead of the average over survivors."""
    row = ALGORITHMS.get(algorithm.kind)
    return row is not None and row.summed


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
    """The algorithm that `describe_task` described.

    Args:
        value: what came.
        device: where networks train on this machine.
        own_models: models of the party's own code that it allows: their names → where they are.
        own_algorithms: likewise algorithms.

    Raises:
        DecodingError: not such a description, or values that the algorithm refuses.
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
