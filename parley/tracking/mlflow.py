"""Report a run to MLflow, with its client and the tracking server at the given URI."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# An unreachable server must not delay a run. The client reads these when it is imported.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
os.environ.setdefault("MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT", "30")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

_EXPERIMENT = "parley"
_MAX_VALUE_LENGTH = 6000
_MAX_BATCH = 100
"""Maximum parameters in one MLflow request."""


class MlflowTracker:
    """A run in the experiment `parley` of a tracking server."""

    def __init__(self, uri: str) -> None:
        self._client: Any = MlflowClient(tracking_uri=uri)
        self._run = ""

    def begin(self, name: str, parameters: Mapping[str, str]) -> None:
        """Create the run."""
        known = self._client.get_experiment_by_name(_EXPERIMENT)
        experiment = known.experiment_id if known else self._client.create_experiment(_EXPERIMENT)
        self._run = self._client.create_run(experiment, run_name=name).info.run_id
        params = [Param(key, value[:_MAX_VALUE_LENGTH]) for key, value in parameters.items()]
        for at in range(0, len(params), _MAX_BATCH):
            self._client.log_batch(self._run, params=params[at : at + _MAX_BATCH])

    def log_metrics(self, values: Mapping[str, float], *, step: int) -> None:
        """Log the metrics of a round."""
        self._client.log_batch(
            self._run, metrics=[Metric(name, value, 0, step) for name, value in values.items()]
        )

    def end(self, status: str, artefacts: Sequence[Path]) -> None:
        """Upload the artefacts and log how the run ended."""
        self._client.set_tag(self._run, "parley.status", status)
        for path in artefacts:
            self._client.log_artifact(self._run, str(path))
        self._client.set_terminated(self._run, "FINISHED" if status == "complete" else "FAILED")
