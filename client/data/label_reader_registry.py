"""Registry of the ways to read labels: one row of text for each kind of linear model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parley.module_loading.plugin_table import PluginTable

LABEL_READERS = PluginTable[Callable[..., Any]](
    {
        "logistic": "parley.client.data.cell_parsing:encode_binary_labels",
        "softmax": "parley.client.data.cell_parsing:encode_class_labels",
        "ridge": "parley.client.data.cell_parsing:encode_targets",
    }
)
"""Label reader of each kind of model."""
