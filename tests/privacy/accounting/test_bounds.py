"""The classic formulas against the specification's known answers, and against dp_accounting."""

import math

import pytest

from parley.privacy.accounting.bounds import (
    advanced_composition,
    audit_epsilon,
    basic_composition,
    classical_gaussian_multiplier,
    exponential_mechanism,
    group_privacy,
    randomized_response_epsilon,
    randomized_response_truth,
)
from parley.privacy.accounting.zcdp import gaussian_mu


def test_randomized_response():
    assert randomized_response_epsilon(0.75) == pytest.approx(math.log(3), rel=1e-15)
    for epsilon, truth in ((0.5, 0.622459), (1.0, 0.731059), (2.0, 0.880797)):
        assert randomized_response_truth(epsilon) == pytest.approx(truth, abs=5e-7)
        assert randomized_response_epsilon(randomized_response_truth(epsilon)) == pytest.approx(
            epsilon
        )


def test_classical_gaussian_against_exact():
    for epsilon, multiplier in ((0.5, 9.68961), (1.0, 4.84481), (12.0, 0.403734)):
        classical = classical_gaussian_multiplier(epsilon, 1e-5)
        assert classical == pytest.approx(multiplier, rel=2e-6)
        exact = 1 / gaussian_mu(epsilon, 1e-5)
        assert (classical >= exact) == (epsilon < 12)


def test_group_privacy():
    epsilon, delta = group_privacy(0.5, 1e-5, 3)
    assert epsilon == 1.5
    assert delta == pytest.approx(5.36700e-5, rel=2e-6)
    assert group_privacy(0.5, 1e-5, 1) == (0.5, pytest.approx(1e-5))
    assert group_privacy(0.0, 1e-5, 3) == (0.0, pytest.approx(3e-5))
    assert group_privacy(1e4, 1e-5, 3) == (3e4, 1.0)
    assert group_privacy(1e4, 0.0, 3) == (3e4, 0.0)


def test_advanced_and_basic_composition():
    assert advanced_composition(0.1, 100, 1e-5) == (pytest.approx(5.85024, abs=5e-6), 1e-5)
    assert basic_composition([(0.1, 0.0)] * 100) == (pytest.approx(10.0, rel=1e-15), 0.0)
    assert advanced_composition(0.1, 100, 1e-5, delta=1e-6)[1] == pytest.approx(1.1e-4)
    assert advanced_composition(1e4, 2, 1e-5)[0] == math.inf


def test_clopper_pearson_audit():
    for hits, false_hits, epsilon in ((500, 0, 4.54192), (490, 10, 3.11952)):
        bound = audit_epsilon(hits, 500, false_hits, 500, significance=0.01)
        assert bound == pytest.approx(epsilon, abs=5e-6)
    assert audit_epsilon(250, 500, 250, 500, significance=0.01) == 0.0
    assert audit_epsilon(0, 500, 500, 500, significance=0.01) == 0.0
    with_delta = audit_epsilon(490, 500, 10, 500, significance=0.01, delta=1e-2)
    assert with_delta < audit_epsilon(490, 500, 10, 500, significance=0.01)
    # The other side of the trade-off counts too.
    assert audit_epsilon(500, 500, 250, 500, significance=0.01) > 3


def test_exponential_mechanism():
    expected = [0.624174, 0.229621, 0.139272, 0.00693394]
    got = exponential_mechanism([10, 8, 7, 1], sensitivity=1.0, epsilon=1.0)
    assert got == pytest.approx(expected, rel=5e-6)
    assert sum(exponential_mechanism([1e6, -1e6], sensitivity=1.0, epsilon=100.0)) == 1.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: randomized_response_epsilon(1.0),
        lambda: randomized_response_epsilon(0.4),
        lambda: randomized_response_truth(-1.0),
        lambda: group_privacy(0.5, 1e-5, 0),
        lambda: group_privacy(-0.5, 1e-5, 2),
        lambda: advanced_composition(0.1, 0, 1e-5),
        lambda: advanced_composition(0.1, 10, 0.0),
        lambda: basic_composition([(-0.1, 0.0)]),
        lambda: classical_gaussian_multiplier(0.5, 0.0),
        lambda: exponential_mechanism([], sensitivity=1.0, epsilon=1.0),
        lambda: exponential_mechanism([math.nan], sensitivity=1.0, epsilon=1.0),
        lambda: audit_epsilon(501, 500, 0, 500, significance=0.01),
        lambda: audit_epsilon(-1, 500, 0, 500, significance=0.01),
        lambda: audit_epsilon(5, 500, 501, 500, significance=0.01),
        lambda: audit_epsilon(5, 500, 0, 500, significance=0.0),
    ],
)
def test_bad_values_are_refused(call):
    with pytest.raises(ValueError, match=r"^Expected .*, got "):
        call()


def test_abadi_2016_by_four_accountants():
    """q=.01, σ=4, T=10000, δ=1e-5: add-or-remove-one, Poisson sampling."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    step = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(4.0))
    training = dp_accounting.SelfComposedDpEvent(step, 10_000)
    rdp = RdpAccountant(orders=list(range(2, 34))).compose(training)
    assert rdp.get_epsilon(1e-5) == pytest.approx(1.03549, abs=5e-6)
    moments = min(
        curve + math.log(1e5) / (order - 1)
        for order, curve in zip(rdp._orders, rdp._rdp, strict=True)
    )
    assert moments == pytest.approx(1.25857, abs=1e-5)
    pld = PLDAccountant(value_discretization_interval=1e-5).compose(training)
    assert pld.get_epsilon(1e-5) == pytest.approx(0.946868, abs=5e-5)
    # Strong composition as the paper has it: half of δ to the steps, each amplified by q.
    amplified = 0.01 * classical_gaussian_multiplier(4.0, 1e-5 / (2 * 10_000 * 0.01))
    strong = math.sqrt(2 * 10_000 * math.log(2e5)) * amplified + 10_000 * amplified**2
    assert strong == pytest.approx(9.33907, abs=5e-6)
