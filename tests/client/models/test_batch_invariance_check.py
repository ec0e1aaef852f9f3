"""Networks that people bring: which of them are refused, and that the others are left alone."""

from __future__ import annotations

import brought_networks
import pytest
import torch

from parley.client.dp_sgd.torch_clipping import (
    GradientMethodError,
    choose_way,
    compute_record_gradients,
)
from parley.client.models.batch_invariance_check import check_batch_invariance
from parley.client.models.layer_checks import NetworkError
from parley.client.models.networks import Network

pytestmark = pytest.mark.filterwarnings("ignore")


def built(name: str, *, precision: str = "float64") -> Network:
    kind = f"{brought_networks.__file__}:{name}"
    return Network.build(kind, features=6, classes=3, precision=precision)  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("name", brought_networks.MIXING)
def test_a_network_that_mixes_rows_is_refused(name: str, precision: str) -> None:
    with pytest.raises(NetworkError, match=r"each row by itself|remembers rows"):
        check_batch_invariance(built(name, precision=precision))


ALWAYS = [name for name in brought_networks.REFUSED if not name.startswith("Numpy")]


@pytest.mark.parametrize("name", ALWAYS)
def test_a_network_that_could_not_predict_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(NetworkError, match=brought_networks.REFUSED[name]) as refused:
        check_batch_invariance(built(name))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("name", brought_networks.WORKING)
def test_others_pass_and_are_left_as_they_were(name: str, precision: str) -> None:
    network = built(name, precision=precision)
    before = {key: value.clone() for key, value in network.module.state_dict().items()}
    modes = [layer.training for layer in network.module.modules()]
    check_batch_invariance(network)
    after = network.module.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert modes == [layer.training for layer in network.module.modules()]


@pytest.mark.parametrize("name", brought_networks.WORKING)
def test_their_gradients_are_those_of_each_record_alone(name: str) -> None:
    network = built(name)
    try:
        choose_way(network)
    except GradientMethodError as error:
        pytest.fail(str(error))
    rows, labels = torch.rand(5, 6, dtype=torch.float64) / 3, torch.tensor([0, 1, 2, 1, 0])
    found = compute_record_gradients(network.module, rows, labels)
    learned = [p for p in network.module.parameters() if p.requires_grad]
    for at in range(5):
        loss = network.losses(network.module, rows[at : at + 1], labels[at : at + 1]).sum()
        own = torch.autograd.grad(loss, learned)
        expected = torch.cat([gradient.reshape(-1) for gradient in own])
        torch.testing.assert_close(torch.as_tensor(found[at]), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", brought_networks.OBSTACLES)
def test_what_vmap_cannot_separate_is_refused_with_its_line_and_a_remedy_that_works(name) -> None:
    remedy, fixed = brought_networks.OBSTACLES[name]
    network = built(name)
    check_batch_invariance(network)
    with pytest.raises(GradientMethodError, match=remedy) as refused:
        choose_way(network)
    assert "(brought_networks.py, line " in str(refused.value)
    assert len(str(refused.value)) < 300
    assert fixed in brought_networks.WORKING


def test_probabilities_in_place_of_scores_are_named_in_a_warning(tmp_path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\ndef net(features, classes):\n"
        "    return nn.Sequential(nn.Linear(features, classes), nn.Softmax(1))\n"
    )
    with pytest.warns(UserWarning, match="before softmax"):
        Network.build(f"{tmp_path / 'net.py'}:net", features=6, classes=3)


def test_another_precision_in_a_network_is_refused_with_what_to_change(tmp_path) -> None:
    source = tmp_path / "net.py"
    source.write_text(
        "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n"
        "    def __init__(self, features, classes):\n        super().__init__()\n"
        "        self.last = nn.Linear(features, classes)\n"
        "        self.mask = torch.ones(features).double()\n"
        "    def forward(self, x):\n        return self.last(x * self.mask)\n"
    )
    with pytest.raises(NetworkError, match=r"precision = 'float64' changes that"):
        Network.build(f"{source}:Net", features=6, classes=3, precision="float32")
    Network.build(f"{source}:Net", features=6, classes=3, precision="float64")
    source.write_text(source.read_text().replace("x * self.mask", "x * self.mask.to(x.dtype)"))
    Network.build(f"{source}:Net", features=6, classes=3, precision="float32")
