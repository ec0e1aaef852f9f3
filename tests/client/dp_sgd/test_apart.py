"""Rows of a pass: whose bits are their record's alone, and where records stand if places differ."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from parley.client.dp_sgd import invariant_pass_layout
from parley.client.dp_sgd.invariant_pass_layout import find_layout, find_period
from parley.client.dp_sgd.poisson_batches import PassLayout, check_records, choose_widths
from parley.client.dp_sgd.torch_batch_sums import compute_record_classes
from parley.client.dp_sgd.torch_clipping import compute_record_gradients
from parley.client.models.networks import Network


def gradients(rows: list[int]) -> np.ndarray:
    return np.array(rows, dtype=float)[:, None] + np.arange(3)


def test_rows_that_are_the_same_everywhere_may_stand_anywhere() -> None:
    assert find_period(gradients, 24) == 1


@pytest.mark.parametrize(("every", "period"), [(2, 2), (4, 4), (8, 8), (3, 24)])
def test_places_that_round_in_turn_are_found(every: int, period: int) -> None:
    def rounded(rows: list[int]) -> np.ndarray:
        own = gradients(rows)
        own[::every, 1] *= 1 + 2.0**-52
        return own + 1

    assert find_period(rounded, 24) == period


@pytest.mark.parametrize("neighbour", [3, 7])
def test_a_row_that_others_move_is_found(neighbour: int) -> None:
    def mixed(rows: list[int]) -> np.ndarray:
        own = gradients(rows)
        at = rows.index(neighbour) if neighbour in rows else 0
        own[(at + 1) % len(own), 1] *= 1 + 2.0**-52
        return own

    assert find_period(mixed, 24) is None


def test_a_network_that_mixes_records_has_passes_of_one_row(monkeypatch) -> None:
    network = Network.build("mlp", features=6, classes=3, hidden=(5, 7, 5), precision="float64")
    own = compute_record_gradients

    def mixed(network, x, y, **given):
        return own(network, x + 1e-9 * x.sum(), y, **given)

    monkeypatch.setattr(invariant_pass_layout, "compute_record_gradients", mixed)
    assert find_layout(network, (64, 80, 96)) == PassLayout(width=1, period=1)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize(("kind", "features"), [("mlp", 30), ("mlp", 31), ("cnn", 256)])
def test_a_record_has_the_same_bits_in_any_place_of_its_class(kind, features, precision) -> None:
    network = Network.build(
        kind, features=features, classes=3, hidden=(33,) if kind == "mlp" else (),
        precision=precision,
    )  # fmt: skip
    before = nn.utils.parameters_to_vector(network.module.parameters()).clone()
    layout = find_layout(network, (24, 24, 24))
    assert torch.equal(before, nn.utils.parameters_to_vector(network.module.parameters()))
    assert layout.width in (24, 8)
    x, y = torch.randn(layout.width, features, dtype=network.dtype), torch.arange(3).repeat(8)
    y = y[: layout.width]
    at_first = compute_record_gradients(network.module, x, y)
    for moved in range(layout.period, layout.width, layout.period):
        rolled = compute_record_gradients(network.module, x.roll(moved, 0), y.roll(moved, 0))
        assert np.array_equal(at_first, np.roll(rolled, -moved, 0))


def test_a_class_is_of_a_records_own_values_and_classes_are_of_one_size() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(4000, 5)), rng.integers(0, 3, 4000)
    classes = compute_record_classes(x, y, 4)
    order = rng.permutation(4000)
    np.testing.assert_array_equal(compute_record_classes(x[order], y[order], 4), classes[order])
    assert np.abs(np.bincount(classes) - 1000).max() < 6 * np.sqrt(4000 * 3 / 16)
    others = compute_record_classes(rng.normal(size=x.shape), y, 4)
    assert (others != classes).mean() == pytest.approx(0.75, abs=0.05)


def test_the_shape_of_a_pass_is_of_public_numbers_and_fits_the_memory() -> None:
    assert choose_widths(60_000, 0.05, pad=True, most=2048)[0] <= 2048
    assert choose_widths(60_000, 0.05, pad=False, most=7) == (7, 7, 7)
    assert PassLayout(width=64, period=1).count_padded_chunks(600, 0.05) == 1
    assert PassLayout(width=64, period=1).count_padded_chunks(6000, 0.05) == 7


def test_batches_that_do_not_add_up_within_the_margin_are_refused() -> None:
    check_records(10**6, 1.0)
    check_records(10**8, 0.005)
    with pytest.raises(ValueError, match="1,000,001 of 1,000,001"):
        check_records(10**6 + 1, 1.0)
