"""Run one of the engines that `peers.py` compares, and print the seconds of every round as JSON.

    python -P benchmarks/peer_engines.py NAME PARTIES RECORDS FEATURES ROUNDS COHORT

`peers.py` describes each of them.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np


def make_data(parties: int, records: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `[m, n, d]` rows of norm 1 and `[m, n]` labels −1/+1, the same in every process."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(parties, records, features))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    y = np.where(x @ rng.normal(size=features) + rng.normal(size=(parties, records)) > 0, 1.0, -1.0)
    return x, y


def round_times(marks: list[float]) -> list[float]:
    """Return the seconds of each round, without the first."""
    return [later - earlier for earlier, later in pairwise(marks[1:])]


def run_ours(parties: int, records: int, features: int, rounds: int, cohort: int) -> dict[str, Any]:
    """Run the gradients of all parties, their mean and the step, without noise and encoding."""
    from parley.client.data.party_block import PartyBlock
    from parley.client.models.integer_gradients import compute_gradients
    from parley.client.models.linear_models import LinearModel
    from parley.client.models.logistic_loss import LogisticLoss
    from parley.client.models.row_quantization import prepare_rows

    if cohort:
        raise SystemExit("Expected everyone in a round of the arithmetic alone, got a cohort.")
    x, y = make_data(parties, records, features)
    block = PartyBlock(
        features=prepare_rows(x.reshape(-1, features), intercept=False),
        labels=y.ravel(),
        offsets=np.arange(parties + 1) * records,
    )
    model, theta, marks = (
        LinearModel(loss=LogisticLoss(), features=features),
        np.zeros(features),
        [],
    )
    marks.append(time.perf_counter())
    norm = 0.0
    for step in range(rounds + 30):  # each takes milliseconds, so run more for a steady median
        theta = theta - 4 * compute_gradients(model, theta, block).mean(axis=0)
        marks.append(time.perf_counter())
        norm = float(np.linalg.norm(theta)) if step == rounds else norm
    return {"seconds": round_times(marks), "theta_norm": norm}


_BINARY = "positive = [1], negative = [-1]"


class Clock:
    """An observer of the engine that records when each round was committed."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def started(self, *facts: Any) -> None:
        """Record the start of the rounds."""
        self.marks.append(time.perf_counter())

    def round_done(self, line: Any) -> None:
        """Record that a round is committed and logged."""
        self.marks.append(time.perf_counter())


def run_engine(
    parties: int, records: int, features: int, rounds: int, cohort: int
) -> dict[str, Any]:
    """Run the fast engine's whole round: the peers' work, plus encoding, noise, ledger and log
    line.
    """
    from parley.server.jobs.job_file import load_job
    from parley.simulations.engine.fast_engine import simulate

    x, y = make_data(parties, records, features)
    np.savez("data.npz", x=x.reshape(-1, features), y=y.ravel())
    Path("schema.toml").write_text(
        f'[columns]\nx = {{ kind = "array", shape = [{features}], range = [-1, 1] }}\n'
        + ('y = { kind = "label", %s }\n' % ("classes = [-1, 1]" if cohort else _BINARY))
    )
    sampled = (
        *("algorithm.kind=fedavg", "model.kind=mlp", "model.hidden=[]", "dp-sgd.local-steps=1"),
        *(
            "dp-sgd.sampling-rate=1.0",
            "privacy.unit=party",
            f"parties.per-round={cohort / parties}",
        ),
        *("privacy.neighbouring=add-or-remove-one", "parties.min-records=1"),
        *("run.evaluate-every=0", "dp-sgd.precision=float64"),
    )
    everyone = ("model.intercept=false", "algorithm.learning-rate=4")
    job = load_job(
        overrides=[
            *(f"parties.count={parties}", "data.source=data.npz", "data.schema=schema.toml"),
            *("data.test-fraction=0", *(sampled if cohort else everyone), "privacy.delta=1e-6"),
            *(f"algorithm.rounds={rounds + 60}", "secure-aggregation.masked-check=false"),
        ]
    )
    clock = Clock()
    result = simulate(job, out=Path("run"), observer=clock)
    norm = float(np.linalg.norm(result.theta))
    return {"seconds": round_times(clock.marks), "theta_norm": norm}


def run_flower(
    parties: int, records: int, features: int, rounds: int, cohort: int
) -> dict[str, Any]:
    """Run Flower's Ray backend, with one CPU per actor."""
    from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation

    client, server, result = ClientApp(), ServerApp(), {}
    # Every message carries the app as a pickle, so it has no state: a party maps its slice.
    paths = [str(Path(name).resolve()) for name in ("features.npy", "labels.npy")]
    for path, part in zip(paths, make_data(parties, records, features), strict=True):
        np.save(path, part)

    @client.train()
    def train(message: Message, context: Context) -> Message:
        party = int(context.node_config["partition-id"])
        x, y = (np.load(path, mmap_mode="r")[party] for path in paths)
        theta = message.content["model"]["theta"].numpy()
        gradient = x.T @ (-y / (1 + np.exp(y * (x @ theta)))) / len(y)
        record = ArrayRecord({"gradient": Array(gradient)})
        return Message(RecordDict({"update": record}), reply_to=message)

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        theta = np.zeros(features)
        while len(nodes := list(grid.get_node_ids())) < parties:
            time.sleep(0.1)
        marks, rng = [time.perf_counter()], np.random.default_rng(0)
        for step in range(rounds + 1):
            drawn = rng.choice(len(nodes), cohort, replace=False) if cohort else range(len(nodes))
            chosen = [nodes[at] for at in drawn]
            content = RecordDict({"model": ArrayRecord({"theta": Array(theta)})})
            asked = [Message(content, node, "train", group_id=str(step)) for node in chosen]
            replies = list(grid.send_and_receive(asked))
            gradients = [reply.content["update"]["gradient"].numpy() for reply in replies]
            if len(gradients) != len(chosen):
                raise RuntimeError(f"Expected {len(chosen)} replies, got {len(gradients)}.")
            theta = theta - 4 * np.mean(gradients, axis=0)
            marks.append(time.perf_counter())
        result.update(seconds=round_times(marks), theta_norm=float(np.linalg.norm(theta)))

    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=parties,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    return result


