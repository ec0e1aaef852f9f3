"""Forms of `[model]` for algorithms that release statistics and learn no model."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from parley.server.jobs.model_base import ModelSection


class NoModelSection(ModelSection):
    """No model is learned."""

    title: ClassVar[str] = "statistic"
    learns: ClassVar[Literal["linear", "network", "nothing"]] = "nothing"
    measured: ClassVar[bool] = False


class TableModelSection(NoModelSection):
    """The table itself: every column as a code of the public schema."""

    title: ClassVar[str] = "generator of synthetic records"

    @property
    def feature_map(self) -> dict[str, Any]:
        """The map to codes."""
        return {"name": "codes", "settings": {}}
