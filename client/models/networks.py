"""`Network`: built-in and user-defined networks that parties train together, and their checks.

A network maps `[b, p]` rows to `[b, K]` class scores. Its trainable parameters travel as one flat
vector, `[d]`, in the order of `parameters()`. Frozen parameters (`requires_grad_(False)`, for
example a backbone trained on public data) stay as they were built, to the bit, at each party.

| kind | |
|---|---|
| mlp | p → hidden units (ReLU) → K, for tables; rows are scaled by √p, a public factor |
| pca-mlp | the same on the leading principal components (Abadi et al. 2016: 60, and 1000 units) |
| cnn | two convolutions and two linear layers, about 26,000 parameters, for square images |
| module:function, file.py:function | `function(features, classes)` returns a `torch.nn.Module` |

    >>> network = Network.build("mlp", features=4, classes=3, hidden=(8,))
    >>> network.dimension, network.start().shape
    (67, (67,))
"""

from __future__ import annotations

import functools
import hashlib
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from parley.client.contract.model_state_encoding import Floats
from parley.client.models.layer_checks import (
    BUILT_IN,
    NetworkError,
    check_layers,
    check_model_size,
    check_repeatable,
    turn_off_dropout,
)
from parley.client.models.linear_model_codec import MAX_PARAMETER
from parley.client.models.record_losses import (
    CROSS_ENTROPY,
    RecordLosses,
    get_draw_count,
    get_own_losses,
)
from parley.client.models.recurrent_layers import unroll_recurrent_layers
from parley.client.models.softmax_loss import softmax
from parley.client.own_code.own_code_errors import OwnCodeError, list_code_failures
from parley.client.own_code.own_code_loading import (
    compute_own_file_digest,
    describe_failure,
    load_function,
)
from parley.module_loading.memory_trim import release_start_pages
from parley.safe_io.error_translation import translate_errors

DTYPES = {"float32": torch.float32, "float64": torch.float64}

# Once per process: torch starts once.
_release_start_pages_once = functools.cache(release_start_pages)


def load_own_function(kind: str) -> Callable[..., Any]:
    """Load the function named 'module:function' or 'file.py:function'; this runs its file.

    Raises NetworkError.
    """
    with translate_errors(OwnCodeError, NetworkError):
        return load_function(kind)


def _build_own_network(kind: str, features: int, classes: int) -> nn.Module:
    build, place = load_own_function(kind), kind.rpartition(":")[0]
    try:
        made = build(features, classes)
    except list_code_failures() as error:
        raise NetworkError(
            f"{kind}({features}, {classes}) raised {describe_failure(error, place)}. A model is "
            "built by calling its function or class with the numbers of features and classes."
        ) from error
    if not isinstance(made, nn.Module):
        got = type(made).__name__
        raise NetworkError(f"Expected {kind} to return a torch.nn.Module, got {got}.")
    if _list_lazy_tensors(made):
        try:
            with torch.no_grad():
                made(torch.zeros(2, features))  # layers infer their width from a first batch
        except list_code_failures() as error:
            raise NetworkError(
                f"Expected {kind} to take a first batch of {features} features, from which its "
                f"lazy layers learn their width, got {describe_failure(error, place)}."
            ) from error
    if unbuilt := _list_lazy_tensors(made):
        expected = f"Expected a first batch to build each lazy layer of {kind}"
        why = "the forward pass does not use its layer"
        raise NetworkError(f"{expected}, got {unbuilt[0]} without a width: {why}.")
    return made


def _list_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers by name, each once."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _list_lazy_tensors(module: nn.Module) -> list[str]:
    """Return the names of parameters and buffers of lazy layers that saw no batch."""
    lazy = (nn.UninitializedParameter, nn.UninitializedBuffer)
    return [name for name, tensor in _list_tensors(module).items() if isinstance(tensor, lazy)]


