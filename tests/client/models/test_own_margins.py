"""Margins by one product: the same bits among any others, or dot products are taken."""

import numpy as np
import pytest

from parley.client.models import own_margins as margins
from parley.client.models.own_margins import TILE, own_margins


@pytest.mark.parametrize(("outputs", "features"), [(2, 3), (10, 61), (10, 784), (7, 3969)])
def test_a_records_margins_are_the_same_bits_alone_and_among_others(outputs, features):
    rng = np.random.default_rng(outputs)
    rows, classes = rng.normal(size=(TILE, features)), rng.normal(size=(outputs, features))
    rows[1], rows[2] = 0, rows[2] * 1e200
    found = own_margins(rows, classes)
    np.testing.assert_allclose(found[3:], rows[3:] @ classes.T, rtol=1e-9, atol=1e-9)
    for count in (1, 5, TILE):
        order = rng.permutation(TILE)[:count]
        assert np.array_equal(own_margins(rows[order], classes), found[order])


def test_a_kernel_that_goes_by_place_is_found_and_not_used(monkeypatch):
    product = margins._product

    def by_place(rows, classes):
        found = product(rows, classes)
        found[1::2] = (rows[1::2, ::-1] @ classes[:, ::-1].T)[: len(found[1::2])]
        return found

    monkeypatch.setattr(margins, "_product", by_place)
    margins._keeps_bits.cache_clear()
    rng = np.random.default_rng(0)
    rows, classes = rng.normal(size=(8, 300)), rng.normal(size=(4, 300))
    try:
        assert not margins._keeps_bits(4, 300)
        assert np.array_equal(own_margins(rows, classes)[5:6], own_margins(rows[5:6], classes))
    finally:
        margins._keeps_bits.cache_clear()
