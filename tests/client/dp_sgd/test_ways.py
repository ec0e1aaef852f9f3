"""The way that clips: accepted only where its sums are those of a loop over records."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from parley.client.dp_sgd.clipping import WAYS
from parley.client.dp_sgd.gradients import plain_sum, trainable
from parley.client.dp_sgd.ways import WayError, check_way, choose_way
from parley.client.models.networks import Network

pytestmark = pytest.mark.filterwarnings("ignore")

CLASSES = 4


def network_of(module: nn.Module, features: int) -> Network:
    torch.manual_seed(0)
    flat = nn.utils.parameters_to_vector(trainable(module).values()).detach()
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


def tokens_first() -> tuple[nn.Module, int]:
    """5 tokens in the first axis, where a batch of 5 would have its records."""

    def passed(own: nn.Module, x: torch.Tensor) -> torch.Tensor:
        tokens = torch.tanh(own.inner(x.view(len(x), 5, 3).transpose(0, 1)))
        scores: torch.Tensor = own.last(tokens.mean(0))
        return scores

    return Module(passed, inner=nn.Linear(3, 8), last=nn.Linear(8, CLASSES)), 15


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


def changes_an_output_in_place() -> tuple[nn.Module, int]:
    layers = [nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, CLASSES)]
    return nn.Sequential(*layers), 6


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


def old_weight_norm() -> tuple[nn.Module, int]:
    layer = nn.utils.weight_norm(nn.Linear(6, 8))
    return nn.Sequential(layer, nn.Tanh(), nn.Linear(8, CLASSES)), 6


def new_weight_norm() -> tuple[nn.Module, int]:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(6, 8))
    return nn.Sequential(layer, nn.Tanh(), nn.Linear(8, CLASSES)), 6


NOT_GHOST = [
    folds_patches,
    tokens_first,
    neighbours_row,
    uses_a_weight_twice,
    changes_an_output_in_place,
    low_rank,
    old_weight_norm,
    new_weight_norm,
]


@pytest.mark.parametrize("made", NOT_GHOST)
def test_ghost_is_refused_where_it_would_clip_something_else_than_records(made) -> None:
    torch.manual_seed(0)
    network = network_of(*made())
    with pytest.raises(WayError):
        check_way(network, "ghost")
    assert choose_way(network) in {"vmap", "opacus"}


@pytest.mark.parametrize("made", [folds_patches, tokens_first])
@pytest.mark.parametrize("batch", [1, 5, 7, 30])
def test_ghost_itself_stops_at_a_layer_that_does_not_see_the_batch(made, batch) -> None:
    """Also on a batch whose size nothing was tried with: what it sees is checked every time."""
    torch.manual_seed(0)
    module, features = made()
    if made is tokens_first and batch == 5:
        pytest.skip("5 tokens look like 5 records; the choice tries other batches")
    x, y = torch.randn(batch, features), torch.randint(0, CLASSES, (batch,))
    with pytest.raises(ValueError, match="places, not records"):
        WAYS["ghost"](module, x, y, 1.0)


def test_no_way_moves_by_more_than_a_record_may_on_a_network_that_folds_tokens() -> None:
    module, features = folds_patches()
    network = network_of(module, features)
    way = WAYS[choose_way(network)]
    x = torch.randn(6, features, dtype=torch.float64)
    y = torch.randint(0, CLASSES, (6,))
    before, _ = way(network.module, x, y, 0.01)
    x[2] *= -30
    after, _ = way(network.module, x, y, 0.01)
    assert float((after - before).norm()) <= 2 * 0.01


class Faint(nn.Module):
    """Small gradients at the start: a clip of .5 on them would clip nothing, and prove nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(5, 8), nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = torch.tanh(self.inner(x.reshape(-1, 5)) * 1e-3)
        scores: torch.Tensor = self.last(tokens.reshape(len(x), 6, 8).mean(1)) * 1e-2
        return scores


