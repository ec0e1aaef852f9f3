"""A Flower app as `flwr new` writes it for PyTorch. Nothing in this file knows of Parley.

    parley run --model examples/flower_app.py:app --algorithm flower --unit party \\
        --parties 200 --epsilon 8

`docs/flower.md` explains what Parley does with it.
"""

import functools

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.datasets import load_digits
from torch import nn


class Net(nn.Module):
    """Multinomial logistic regression of 8 × 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `[B, 10]` scores."""
        return self.layer(x)


load_digits_once = functools.cache(load_digits)  # once per process, as stock apps load theirs


def load_data(context: Context) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this party's images and digits: its own file, or its part of a bundled set."""
    node = context.node_config
    if "data-path" in node:
        with np.load(str(node["data-path"])) as file:
            images, labels = file["images"], file["labels"]
    else:
        images, labels = load_digits_once(return_X_y=True)
        own = slice(int(node["partition-id"]), 1500, int(node["num-partitions"]))
        images, labels = images[own], labels[own]
    return torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels, dtype=torch.int64)


app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    images, labels = load_data(context)
    epochs = int(context.run_config.get("local-epochs", 5))
    rate = float(msg.content["config"].get("lr", 0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    loss = torch.zeros(())
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    metrics = MetricRecord({"train_loss": loss.item(), "num-examples": len(labels)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model on local data. Parley does not call it."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    images, labels = load_data(context)
    correct = (model(images).argmax(1) == labels).float().mean().item()
    metrics = MetricRecord({"eval_acc": correct, "num-examples": len(labels)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)