def _list_fixed_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return what a forward pass uses in addition to θ: frozen parameters and buffers."""
    frozen = {name: p for name, p in module.named_parameters() if not p.requires_grad}
    return {**frozen, **dict(module.named_buffers())}


def _check_numbers(kind: str, module: nn.Module) -> None:
    """Refuse parameters that no model file can store. Raises NetworkError."""
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise NetworkError(f"Expected a model with parameters to train, got none in {kind}.")
    for name, tensor in _list_tensors(module).items():
        if tensor.is_complex():
            expected = "Expected real parameters and buffers"
            remedy = "Hold real and imaginary parts, and use torch.complex in the forward pass."
            raise NetworkError(f"{expected}, got complex numbers in {name} of {kind}. {remedy}")
    for name, parameter in module.named_parameters():
        if not parameter.is_floating_point():
            if parameter.requires_grad:
                raise NetworkError(f"Expected real parameters, got {parameter.dtype} in {name}.")
            continue
        if not bool((parameter.detach().double().abs() < MAX_PARAMETER).all()):
            expected = f"Expected finite parameters below {MAX_PARAMETER:g} at the start"
            remedy = "Check how it is initialised."
            raise NetworkError(f"{expected}, got others in {name} of {kind}. {remedy}")


def _set_deterministic_cuda() -> None:
    """Switch off TF32, which keeps 10 bits of a product, and make CUDA deterministic."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def _flatten_parameters(module: nn.Module) -> NDArray[np.float64]:
    flat = nn.utils.parameters_to_vector(p for p in module.parameters() if p.requires_grad)
    return np.asarray(flat.detach().cpu().numpy().astype(np.float64))


def _are_probabilities(scores: torch.Tensor) -> bool:
    """Return whether the scores of each row are positive and sum to 1."""
    sums = scores.sum(-1)
    return bool((scores > 0).all() and torch.allclose(sums, torch.ones_like(sums), atol=1e-5))


