"""Random features in integers: known answers, norms, the sensitivity by brute force, same bits."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from parley.client.algorithms import kernel_mean_embedding
from parley.client.algorithms.kernel_mean_embedding import (
    RandomFeatures,
    check_waves,
    compute_waves_digest,
)
from parley.client.algorithms.task_codec import decode_task, describe_task
from parley.client.contract.refusals import Declined
from parley.client.contract.strict_decoding import DecodingError
from parley.client.data.party_block import PartyBlock
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.sampling.random_stream import Randomness

ONE = 1 << 16


def features(wide=4, sizes=(), classes=3, frequencies=8, scale=1.0, relation="replace-one"):
    return RandomFeatures(
        features=wide,
        sizes=sizes,
        classes=classes,
        frequencies=frequencies,
        length_scale=scale,
        seed=5,
        digest=compute_waves_digest(wide, frequencies, scale, 5),
        neighbouring=Neighbouring(relation),
        bound=1e6,
    )


def with_waves(monkeypatch, weights):
    """The features of W itself, `[F, p]`."""
    waves = np.rint(np.array(weights, float).T * 2**14 / (2 * math.pi))
    monkeypatch.setattr(kernel_mean_embedding, "_draw_weights", lambda *_: waves)
    return replace(features(waves.shape[0], frequencies=waves.shape[1], classes=1), digest="own")


def test_known_integers_of_two_records(monkeypatch):
    own = with_waves(monkeypatch, [[1, 0], [0, 2]])
    rows = np.array([[0.5, 0.25], [-0.5, 1.0]]) / math.sqrt(2)  # rows come over √p
    rows = np.nextafter(rows, rows * 2)  # and √p² is not 2 in floats
    one, other = (own.sum_records(row[None], np.zeros(1))[:-1] * ONE for row in rows)
    assert one.tolist() == [40666, 40674, 22220, 22204]
    assert (one**2).sum() == 4294843848
    assert other.tolist() == [40666, -19281, -22220, 42139]
    assert (other**2).sum() == 4294904238
    real = [0.620544581, 0.620544581, 0.339005049, 0.339005049]  # of W itself, not of its grid
    np.testing.assert_allclose(one / ONE, real, atol=3e-4)
    assert one @ other / ONE**2 == pytest.approx(0.305519754, abs=1e-3)
    assert np.linalg.norm(one - other) / ONE == pytest.approx(1.17854168, abs=1e-3)


@pytest.mark.parametrize("frequencies", [1, 2, 3, 7, 500, 1000, 5000])
def test_no_phase_is_longer_than_its_share(frequencies):
    table = kernel_mean_embedding._build_cosine_table(frequencies).astype(np.float64)
    squares = table**2 + np.roll(table, 4096) ** 2
    assert frequencies * squares.max() <= 2**32
    if frequencies == 5000:
        assert frequencies * squares.max() / 2**32 == pytest.approx(0.99996338, abs=1e-8)


def block_of(rows, labels, parties):
    offsets = np.linspace(0, len(rows), parties + 1).astype(np.int64)
    return PartyBlock(features=rows, labels=labels, offsets=offsets)


def test_sums_have_the_same_bits_however_records_are_cut_and_ordered(monkeypatch):
    rng = np.random.default_rng(0)
    rows = (rng.uniform(-1, 1, (1203, 6)) / math.sqrt(6)).astype(np.float32)
    labels = rng.integers(0, 3, 1203)
    own = features(6, frequencies=50)
    whole = own.sum_records(rows, labels)
    order = rng.permutation(1203)
    np.testing.assert_array_equal(own.sum_records(rows[order], labels[order]), whole)
    for piece, waves in ((7, 3), (1, 50), (400, 49)):
        monkeypatch.setattr(kernel_mean_embedding, "_ROWS", piece)
        monkeypatch.setattr(kernel_mean_embedding, "_WAVES", waves)
        np.testing.assert_array_equal(
            own.sum_records(rows[:100], labels[:100]) * 1.0,
            sum(
                own.sum_records(r[None], y[None])
                for r, y in zip(rows[:100], labels[:100], strict=True)
            ),
        )
    monkeypatch.undo()
    values = own.local(own.init(), block_of(rows, labels, 7), None, Randomness.from_seed(1)).values
    np.testing.assert_array_equal(values.sum(axis=0), whole)


def test_features_approximate_the_gaussian_kernel():
    rows = np.array([[0.0, 0.0], [1.0, 0.0]]) / math.sqrt(2)
    own = features(2, frequencies=20_000, scale=1.5, classes=1)
    one, other = (own.sum_records(row[None], np.zeros(1))[:-1] for row in rows)
    assert one @ other == pytest.approx(0.800737403, abs=0.01)


def test_a_party_that_derives_other_waves_declines():
    own = features()
    check_waves(own, SimpleNamespace())
    with pytest.raises(Declined, match="waves of seed 5"):
        check_waves(replace(own, digest="0" * 64), SimpleNamespace())
    with pytest.raises(Declined, match="length-scale"):
        check_waves(replace(own, length_scale=1e-5), SimpleNamespace())


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": [3, 2]},
        {"sizes": "all"},
        {"sizes": [0, 4]},
        {"frequencies": 0},
        {"frequencies": 1 << 40},
        {"features": 1 << 18},
        {"classes": 1 << 20},
        {"length_scale": 0},
        {"length_scale": math.nan},
        {"seed": -1},
        {"bound": 0.5},
        {"neighbouring": "none"},
    ],
)
def test_tasks_that_are_none_are_refused(change):
    task = describe_task(features(sizes=(2, 2)))
    task = {**task, "settings": dict(task["settings"])}
    for name, value in change.items():
        (task if name == "sizes" else task["settings"])[name] = value
    with pytest.raises(DecodingError):
        decode_task(task)
