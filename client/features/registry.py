"""Registry of feature maps: one row of text for each. All of them depend on no data."""

from __future__ import annotations

from typing import Any

from parley.safe_io.plugin_table import PluginTable

FEATURES = PluginTable[type[Any]](
    {
        "scattering": "parley.client.features.image_scattering:ScatteringFeatures",
        "random-fourier": "parley.client.features.random_fourier:RandomFourier",
        "bins": "parley.client.features.binned_columns:Bins",
        "hats": "parley.client.features.binned_columns:LinearSplines",
        "codes": "parley.client.features.binned_columns:RecordCodes",
    }
)
"""Subclass of `FeatureMap` by its name."""
