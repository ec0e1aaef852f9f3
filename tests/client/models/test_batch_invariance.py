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
from parley.client.models.batch_invariance import check_batch_invariance
from parley.client.models.layers import NetworkError
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
