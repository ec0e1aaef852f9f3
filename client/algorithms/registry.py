"""Registry of algorithms by name, and questions that are answered by an algorithm's row.

A user-defined algorithm has no row: it is a class in the user's own file
(`parley.client.algorithms.own_algorithm`), and `get_algorithm_spec` builds its row.
"""

from __future__ import annotations

from typing import Any, cast

from parley.client.algorithms.algorithm_spec import AlgorithmSpec
from parley.client.algorithms.base import FederatedAlgorithm
from parley.client.contract.assumptions import OWN_CLAIM, OWN_FEATURE_MAP
from parley.client.own_code.own_code_names import get_public_name, is_own_code
from parley.module_loading.plugin_table import PluginTable, load_attribute

ALGORITHMS = PluginTable[AlgorithmSpec](
    {
        "gradient-perturbation": "parley.client.algorithms.gradient_perturbation:SPEC",
        "output-perturbation": "parley.client.algorithms.output_perturbation:SPEC",
        "objective-perturbation": "parley.client.algorithms.objective_perturbation:SPEC",
        "pathak": "parley.client.algorithms.output_perturbation:PATHAK_SPEC",
        "rajkumar-agarwal": "parley.client.algorithms.rajkumar_agarwal:SPEC",
        "fedavg": "parley.client.algorithms.network_algorithm_specs:FEDAVG_SPEC",
        "distributed-dp-sgd": "parley.client.algorithms.network_algorithm_specs:DP_SGD_SPEC",
        "marginals": "parley.client.algorithms.pair_tables:SPEC",
        "random-features": "parley.client.algorithms.kernel_mean_embedding:SPEC",
        "query": "parley.client.algorithms.query_release:SPEC",
        "second-moments": "parley.client.algorithms.second_moments:SPEC",
        "flower": "parley.client.algorithms.flower.flower_averaging:SPEC",
        "held-out-counts": "parley.client.algorithms.held_out_histogram:SPEC",
    }
)
"""Row of each algorithm, by its name."""

_OWN_ALGORITHM = "parley.client.algorithms.own_algorithm"


def get_algorithm_spec(name: str) -> AlgorithmSpec:
    """Return the row of an algorithm; for a user-defined class, import it and build its row.

    Raises OwnAlgorithmError, KeyError.
    """
    if not is_own_code(name):
        return ALGORITHMS[name]
    spec: AlgorithmSpec = load_attribute(f"{_OWN_ALGORITHM}:build_own_spec")(name)
    return spec


def has_class_settings(name: str) -> bool:
    """Return whether an algorithm's settings are the fields of its class, such as your own's."""
    return is_own_code(name) or (name in ALGORITHMS and ALGORITHMS[name].build is not None)


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


def get_learner(algorithm: FederatedAlgorithm) -> FederatedAlgorithm:
    """Return the algorithm that learned the measured model; the algorithm itself if it learns."""
    row, counted = ALGORITHMS.get(algorithm.kind), cast(Any, algorithm)
    return cast(FederatedAlgorithm, counted.learner) if row and row.after_rounds else algorithm
