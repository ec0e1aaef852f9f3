"""The server of Flower's SecAgg+ as shipped, its rounds and stages timed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import ServerApp

app = ServerApp()


class Timed(SecAggPlusWorkflow):
    """The workflow, which notes seconds of every round and of its stages."""

    def __call__(self, grid: Any, context: Any) -> None:
        """Runs a round."""
        self.rounds = getattr(self, "rounds", [])
        began, self.stages = time.perf_counter(), []
        super().__call__(grid, context)
        self.rounds.append((time.perf_counter() - began, self.stages))


def timed(stage: Callable[..., bool]) -> Callable[..., bool]:
    def run(self: Timed, *arguments: Any) -> bool:
        began = time.perf_counter()
        done = stage(self, *arguments)
        self.stages.append(time.perf_counter() - began)
        return done

    return run


for name in ("setup", "share_keys", "collect_masked_vectors", "unmask"):
    setattr(Timed, f"{name}_stage", timed(getattr(SecAggPlusWorkflow, f"{name}_stage")))


@app.main()
def main(grid: Any, context: Any) -> None:
    config = context.run_config
    parties, marks = config["parties"], Path(config["marks"])
    while len(list(grid.get_node_ids())) < parties:
        time.sleep(0.2)
    strategy = FedAvg(
        fraction_fit=1.0,
        fraction_evaluate=0.0,
        min_fit_clients=parties,
        min_available_clients=parties,
        initial_parameters=ndarrays_to_parameters([np.zeros(config["dimension"], np.float32)]),
    )
    workflow = Timed(num_shares=parties, reconstruction_threshold=config["threshold"])
    rounds = ServerConfig(num_rounds=config["rounds"])
    marks.with_suffix(".json.began").write_text("")
    DefaultWorkflow(fit_workflow=workflow)(
        grid, LegacyContext(context, config=rounds, strategy=strategy)
    )
    marks.write_text(json.dumps(workflow.rounds))
