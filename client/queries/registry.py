"""Registry of queries: one row of text for each."""

from __future__ import annotations

from typing import Any

from parley.module_loading.plugin_table import PluginTable

QUERIES = PluginTable[type[Any]](
    {
        "count": "parley.client.queries.count_queries:Count",
        "histogram": "parley.client.queries.count_queries:Histogram",
        "sum": "parley.client.queries.sum_queries:ColumnSum",
        "mean": "parley.client.queries.moments:Mean",
        "variance": "parley.client.queries.moments:Variance",
        "quantiles": "parley.client.queries.quantiles:Quantiles",
        "marginals": "parley.client.queries.count_queries:MarginalsQuery",
        "choose": "parley.client.queries.mode_query:Mode",
        "choose-best": "parley.client.queries.selection_queries:ChooseBest",
        "response": "parley.client.queries.randomised_response:ResponseQuery",
        "kmeans-grid": "parley.client.queries.kmeans:KMeansGrid",
        "kmeans-step": "parley.client.queries.kmeans:KMeansStep",
        "balance": "parley.client.queries.sum_queries:Balance",
        "survival": "parley.client.queries.survival:Survival",
        "regression": "parley.client.queries.regression.regression_query:RegressionQuery",
        "correlations": "parley.client.queries.correlations:CorrelationsQuery",
    }
)
"""Subclass of `Query` by its name."""
