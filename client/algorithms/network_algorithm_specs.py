"""Rows of the algorithms that train networks. Only what needs torch is imported late.

A job's check, `predict` and a task's size need the rows, and not the 1.4 s that torch takes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from parley.client.algorithms.algorithm_spec import AlgorithmSpec, parse_network_size
from parley.module_loading.plugin_table import load_attribute

_CODEC = "parley.client.algorithms.network_task_codec"


def _call(function: str, *arguments: Any) -> Any:
    return load_attribute(f"{_CODEC}:{function}")(*arguments)


def _build_network_spec(title: str, **other_fields: Any) -> AlgorithmSpec:
    """Build the row of an algorithm that trains a network."""
    return AlgorithmSpec(
        title=title,
        to_task=partial(_call, "to_task"),
        from_task=partial(_call, "from_task"),
        parse_size=parse_network_size,
        check=partial(_call, "check"),
        trains_network=True,
        **other_fields,
    )


FEDAVG_SPEC = _build_network_spec(
    "federated averaging",
    remedy=("algorithm.kind=distributed-dp-sgd",),
    advice="Each party adds its own noise: {remedy} adds one noise to the sum over all parties",
)

DP_SGD_SPEC = _build_network_spec("distributed DP-SGD", summed=True)
