"""A network of your own. Train it: parley run job.toml --model model.py:network"""

from torch import nn


def network(features: int, classes: int) -> nn.Module:
    """Return a network that turns a record's features into one score per class.

    It must treat each record by itself, so use no BatchNorm (docs/own-network.md has all rules).
    """
    return nn.Sequential(nn.Linear(features, 32), nn.Tanh(), nn.Linear(32, classes))
