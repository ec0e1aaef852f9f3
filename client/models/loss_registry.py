"""Registry of the losses of linear models: one row of text for each."""

from __future__ import annotations

from parley.client.models.loss_base import Loss
from parley.module_loading.plugin_table import PluginTable

LOSSES = PluginTable[type[Loss]](
    {
        "logistic": "parley.client.models.logistic_loss:LogisticLoss",
        "softmax": "parley.client.models.softmax_loss:SoftmaxLoss",
        "ridge": "parley.client.models.squared_loss:SquaredLoss",
        "huber-svm": "parley.client.models.huber_svm:HuberSVM",
        "own-loss": "parley.client.models.tabulated_losses:TabledSignLoss",
        "own-residual-loss": "parley.client.models.tabulated_losses:TabledResidualLoss",
    }
)
"""Loss by its name in a task, a model file and a policy."""