def run_flower_engine(
    parties: int, records: int, features: int, rounds: int, cohort: int
) -> dict[str, Any]:
    """Run Flower's deprecated `start_simulation`, without messages; clients are created when
    sampled.
    """
    import flwr
    from flwr.server.strategy import FedAvg
    from flwr.simulation import start_simulation

    paths = [str(Path(name).resolve()) for name in ("features.npy", "labels.npy")]
    for path, part in zip(paths, make_data(parties, records, features), strict=True):
        np.save(path, part)

    class Party(flwr.client.NumPyClient):
        def __init__(self, at: int) -> None:
            self.x, self.y = (np.load(path, mmap_mode="r")[at] for path in paths)

        def fit(self, parameters: Any, config: Any) -> tuple[list[np.ndarray], int, dict[str, Any]]:
            (theta,) = parameters
            slopes = -self.y / (1 + np.exp(self.y * (self.x @ theta)))
            return [theta - 4 * self.x.T @ slopes / len(self.y)], len(self.y), {}

    marks, norms = [time.perf_counter()], []

    class Strategy(FedAvg):
        def aggregate_fit(self, number: int, results: Any, failures: Any) -> Any:
            if len(results) != (cohort or parties):
                raise RuntimeError(f"Expected {cohort or parties} replies, got {len(results)}.")
            after = super().aggregate_fit(number, results, failures)
            norms.append(np.linalg.norm(flwr.common.parameters_to_ndarrays(after[0])[0]))
            marks.append(time.perf_counter())
            return after

    start_simulation(
        client_fn=lambda context: Party(int(context.node_config["partition-id"])).to_client(),
        num_clients=parties,
        config=flwr.server.ServerConfig(num_rounds=rounds + 1),
        strategy=Strategy(
            fraction_fit=(cohort or parties) / parties,
            fraction_evaluate=0.0,
            min_fit_clients=cohort or parties,
            min_available_clients=parties,
            initial_parameters=flwr.common.ndarrays_to_parameters([np.zeros(features)]),
        ),
        client_resources={"num_cpus": 1, "num_gpus": 0.0},
        ray_init_args={"include_dashboard": False, "log_to_driver": False},
    )
    return {"seconds": round_times(marks), "theta_norm": float(norms[-1])}


def run_pfl(parties: int, records: int, features: int, rounds: int, cohort: int) -> dict[str, Any]:
    """Run Apple's pfl: federated averaging of one local step, in process, without evaluation."""
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.internal.ops import pytorch_ops
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class Logistic(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.theta = torch.nn.Parameter(torch.zeros(features, dtype=torch.float64))

        def loss(self, x: torch.Tensor, y: torch.Tensor, **_: object) -> torch.Tensor:
            return torch.nn.functional.softplus(-y * (x @ self.theta)).mean()

        def metrics(self, x: torch.Tensor, y: torch.Tensor, **_: object) -> dict[str, Any]:
            return {}

    class Clock(TrainingProcessCallback):
        def __init__(self) -> None:
            self.marks = [time.perf_counter()]

        def after_central_iteration(
            self, aggregate_metrics: Metrics, model: object, *, central_iteration: int
        ) -> tuple[bool, Metrics]:
            self.marks.append(time.perf_counter())
            return False, Metrics()

    pytorch_ops.get_default_device = lambda: torch.device("cpu")
    x, y = make_data(parties, records, features)
    tensors = [[torch.tensor(own), torch.tensor(labels)] for own, labels in zip(x, y, strict=True)]
    users = list(range(parties))
    data = FederatedDataset(
        lambda user: Dataset(tensors[user], user_id=str(user)),
        get_user_sampler("minimize_reuse", users),
    )
    module, clock = Logistic(), Clock()
    model = PyTorchModel(
        model=module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds + 1,
            evaluation_frequency=10**9,
            train_cohort_size=cohort or parties,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=4.0, local_batch_size=None
        ),
        model_eval_params=None,
        callbacks=[clock],
    )
    norm = float(np.linalg.norm(module.theta.detach().numpy()))
    return {"seconds": round_times(clock.marks), "theta_norm": norm}


RUNNERS = {
    "engine": run_engine,
    "ours": run_ours,
    "flower": run_flower,
    "flower-engine": run_flower_engine,
    "pfl": run_pfl,
}


if __name__ == "__main__":
    print(json.dumps(RUNNERS[sys.argv[1]](*map(int, sys.argv[2:]))), flush=True)
