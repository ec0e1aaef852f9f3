"""Known answers: scipy's, mpmath's, and of one run also another library's, to 6 digits."""

import pytest

from parley.privacy.audit.counts import Hits
from parley.privacy.audit.noise_scale import Residuals, factor_bound
from parley.privacy.audit.one_run import (
    one_run_bound,
    one_run_epsilon,
    one_run_fdp_bound,
    one_run_p,
)
from parley.privacy.audit.pair import mu_bound, pair_epsilon


@pytest.mark.parametrize(
    ("seen_in", "seen_out", "alpha", "delta", "epsilon"),
    [
        ("500/500", "0/500", 0.01, 0.0, 4.54192),
        ("490/500", "10/500", 0.01, 0.0, 3.11952),
        ("9000/10000", "1000/10000", 0.05, 0.0, 2.13177),
        ("2000/10000", "20/10000", 0.05, 1e-5, 4.13123),
        ("50000/50000", "0/50000", 0.05, 1e-5, 9.51441),
        ("1000/1000", "0/1000", 0.05, 1e-5, 5.60058),
        ("100/1000", "1/1000", 0.01, 1e-3, 2.32869),
        ("200/1000", "0/1000", 0.05, 1e-5, 3.86479),
    ],
)
def test_two_worlds_and_one_event(seen_in, seen_out, alpha, delta, epsilon):
    found = pair_epsilon(Hits.parse(seen_in), Hits.parse(seen_out), alpha=alpha, delta=delta)
    assert found == pytest.approx(epsilon, rel=4e-6)


@pytest.mark.parametrize(
    ("positives", "negatives", "mu", "epsilon"),
    [
        ("100/1000", "100/1000", 2.34710, 12.1976),
        ("0/1000", "0/1000", 5.35982, 36.4895),
        ("20/10000", "7000/10000", 2.18799, 11.1733),
        ("1587/10000", "5000/10000", 0.945360, 4.10200),
        ("500/100000", "50000/100000", 2.53767, 13.4591),
    ],
)
def test_mu_of_two_error_rates(positives, negatives, mu, epsilon):
    bound = mu_bound(Hits.parse(positives), Hits.parse(negatives), confidence=0.95, delta=1e-5)
    assert bound.mu_lower == pytest.approx(mu, rel=3e-6)
    assert bound.epsilon_lower == pytest.approx(epsilon, rel=5e-6)


@pytest.mark.parametrize(
    ("m", "r", "v", "delta", "epsilon"),
    [
        (100, 100, 100, 0.0, 3.49297),
        (1000, 100, 75, 1e-4, 0.672985),
        (100, 50, 45, 0.0, 1.39360),
        (1000, 200, 190, 1e-5, 2.39362),
        (10_000, 500, 480, 1e-5, 2.77039),
        (100_000, 1510, 1439, 1e-5, 2.67585),
    ],
)
def test_right_guesses_of_one_run(m, r, v, delta, epsilon):
    found = one_run_bound(canaries=m, guesses=r, right=v, confidence=0.95, delta=delta)
    assert found.epsilon_lower == pytest.approx(epsilon, rel=4e-6)


def test_the_chance_of_right_guesses_has_the_delta_term():
    known = {"canaries": 1000, "guesses": 100, "right": 75}
    assert one_run_p(0.5, **known, delta=1e-4) == pytest.approx(0.0145872, rel=4e-6)
    # Without its δ-term two of the answers above would be higher.
    assert one_run_p(0.5, **known, delta=0.0) < 0.0146 / 2
    assert one_run_epsilon(**known, alpha=0.05, delta=0.0) > 0.68


@pytest.mark.parametrize(
    ("m", "r", "v", "mu", "epsilon"),
    [
        (100, 100, 80, 0.530689, 2.13034),
        (100, 100, 95, 1.08333, 4.80343),
        (1000, 100, 90, 0.602504, 2.45640),
        (1000, 1000, 700, 0.357211, 1.37198),
    ],
)
def test_right_guesses_of_one_run_on_the_gaussian_curve(m, r, v, mu, epsilon):
    bound = one_run_fdp_bound(canaries=m, guesses=r, right=v, confidence=0.95, delta=1e-5)
    assert bound.mu_lower == pytest.approx(mu, rel=4e-6)
    assert bound.epsilon_lower == pytest.approx(epsilon, rel=4e-6)


@pytest.mark.parametrize(
    ("law", "vectors", "dimension", "mean_norm", "confidence", "over_claim"),
    [
        ("l2-laplace", 100, 10, 10.0, 0.95, 0.948560),
        ("gaussian", 1000, 1, 1.0, 0.95, 0.963117),
        ("gaussian", 200, 1, 2 / 3, 1 - 1e-6, 1.15642),
    ],
)
def test_the_size_of_noise(law, vectors, dimension, mean_norm, confidence, over_claim):
    seen = Residuals.from_mean_norm(law, vectors=vectors, dimension=dimension, mean_norm=mean_norm)
    bound = factor_bound(seen, confidence=confidence, delta=1e-5)
    found = bound.epsilon_lower if bound.mu_lower is None else bound.mu_lower
    assert found == pytest.approx(over_claim, rel=1e-5)
