"""The loss of a sampled Gaussian under replace-one is the library's, to the last bit."""

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

from parley.privacy.accounting.dp_accounting_adapter import (
    _compute_sampled_loss,
    _ReplacedGaussianLoss,
)
from parley.privacy.accounting.privacy_events import PoissonSampledGaussian


@pytest.mark.parametrize(
    ("sigma", "rate"), [(0.6, 1e-5), (1.1, 0.01), (4.0, 0.3), (0.4, 0.9), (2.0, 1.0), (30.0, 1e-9)]
)
def test_the_composed_loss_has_the_librarys_bits(sigma, rate):
    kind = PoissonSampledGaussian(
        sampling_rate=rate, noise_multiplier=sigma, neighbouring="replace-one"
    )
    found, lost = _compute_sampled_loss(kind, 1e-3)
    expected = pld.from_gaussian_mechanism(
        sigma,
        sampling_prob=rate,
        value_discretization_interval=1e-3,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    )
    ours, theirs = (each._pmf_remove.to_dense_pmf() for each in (found, expected))
    assert lost == 0.0
    assert found._symmetric == expected._symmetric
    assert ours._lower_loss == theirs._lower_loss
    assert ours._infinity_mass == theirs._infinity_mass
    assert ours._probs.tobytes() == theirs._probs.tobytes()


@pytest.mark.parametrize("rate", [1e-12, 1e-5, 0.2, 0.999])
def test_inverses_have_the_librarys_bits(rate):
    settings = {"sampling_prob": rate, "adjacency_type": AdjacencyType.REPLACE}
    ours, theirs = _ReplacedGaussianLoss(1.3, **settings), GaussianPrivacyLoss(1.3, **settings)
    epsilons = np.concatenate(
        [np.arange(-3000, 3000) * 1e-3, [1e-15, -1e-9, 40.0, -700.0, 0.0, -0.0]]
    )
    expected = [theirs.inverse_privacy_loss(epsilon) for epsilon in epsilons]
    assert ours._invert(epsilons).tobytes() == np.array(expected).tobytes()
    deltas = ours.get_delta_for_epsilon(epsilons)
    assert deltas.tobytes() == theirs.get_delta_for_epsilon(epsilons).tobytes()
    assert ours.get_delta_for_epsilon(0.5) == theirs.get_delta_for_epsilon(0.5)
