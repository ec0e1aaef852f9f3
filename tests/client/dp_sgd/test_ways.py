"""The way that clips: by the network's structure, and its sums are those of a loop over records."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from record_loop import loop_sums
from torch import nn

from parley.client.dp_sgd.exact_layer_detection import find_exact_layers
from parley.client.dp_sgd.torch_clipping import (
    GradientMethodError,
    check_way,
    choose_way,
    compute_clipped_sum,
    get_trainable,
)
from parley.client.dp_sgd.training_settings import EXACT, VMAP
from parley.client.models.networks import Network

pytestmark = pytest.mark.filterwarnings("ignore")

CLASSES = 4


def network_of(module: nn.Module, features: int) -> Network:
    torch.manual_seed(0)
    flat = nn.utils.parameters_to_vector(get_trainable(module).values()).detach()
    return Network(
        kind="mine.py:net",
        features=features,
        classes=CLASSES,
        module=module.double(),
        device=torch.device("cpu"),
        initial=flat.double().numpy(),
    )


class Module(nn.Module):
    """Layers by name, and a forward pass."""

    def __init__(
        self, forward: Callable[[nn.Module, torch.Tensor], torch.Tensor], **layers: nn.Module
    ) -> None:
        super().__init__()
        self.passed = forward
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.passed(self, x)


def folds_patches() -> tuple[nn.Module, int]:
    """6 tokens of 5 values, taken as 6 rows each of a larger batch, as patch encoders do."""

    def passed(own: nn.Module, x: torch.Tensor) -> torch.Tensor:
        tokens = torch.tanh(own.inner(x.reshape(-1, 5)))
        scores: torch.Tensor = own.last(tokens.reshape(len(x), 6, 8).mean(1))
        return scores

    return Module(passed, inner=nn.Linear(5, 8), last=nn.Linear(8, CLASSES)), 30


def neighbours_row() -> tuple[nn.Module, int]:
    """A layer that sees the record before: rows are records, but another's."""

    def passed(own: nn.Module, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = own.last(torch.tanh(own.inner(x.roll(1, 0))).roll(-1, 0))
        return scores

    return Module(passed, inner=nn.Linear(6, 8), last=nn.Linear(8, CLASSES)), 6


def uses_a_weight_twice() -> tuple[nn.Module, int]:
    def passed(own: nn.Module, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = own.last(x) @ own.last.weight
        return scores

    return Module(passed, last=nn.Linear(4, CLASSES)), 4


class LoRA(nn.Linear):
    """A Linear layer with a frozen weight and two small factors, the second zero at the start."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__(into, out)
        self.weight.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(2, into))
        self.up = nn.Parameter(torch.zeros(out, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + x @ self.down.T @ self.up.T


def low_rank() -> tuple[nn.Module, int]:
    return nn.Sequential(LoRA(6, 8), nn.Tanh(), nn.Linear(8, CLASSES)), 6


def new_weight_norm() -> tuple[nn.Module, int]:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(6, 8))
    return nn.Sequential(layer, nn.Tanh(), nn.Linear(8, CLASSES)), 6


@pytest.mark.parametrize(
    "made", [folds_patches, neighbours_row, uses_a_weight_twice, low_rank, new_weight_norm]
)
def test_a_network_whose_layers_rows_are_no_records_is_clipped_record_by_record(made) -> None:
    torch.manual_seed(0)
    network = network_of(*made())
    assert choose_way(network) == VMAP
    with pytest.raises(GradientMethodError, match="Expected a chain"):
        check_way(network, EXACT)
    x = torch.randn(5, network.features, dtype=torch.float64)
    y = torch.arange(5) % CLASSES
    _, norms = loop_sums(network.module, x, y, 1.0)
    clip = float(np.median(norms))
    total, own = compute_clipped_sum(network.module, x, y, clip)
    np.testing.assert_allclose(own, norms, rtol=1e-9)
    np.testing.assert_allclose(total, loop_sums(network.module, x, y, clip)[0], atol=1e-6 * clip)


def calls_a_hook() -> nn.Module:
    layer = nn.Linear(6, CLASSES)
    layer.register_forward_pre_hook(lambda _, inputs: (inputs[0].roll(1, 0),))
    return layer


def computes_otherwise() -> nn.Module:
    layer = nn.Linear(6, CLASSES)
    layer.forward = lambda x: nn.functional.linear(x - x.mean(0), layer.weight, layer.bias)  # type: ignore[method-assign]
    return layer


def same_layer_twice() -> nn.Module:
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(6, CLASSES))


def same_weight_twice() -> nn.Module:
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight = first.weight
    return nn.Sequential(first, second, nn.Linear(6, CLASSES))


def has_a_loss() -> nn.Module:
    network = nn.Sequential(nn.Linear(6, CLASSES))
    network.record_losses = lambda x, y, draws: network(x).square().sum(1)  # type: ignore[assignment]
    return network


def part_of_a_layer() -> nn.Module:
    layer = nn.Linear(6, CLASSES)
    layer.bias.requires_grad_(False)
    return layer


CHAINS = [
    nn.Linear(6, CLASSES),
    nn.Sequential(nn.Sequential(nn.Linear(6, 5), nn.Tanh()), nn.Linear(5, CLASSES)),
    nn.Sequential(nn.Flatten(), nn.Linear(6, 5, bias=False), nn.ReLU(True), nn.Linear(5, CLASSES)),
    nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 2, 2), nn.MaxPool2d(1), nn.Flatten(),
        nn.Linear(4, CLASSES),
    ),
]  # fmt: skip


def on_a_map(*modules: nn.Module, last: int = 8) -> Callable[[], nn.Module]:
    """A network of modules that see maps [2, 6]."""
    return lambda: nn.Sequential(
        nn.Unflatten(1, (2, 6)), *modules, nn.Flatten(), nn.Linear(last, CLASSES)
    )


NO_CHAINS = [
    calls_a_hook,
    computes_otherwise,
    same_layer_twice,
    same_weight_twice,
    has_a_loss,
    part_of_a_layer,
    lambda: nn.Sequential(nn.Linear(6, 5).requires_grad_(False), nn.ReLU(), nn.Linear(5, 4)),
    lambda: nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Linear(3, 2), nn.Flatten(), nn.Linear(4, 4)),
    lambda: nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, CLASSES)),
    lambda: nn.Sequential(nn.Linear(6, 5), nn.Softmax(0), nn.Linear(5, CLASSES)),
    lambda: nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, CLASSES)),
    lambda: nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (-1, 6)), nn.Linear(6, CLASSES)),
    lambda: nn.Sequential(nn.Linear(6, CLASSES), nn.Softmax(1)),
    lambda: nn.Sequential(nn.ReLU()),
    lambda: LoRA(6, CLASSES),
    lambda: nn.Sequential(nn.Conv1d(4, 4, 1), nn.Linear(6, CLASSES)),  # rows are its channels
    lambda: nn.Sequential(nn.MaxPool1d(2), nn.Linear(3, CLASSES)),
    on_a_map(nn.Conv1d(2, 4, 5, groups=2)),
    on_a_map(nn.Conv1d(2, 2, 3, padding=1, padding_mode="circular"), last=12),
    on_a_map(nn.Conv1d(2, 2, 2, padding="same"), last=12),
    on_a_map(nn.Conv1d(3, 4, 5)),
    on_a_map(nn.Conv2d(1, 1, 1), last=12),  # a map would be its channel
    on_a_map(nn.MaxPool1d(4, ceil_mode=True)),
    on_a_map(nn.AvgPool1d(3, 1, 1, count_include_pad=False), last=12),
    on_a_map(nn.Linear(6, 4)),
    on_a_map(nn.Unflatten(1, (2, 1)), nn.Conv2d(2, 2, 1), last=12),
    lambda: nn.Sequential(nn.Unflatten(0, (-1, 1)), nn.Flatten(1), nn.Linear(6, CLASSES)),
    lambda: nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Flatten(2), nn.Linear(3, CLASSES)),
]


@pytest.mark.parametrize("chain", CHAINS)
def test_a_chain_is_known_by_its_structure(chain) -> None:
    assert choose_way(network_of(chain, 6)) == EXACT


@pytest.mark.parametrize("made", NO_CHAINS)
def test_what_may_look_beyond_a_row_or_use_a_weight_elsewhere_is_no_chain(made) -> None:
    assert find_exact_layers(made()) is None


def test_a_check_leaves_the_module_as_it_was_to_the_bit() -> None:
    module, features = low_rank()
    network = network_of(module, features)
    before = copy.deepcopy(module.state_dict())
    network.set_parameters(torch.as_tensor(network.start()))
    choose_way(network)
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert {tensor.dtype for tensor in after.values()} == {torch.float64}


@pytest.mark.parametrize(("kind", "features"), [("mlp", 9), ("cnn", 256), ("cnn", 400)])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_built_in_networks_have_a_way(kind, features, precision) -> None:
    network = Network.build(
        kind, features=features, classes=CLASSES, hidden=(7,), precision=precision
    )
    assert choose_way(network) == EXACT
    check_way(network, VMAP)


def test_a_way_that_is_wanted_by_name_is_checked_as_well() -> None:
    with pytest.raises(GradientMethodError, match="Expected a chain"):
        choose_way(network_of(*neighbours_row()), wanted=EXACT)
    with pytest.raises(GradientMethodError, match="Expected exact or vmap, got 'shortcut'"):
        check_way(network_of(nn.Linear(4, CLASSES), 4), "shortcut")


def recurrent(layer: type[nn.Module]) -> nn.Module:
    def passed(own: nn.Module, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = own.last(own.cell(x.view(len(x), 2, 3))[0][:, -1])
        return scores

    return Module(passed, cell=layer(3, 5, batch_first=True), last=nn.Linear(5, CLASSES))


@pytest.mark.parametrize("name", ["DPLSTM", "DPGRU"])
def test_recurrent_layers_of_opacus_keep_records_apart(name) -> None:
    opacus = pytest.importorskip("opacus")
    network = network_of(recurrent(getattr(opacus.layers, name)), 6)
    assert choose_way(network) == VMAP


class OwnLSTM(nn.LSTM):
    """A subclass may compute anything, so it is not unrolled."""


def test_a_subclass_of_a_recurrent_layer_is_refused_with_what_to_use() -> None:
    with pytest.raises(GradientMethodError, match=r"own LSTM, GRU or RNN, not a subclass"):
        choose_way(network_of(recurrent(OwnLSTM), 6))


def embeds(*, scaled: bool) -> nn.Module:
    def passed(own: nn.Module, x: torch.Tensor) -> torch.Tensor:
        places = (x * 10).long().clamp(0, 9) if scaled else (x * 1e3).long()
        scores: torch.Tensor = own.last(own.table(places).flatten(1))
        return scores

    return Module(passed, table=nn.Embedding(10, 3), last=nn.Linear(12, CLASSES))


def test_an_embedding_on_raw_indices_is_refused_in_words() -> None:
    with pytest.raises(GradientMethodError, match=r"IndexError.*Scale and clamp"):
        choose_way(network_of(embeds(scaled=False), 4))
    assert choose_way(network_of(embeds(scaled=True), 4)) == VMAP


class ToItself(nn.Module):
    """A network with a loss of its own: how far its scores are from what its label stands for."""

    def __init__(self, mixing: bool = False) -> None:
        super().__init__()
        self.inner, self.last, self.mixing = nn.Linear(6, 8), nn.Linear(8, CLASSES), mixing

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(torch.tanh(self.inner(x)))
        return scores

    def record_losses(
        self, x: torch.Tensor, y: torch.Tensor, draws: torch.Tensor | None
    ) -> torch.Tensor:
        assert draws is None
        wanted = torch.eye(CLASSES, dtype=x.dtype)[y]
        each = (self(x) - wanted).square().sum(1)
        return each * each.mean() if self.mixing else each


@pytest.mark.parametrize("mixing", [False, True])
def test_an_own_loss_is_clipped_record_by_record_as_a_loop_over_records_would(mixing):
    network = network_of(ToItself(mixing=mixing), 6)
    assert choose_way(network) == VMAP  # in which each record is alone
    x, y = torch.randn(5, 6, dtype=torch.float64), torch.arange(5) % CLASSES
    total, norms = compute_clipped_sum(network.module, x, y, 0.1)
    expected, own = loop_sums(network.module, x, y, 0.1)
    np.testing.assert_allclose(norms, own, rtol=1e-9)
    np.testing.assert_allclose(total, expected, atol=1e-7)


def test_an_own_loss_is_one_number_a_record():
    class Mean(ToItself):
        def record_losses(self, x, y, draws):
            return super().record_losses(x, y, draws).mean()

    with pytest.raises(GradientMethodError, match="one loss per record"):
        choose_way(network_of(Mean(), 6))