def test_a_network_with_small_gradients_is_tried_at_clips_below_them() -> None:
    torch.manual_seed(0)
    network = network_of(Faint(), 30)
    each = [
        float(plain_sum(network.module, torch.rand(1, 30).double(), torch.tensor([k])).norm())
        for k in range(CLASSES)
    ]
    assert max(each) < 0.5
    with pytest.raises(WayError):
        check_way(network, "ghost")


def test_a_check_leaves_the_module_as_it_was_to_the_bit() -> None:
    module, features = low_rank()
    network = network_of(module, features)
    before = copy.deepcopy(module.state_dict())
    network.use(torch.as_tensor(network.start()))
    choose_way(network)
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert {tensor.dtype for tensor in after.values()} == {torch.float64}


@pytest.mark.parametrize(("kind", "features"), [("mlp", 9), ("cnn", 256), ("cnn", 400)])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_built_in_networks_are_clipped_by_ghost(kind, features, precision) -> None:
    network = Network.build(
        kind, features=features, classes=CLASSES, hidden=(7,), precision=precision
    )
    assert choose_way(network) == "ghost"
    for way in ("ghost", "vmap", "loop"):
        check_way(network, way)


def mixes_records() -> nn.Module:
    def passed(own: nn.Module, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = own.last(x - x.mean(0) + x.abs().sum(0))
        return scores

    return Module(passed, last=nn.Linear(4, CLASSES))


def test_a_way_that_is_wanted_by_name_is_checked_as_well() -> None:
    with pytest.raises(WayError, match=r"be separated, got ghost: "):
        choose_way(network_of(mixes_records(), 4), wanted="ghost")
    with pytest.raises(WayError, match="Expected one of ghost, vmap, opacus, loop"):
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
    assert choose_way(network) in {"vmap", "opacus"}


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_torchs_recurrent_layers_are_refused_with_what_to_use_and_a_loop_takes_them(layer) -> None:
    network = network_of(recurrent(layer), 6)
    with pytest.raises(WayError, match=rf"{layer.__name__}.*DPLSTM.*per-example-method = 'loop'"):
        choose_way(network)
    assert choose_way(network, wanted="loop") == "loop"


def embeds(*, scaled: bool) -> nn.Module:
    def passed(own: nn.Module, x: torch.Tensor) -> torch.Tensor:
        places = (x * 10).long().clamp(0, 9) if scaled else (x * 1e3).long()
        scores: torch.Tensor = own.last(own.table(places).flatten(1))
        return scores

    return Module(passed, table=nn.Embedding(10, 3), last=nn.Linear(12, CLASSES))


def test_an_embedding_on_raw_indices_is_refused_in_words() -> None:
    with pytest.raises(WayError, match=r"IndexError.*scale and clamp"):
        choose_way(network_of(embeds(scaled=False), 4))
    assert choose_way(network_of(embeds(scaled=True), 4)) in WAYS


def test_layers_that_are_zero_at_the_start_are_tried_elsewhere() -> None:
    """A layer behind zeros has no gradient at the start, wherever its records are."""
    torch.manual_seed(0)
    module, features = folds_patches()
    nn.init.zeros_(module.get_submodule("last").weight)
    with pytest.raises(WayError):
        check_way(network_of(module, features), "ghost")


def test_a_model_without_a_gradient_is_refused() -> None:
    def passed(own: nn.Module, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = own.last(x) * 0
        return scores

    network = network_of(Module(passed, last=nn.Linear(4, CLASSES)), 4)
    with pytest.raises(WayError, match="nothing to compare"):
        choose_way(network)


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


@pytest.mark.parametrize("way", list(WAYS))
def test_an_own_loss_is_clipped_record_by_record_as_a_loop_over_records_would(way):
    check_way(network_of(ToItself(), 6), way)
    if way in {"ghost", "opacus"}:  # the others show the loss one record at a time
        with pytest.raises(WayError):
            check_way(network_of(ToItself(mixing=True), 6), way)


def test_an_own_loss_is_one_number_a_record():
    class Mean(ToItself):
        def record_losses(self, x, y, draws):
            return super().record_losses(x, y, draws).mean()

    with pytest.raises(WayError, match="one loss a record"):
        choose_way(network_of(Mean(), 6))
