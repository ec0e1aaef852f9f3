"""Registries of the forms of `[model]` and `[algorithm]`: one row of text for each kind.

A job file is checked by the forms that it names; the others are imported only if it has a key that
those do not have.
"""

from __future__ import annotations

from typing import Any

from parley.module_loading.plugin_table import PluginTable

MODELS = PluginTable[type[Any]](
    {
        "mlp": "parley.server.jobs.network_models:MlpSection",
        "pca-mlp": "parley.server.jobs.network_models:PcaMlpSection",
        "cnn": "parley.server.jobs.network_models:CnnSection",
        "module:function": "parley.server.jobs.network_models:OwnNetworkSection",
        "none": "parley.server.jobs.no_model_sections:NoModelSection",
        "table": "parley.server.jobs.no_model_sections:TableModelSection",
        "logistic": "parley.server.jobs.linear_models:LogisticSection",
        "softmax": "parley.server.jobs.linear_models:SoftmaxSection",
        "ridge": "parley.server.jobs.linear_models:RidgeSection",
        "huber-svm": "parley.server.jobs.linear_models:HuberSvmSection",
        "own-loss": "parley.server.jobs.own_loss_models:OwnLossSection",
        "own-residual-loss": "parley.server.jobs.own_loss_models:OwnResidualLossSection",
    }
)
"""`model.kind` → its form, a `ModelSection`; keys are printed in this order."""

ALGORITHM_SECTIONS = PluginTable[type[Any]](
    {
        "file.py:Class": "parley.server.jobs.own_algorithm_section:OwnAlgorithmSection",
        "flower": "parley.server.jobs.flower_section:FlowerSection",
        "gradient-perturbation": "parley.server.jobs.gradient_perturbation_section:GradientPerturbationSection",  # noqa: E501 - a row is one line
        "fedavg": "parley.server.jobs.network_algorithms:FederatedAveragingSection",
        "distributed-dp-sgd": "parley.server.jobs.network_algorithms:DistributedDpSgdSection",
        "output-perturbation": "parley.server.jobs.optimum_algorithms:OutputPerturbationSection",
        "objective-perturbation": "parley.server.jobs.optimum_algorithms:ObjectivePerturbationSection",  # noqa: E501 - a row is one line
        "pathak": "parley.server.jobs.optimum_algorithms:PathakSection",
        "rajkumar-agarwal": "parley.server.jobs.rajkumar_agarwal_section:RajkumarAgarwalSection",
        "marginals": "parley.server.jobs.synthetic_algorithms:MarginalsSection",
        "random-features": "parley.server.jobs.synthetic_algorithms:RandomFeaturesSection",
    }
)
"""`algorithm.kind` → its form, an `AlgorithmSection`; keys are printed in this order."""


def list_model_kinds(learned: str) -> tuple[str, ...]:
    """Return the kinds of `[model]` with this `learns`. This imports all forms."""
    return tuple(kind for kind, form in MODELS.items() if form.learns == learned)
