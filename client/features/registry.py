"""Registry of feature maps: one row of text for each. All of them depend on no data."""

from __future__ import annotations

from typing import Any

from parley.module_loading.plugin_table import PluginTable

FEATURES = PluginTable[type[Any]](
    {
        "scattering": "parley.client.features.image_scattering:ScatteringFeatures",
        "random-fourier": "parley.client.features.random_fourier:RandomFourier",
        "bins": "parley.client.features.bins_and_splines:Bins",
        "hats": "parley.client.features.bins_and_splines:LinearSplines",
        "codes": "parley.client.features.bins_and_splines:RecordCodes",
    }
)
"""Subclass of `FeatureMap` by its name."""