def _describe_value(value: Any) -> str:
    """Return a description of what a forward pass returned."""
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)} values"
    return f"an object of type {type(value).__name__}"


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network with flat parameters.

    Attributes:
        module: the torch module; `set_parameters` overwrites its parameters.
        initial: `[d]` the public trainable parameters with which it was built.
        losses: the training losses, with public weights of the classes.
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
    in_threads: ClassVar[bool] = False  # its module stores the current θ

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
        """Build a built-in or user-defined network, with a public start sampled from `seed`.

        With frozen layers the seed is 0 for all parties.

        Raises NetworkError.
        """
        _release_start_pages_once()
        if classes < 2:
            raise NetworkError(f"Expected at least 2 classes, got {classes}.")
        with translate_errors(ValueError, NetworkError):
            losses = RecordLosses.from_class_weights(class_weights, classes)
        if device == "cuda" and not torch.cuda.is_available():
            raise NetworkError("Expected a CUDA device for run.device = 'cuda', got none.")
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cuda":
            _set_deterministic_cuda()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if kind in BUILT_IN:
                module = BUILT_IN[kind](features, classes, hidden)
            else:
                module = _build_own_network(kind, features, classes)
                if _list_fixed_tensors(module):
                    # Frozen layers are not sent: each party must sample the same values.
                    torch.manual_seed(0)
                    module = _build_own_network(kind, features, classes)
        if without := turn_off_dropout(module):
            what = f"Dropout is switched off in {kind} ({', '.join(without)})"
            warnings.warn(f"{what}. The noise of DP-SGD regularises instead.", stacklevel=2)
        check_layers(module)
        unroll_recurrent_layers(module)
        check_model_size(sum(p.numel() for p in module.parameters()))
        _check_numbers(kind, module)
        module = module.to(dtype=DTYPES[precision], device=device)
        network = cls(
            kind=kind,
            features=features,
            classes=classes,
            module=module,
            device=torch.device(device),
            initial=_flatten_parameters(module),
            hidden=tuple(hidden),
            digest=compute_own_file_digest(kind),
            losses=losses,
        )
        network._check_output_shape(precision)
        return network

    @property
    def dimension(self) -> int:
        """Number of trainable parameters, d."""
        return len(self.initial)

    def _check_output_shape(self, precision: str) -> None:
        """Raise NetworkError unless the network returns a score per class for each row."""
        try:
            shape = self._find_output_shape()
        except NetworkError:
            raise
        except list_code_failures() as error:
            place = self.kind.rpartition(":")[0]
            hint = ""
            if "dtype" in str(error):
                other = "float64" if precision == "float32" else "float32"
                hint = (
                    f" Rows and parameters are {precision}; dp-sgd.precision = '{other}' changes "
                    "that. Tensors of your own follow if they are made with dtype=x.dtype, or by "
                    "register_buffer."
                )
            raise NetworkError(
                f"{self.kind} cannot take rows of {self.features} features: "
                f"{describe_failure(error, place)}.{hint}"
            ) from error
        if shape != (2, self.classes):
            expected = f"Expected scores of shape [2, {self.classes}] for two rows from {self.kind}"
            remedy = "A model returns one score per class."
            raise NetworkError(f"{expected}, got {list(shape)}. {remedy}")

    def _find_output_shape(self) -> tuple[int, ...]:
        """Return the output's shape for two rows; check that a second pass, or loss, agrees."""
        wide = self.features + self.draws_per_record
        made_up = np.random.default_rng(0).random((2, wide)) / math.sqrt(self.features)
        if get_own_losses(self.module) is not None:
            self._check_finite(self.to_tensor(made_up))
        if self.draws_per_record:
            check_repeatable(self.module, self.to_tensor(made_up), self._compute_first_losses)
            return (2, self.classes)
        scores = self.module(self.to_tensor(np.zeros((2, wide))))
        self._check_scores(scores)
        check_repeatable(self.module, self.to_tensor(made_up))
        if _are_probabilities(scores.detach()):
            remedy = "Return the scores before softmax: the loss applies it."
            what = f"The scores of {self.kind} look like probabilities"
            warnings.warn(f"{what}. {remedy}", stacklevel=3)
        return tuple(scores.shape)

    def _check_scores(self, scores: Any) -> None:
        """Refuse scores that are not a real tensor, or that do not depend on a parameter."""
        if not isinstance(scores, torch.Tensor):
            expected = f"Expected one tensor of scores, [rows, {self.classes}], from {self.kind}"
            remedy = "Return the scores only."
            raise NetworkError(f"{expected}, got {_describe_value(scores)}. {remedy}")
        if not scores.is_floating_point():
            expected = f"Expected real scores from {self.kind}"
            remedy = "Return the scores before argmax, rounding or a complex transform."
            raise NetworkError(f"{expected}, got {scores.dtype}. {remedy}")
        if not scores.requires_grad:
            expected = f"Expected scores from {self.kind} that depend on its parameters"
            remedy = "Remove detach(), .data and torch.no_grad() from its forward pass."
            raise NetworkError(f"{expected}, got scores without a gradient. {remedy}")

    def _check_finite(self, rows: torch.Tensor) -> None:
        with torch.no_grad():
            each = self._compute_first_losses(rows)
        if not bool(torch.isfinite(each).all()):
            raise NetworkError(
                f"Expected record_losses of {self.kind} to be finite at the start, got "
                f"{each.tolist()} for two made-up rows. A record without a finite gradient adds "
                "zero. Keep logarithms, roots and quotients away from zero."
            )

    def _compute_first_losses(self, rows: torch.Tensor) -> torch.Tensor:
        """Return `[b]` losses of `[b, p + D]` rows, as if all were of the first class."""
        y = torch.zeros(len(rows), dtype=torch.int64, device=self.device)
        return self.losses(self.module, rows, y)

    @property
    def draws_per_record(self) -> int:
        """D: random numbers per record's loss, after the columns of its row; 0: none."""
        return get_draw_count(self.module)

    def with_draws(self, features: NDArray[Any], draws: NDArray[np.float64] | None) -> torch.Tensor:
        """Return `[b, p + D]` rows; `draws` is `[b, D]`, or None for zeros."""
        if not self.draws_per_record:
            return self.to_tensor(features)
        drawn = np.zeros((len(features), self.draws_per_record)) if draws is None else draws
        return torch.cat([self.to_tensor(features), self.to_tensor(drawn)], dim=1)

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the parameters."""
        return next(self.module.parameters()).dtype

    @property
    def frozen_digest(self) -> str:
        """SHA-256, in hex, of what a forward pass uses in addition to θ; empty if there is nothing.

        Parties with other frozen layers would train θ for a network that differs from the server's.
        """
        fixed = _list_fixed_tensors(self.module)
        if not fixed:
            return ""
        whole = hashlib.sha256(b"parley/frozen/v1")
        for name, tensor in sorted(fixed.items()):
            values = tensor.detach().cpu().contiguous().numpy()
            whole.update(f"{len(name)} {name} {values.dtype.str} {values.shape}\n".encode())
            whole.update(values.tobytes())
        return whole.hexdigest()

    def to_tensor(self, features: NDArray[Any]) -> torch.Tensor:
        """Return features as a tensor of the network's precision on its device."""
        own = np.require(features, requirements=["C", "W"])  # torch accepts no read-only array
        return torch.as_tensor(own, dtype=self.dtype, device=self.device)

    def start(self) -> NDArray[np.float64]:
        """Return `[d]`, the public start, independent of the module's use since."""
        return self.initial.copy()

    def check_labels(self, labels: NDArray[Any]) -> None:
        """Check that labels are classes 0..K−1."""
        whole = np.asarray(labels)
        if len(whole) and not (whole.min() >= 0 and whole.max() < self.classes):
            expected = f"Expected labels in 0..{self.classes - 1}"
            raise ValueError(f"{expected}, got {whole.min()} to {whole.max()}.")

    def set_parameters(self, theta: torch.Tensor) -> None:
        """Make the parameters views of `theta` `[d]`: changing it changes the network."""
        at = 0
        for parameter in self.module.parameters():
            if not parameter.requires_grad:
                continue
            size = parameter.numel()
            parameter.data = theta[at : at + size].view(parameter.shape)
            at += size

    def compute_scores(self, theta: NDArray[np.float64], features: NDArray[Any]) -> torch.Tensor:
        """Compute `[N, K]` scores of a model `[d]`, in pieces."""
        self.set_parameters(torch.as_tensor(theta, dtype=self.dtype, device=self.device).clone())
        with torch.no_grad():
            cuts = [features[at : at + 4096] for at in range(0, len(features), 4096)]
            pieces = [self.module(self.to_tensor(rows)) for rows in cuts]
        return torch.cat(pieces)

    @property
    def class_weights(self) -> tuple[float, ...]:
        """Weights of the labels in their order; (): all 1."""
        return self.losses.weights

    def compute_margins(self, theta: Floats, rows: NDArray[Any]) -> Floats:
        """Compute `[N, K]` scores as a numpy array."""
        return np.asarray(self.compute_scores(theta, rows).cpu().numpy(), np.float64)

    def compute_probabilities(self, margins: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return `[N, K]` probabilities."""
        return np.asarray(softmax(margins), np.float64)

    def compute_loss(self, theta: Floats, features: NDArray[Any], labels: Any) -> float:
        """Compute the records' mean loss."""
        wanted = torch.as_tensor(np.asarray(labels, dtype=np.int64), device=self.device)
        if not self.losses.weights and get_own_losses(self.module) is None:
            return float(nn.functional.cross_entropy(self.compute_scores(theta, features), wanted))
        self.set_parameters(torch.as_tensor(theta, dtype=self.dtype, device=self.device).clone())
        total = 0.0
        with torch.no_grad():
            wide = self.draws_per_record
            rng = np.random.default_rng(0)  # a simulation's metric: the same draws for each model
            for at in range(0, len(features), 4096):
                own = features[at : at + 4096]
                drawn = rng.standard_normal((len(own), wide)) if wide else None
                rows = self.with_draws(own, drawn)
                total += float(self.losses(self.module, rows, wanted[at : at + 4096]).sum())
        return total / len(features)

    def predict(self, theta: NDArray[np.float64], features: NDArray[Any]) -> NDArray[np.int64]:
        """Return `[N]` classes."""
        return np.asarray(self.compute_scores(theta, features).argmax(1).cpu().numpy(), np.int64)

    def compute_metric(self, theta: Floats, features: NDArray[Any], labels: Any) -> float:
        """Compute the accuracy."""
        return float((self.predict(theta, features) == np.asarray(labels)).mean())
