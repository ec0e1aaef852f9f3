"""Networks that parties train together: built-in ones, a user's own, and what is refused.

A network maps `[b, p]` rows to `[b, K]` class scores. Its trainable parameters travel as one flat
vector, `[d]`, in the order of `parameters()`; those that are frozen (`requires_grad_(False)`, a
backbone that was trained on public data) stay as they were built, to the bit, at every party.

| kind | |
|---|---|
| mlp | p → hidden units (ReLU) → K, for tables; rows are scaled by √p, a public factor |
| pca-mlp | the same on the leading principal components (Abadi et al. 2016: 60, and 1000 units) |
| cnn | two convolutions and two linear layers, about 26,000 parameters, for square images |
| module:function, file.py:function | `function(features, classes)` gives a `torch.nn.Module` |

    >>> network = Network.build("mlp", features=4, classes=3, hidden=(8,))
    >>> network.dimension, network.start().shape
    (67, (67,))
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from parley.client.contract.plain_names import own_file_digest
from parley.client.models.layers import BUILT_IN, NetworkError, check_layers, check_still
from parley.client.models.losses import softmax
from parley.client.models.own_code import OwnCodeError, function_named
from parley.client.models.record_losses import CROSS_ENTROPY, RecordLosses, draws_of, own_losses
from parley.client.models.start_pages import let_go_of_start_pages

DTYPES = {"float32": torch.float32, "float64": torch.float64}

_begin = functools.cache(let_go_of_start_pages)  # once: torch has started


def own_function(kind: str) -> Callable[..., Any]:
    """What 'module:function' or 'file.py:function' names: its code is run. Raises NetworkError."""
    try:
        return function_named(kind)
    except OwnCodeError as error:
        raise NetworkError(str(error)) from error


def _own(kind: str, features: int, classes: int) -> nn.Module:
    build = own_function(kind)
    try:
        made = build(features, classes)
    except Exception as error:
        raise NetworkError(
            f"{kind}({features}, {classes}) raised {type(error).__name__}: {error}."
        ) from error
    if not isinstance(made, nn.Module):
        raise NetworkError(f"Expected {kind} to give a torch.nn.Module, got {type(made).__name__}.")
    return made


def _losses(weights: Sequence[float], classes: int) -> RecordLosses:
    try:
        return RecordLosses.of_classes(weights, classes)
    except ValueError as error:
        raise NetworkError(str(error)) from error


def _flat(module: nn.Module) -> NDArray[np.float64]:
    flat = nn.utils.parameters_to_vector(p for p in module.parameters() if p.requires_grad)
    return np.asarray(flat.detach().cpu().numpy().astype(np.float64))


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network with flat parameters.

    Attributes:
        module: the torch module; `use` overwrites its parameters.
        initial: `[d]` the trainable parameters that it was built with, public.
        losses: what it is trained by, with public weights of the classes.
    """

    kind: str
    features: int
    classes: int
    module: nn.Module
    device: torch.device
    initial: NDArray[np.float64] = field(compare=False, repr=False)
    hidden: tuple[int, ...] = ()
    digest: str | None = field(default=None, compare=False)
    losses: RecordLosses = CROSS_ENTROPY

    metric_name = "accuracy"
    in_threads: ClassVar[bool] = False  # its module holds the θ that it computes at

    @classmethod
    def build(
        cls,
        kind: str,
        *,
        features: int,
        classes: int,
        hidden: Sequence[int] = (),
        class_weights: Sequence[float] = (),
        precision: Literal["float32", "float64"] = "float32",
        device: str = "cpu",
        seed: int = 0,
    ) -> Network:
        """A built-in network or a user's own, with a public start drawn from `seed`.

        With frozen layers the seed is 0 for everybody.

        Raises NetworkError.
        """
        _begin()
        if classes < 2:
            raise NetworkError(f"Expected at least 2 classes, got {classes}.")
        losses = _losses(class_weights, classes)
        if device == "cuda" and not torch.cuda.is_available():
            raise NetworkError("Expected a CUDA device for run.device = 'cuda', got none.")
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cuda":
            # TF32 keeps 10 bits of a product. Determinism: a killed run resumes to the same.
            torch.backends.cuda.matmul.allow_tf32 = False
            torch.backends.cudnn.allow_tf32 = False
            torch.backends.cudnn.deterministic = True
            torch.backends.cudnn.benchmark = False
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if kind in BUILT_IN:
                module = BUILT_IN[kind](features, classes, hidden)
            else:
                module = _own(kind, features, classes)
                if not all(parameter.requires_grad for parameter in module.parameters()):
                    # Nobody sends frozen layers: a party that draws them must draw the same.
                    torch.manual_seed(0)
                    module = _own(kind, features, classes)
        check_layers(module)
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise NetworkError(f"Expected a model with parameters to train, got none in {kind}.")
        module = module.to(dtype=DTYPES[precision], device=device)
        network = cls(
            kind=kind,
            features=features,
            classes=classes,
            module=module,
            device=torch.device(device),
            initial=_flat(module),
            hidden=tuple(hidden),
            digest=own_file_digest(kind),
            losses=losses,
        )
        try:
            shape = network._tried()
        except NetworkError:
            raise
        except Exception as error:
            raise NetworkError(
                f"{kind} cannot take rows of {features} features: {type(error).__name__}: "
                f"{next(iter(str(error).splitlines()), '')}."
            ) from error
        if shape != (2, classes):
            raise NetworkError(f"Expected scores of shape [2, {classes}] from {kind}, got {shape}.")
        return network

    @property
    def dimension(self) -> int:
        """d, the number of trainable parameters."""
        return len(self.initial)

    def _tried(self) -> tuple[int, ...]:
        """The shape of what it gives of two rows, twice the same; or a loss that draws."""
        wide = self.features + self.draws
        made_up = np.random.default_rng(0).random((2, wide)) / math.sqrt(self.features)
        if own_losses(self.module) is not None:
            self._check_finite(self.rows(made_up))
        if self.draws:
            check_still(self.module, self.rows(made_up), self._losses_as_of_first)
            return (2, self.classes)
        with torch.no_grad():
            shape = tuple(self.module(self.rows(np.zeros((2, wide)))).shape)
        check_still(self.module, self.rows(made_up))
        return shape

    def _check_finite(self, rows: torch.Tensor) -> None:
        with torch.no_grad():
            each = self._losses_as_of_first(rows)
        if not bool(torch.isfinite(each).all()):
            raise NetworkError(
                f"Expected record_losses of {self.kind} to be finite at the start, got "
                f"{each.tolist()} of two made-up rows: every record without a finite gradient adds "
                "zero. Keep logarithms, roots and quotients away from zero."
            )

    def _losses_as_of_first(self, rows: torch.Tensor) -> torch.Tensor:
        """`[b]` losses of `[b, p + D]` rows, were they all of the first class."""
        y = torch.zeros(len(rows), dtype=torch.int64, device=self.device)
        return self.losses(self.module, rows, y)

    @property
    def draws(self) -> int:
        """D: random numbers that a record's loss takes, behind the columns of its row; 0: none."""
        return draws_of(self.module)

    def with_draws(self, features: NDArray[Any], draws: NDArray[np.float64] | None) -> torch.Tensor:
        """`[b, p + D]` rows; `draws` `[b, D]`, zeros where None."""
        if not self.draws:
            return self.rows(features)
        drawn = np.zeros((len(features), self.draws)) if draws is None else draws
        return torch.cat([self.rows(features), self.rows(drawn)], dim=1)

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the parameters."""
        return next(self.module.parameters()).dtype

    @property
    def frozen(self) -> str:
        """SHA-256 of what a forward pass uses beside θ, in hex; empty where there is nothing.

        Parties whose frozen layers differ would train θ for another network than the server's.
        """
        state = self.module.state_dict()
        learned = {name for name, p in self.module.named_parameters() if p.requires_grad}
        fixed = {name: tensor for name, tensor in state.items() if name not in learned}
        if not fixed:
            return ""
        whole = hashlib.sha256(b"parley/frozen/v1")
        for name, tensor in sorted(fixed.items()):
            values = tensor.detach().cpu().contiguous().numpy()
            whole.update(f"{len(name)} {name} {values.dtype.str} {values.shape}\n".encode())
            whole.update(values.tobytes())
        return whole.hexdigest()

    def rows(self, features: NDArray[Any]) -> torch.Tensor:
        """Features as a tensor of the network's precision on its device."""
        own = np.require(features, requirements=["C", "W"])  # torch takes none that is read-only
        return torch.as_tensor(own, dtype=self.dtype, device=self.device)

    def start(self) -> NDArray[np.float64]:
        """`[d]` the public start, whatever the module was used for since."""
        return self.initial.copy()

    def check_labels(self, labels: NDArray[Any]) -> None:
        """Refuses labels that are not classes 0..K−1."""
        whole = np.asarray(labels)
        if len(whole) and not (whole.min() >= 0 and whole.max() < self.classes):
            raise ValueError(
                f"Expected labels in 0..{self.classes - 1}, got {whole.min()} to {whole.max()}."
            )

    def use(self, theta: torch.Tensor) -> None:
        """Makes the parameters views of `theta` `[d]`: changing it changes the network."""
        at = 0
        for parameter in self.module.parameters():
            if not parameter.requires_grad:
                continue
            size = parameter.numel()
            parameter.data = theta[at : at + size].view(parameter.shape)
            at += size

    def scores(self, theta: NDArray[np.float64], features: NDArray[Any]) -> torch.Tensor:
        """`[N, K]` scores of a model `[d]`, in pieces."""
        self.use(torch.as_tensor(theta, dtype=self.dtype, device=self.device).clone())
        with torch.no_grad():
            pieces = [
                self.module(self.rows(features[at : at + 4096]))
                for at in range(0, len(features), 4096)
            ]
        return torch.cat(pieces)

    @property
    def class_weights(self) -> tuple[float, ...]:
        """Of the labels in their order; (): all 1."""
        return self.losses.weights

    def margins(self, theta: NDArray[np.float64], rows: NDArray[Any]) -> NDArray[np.float64]:
        """`[N, K]` as `scores`, as numpy's."""
        return np.asarray(self.scores(theta, rows).cpu().numpy(), np.float64)

    def chances(self, margins: NDArray[np.float64]) -> NDArray[np.float64]:
        """`[N, K]` probabilities."""
        return np.asarray(softmax(margins), np.float64)

    def loss(self, theta: NDArray[np.float64], features: NDArray[Any], labels: Any) -> float:
        """The records' mean loss."""
        wanted = torch.as_tensor(np.asarray(labels, dtype=np.int64), device=self.device)
        if not self.losses.weights and own_losses(self.module) is None:
            return float(nn.functional.cross_entropy(self.scores(theta, features), wanted))
        self.use(torch.as_tensor(theta, dtype=self.dtype, device=self.device).clone())
        total = 0.0
        with torch.no_grad():
            rng = np.random.default_rng(0)  # a figure of a simulation: the same for every model
            for at in range(0, len(features), 4096):
                own = features[at : at + 4096]
                drawn = rng.standard_normal((len(own), self.draws)) if self.draws else None
                rows = self.with_draws(own, drawn)
                total += float(self.losses(self.module, rows, wanted[at : at + 4096]).sum())
        return total / len(features)

    def predict(self, theta: NDArray[np.float64], features: NDArray[Any]) -> NDArray[np.int64]:
        """`[N]` classes."""
        return np.asarray(self.scores(theta, features).argmax(1).cpu().numpy(), np.int64)

    def metric(self, theta: NDArray[np.float64], features: NDArray[Any], labels: Any) -> float:
        """Accuracy."""
        return float((self.predict(theta, features) == np.asarray(labels)).mean())
