"""What a bound promises: at most α of honest counts exceed it, and none exceeds its ceiling."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import GaussianEvent
from parley.privacy.audit.claimed_curve import ClaimedCurve, profile_ratio
from parley.privacy.audit.event_counts import (
    Hits,
    compute_middle_threshold,
    compute_pilot_size,
    find_best_event,
)
from parley.privacy.audit.noise_scale import Residuals, factor_bound, repeated_lag, shape_p
from parley.privacy.audit.one_run import (
    compute_one_run_epsilon,
    compute_one_run_mu,
    compute_one_run_p,
    one_run_bound,
    one_run_fdp_bound,
)
from parley.privacy.audit.two_world_bounds import (
    compute_mu_ceiling,
    compute_mu_lower,
    compute_pair_ceiling,
    compute_pair_epsilon,
    mu_bound,
)

ALPHA = 0.05


def counted(rng, rate, trials, size):
    return [Hits(hits=int(k), trials=trials) for k in rng.binomial(trials, rate, size)]


def test_honest_counts_exceed_the_truth_no_more_often_than_alpha():
    rng = np.random.default_rng(1)
    rate, epsilon, delta = 0.1, 1.0, 1e-5
    ins = counted(rng, rate * np.exp(epsilon) + delta, 2000, 2000)
    outs = counted(rng, rate, 2000, 2000)
    values = [
        compute_pair_epsilon(a, b, alpha=ALPHA, delta=delta) for a, b in zip(ins, outs, strict=True)
    ]
    too_high = np.mean(np.array(values) > epsilon)
    assert too_high <= ALPHA
    # …and it is a bound that says something.
    assert np.mean(values) > 0.7 * epsilon
    mu = 1.0
    positives = counted(rng, norm.sf(mu / 2), 2000, 2000)
    negatives = counted(rng, norm.sf(mu / 2), 2000, 2000)
    bounds = [
        compute_mu_lower(a, b, alpha=ALPHA) for a, b in zip(positives, negatives, strict=True)
    ]
    assert np.mean(np.array(bounds) > mu) <= ALPHA
    assert np.mean(bounds) > 0.85 * mu


def test_honest_canaries_of_one_run_exceed_the_truth_no_more_often_than_alpha():
    rng = np.random.default_rng(2)
    epsilon, r = 1.0, 200
    q = 1 / (1 + np.exp(-epsilon))
    for v in np.unique(rng.binomial(r, q, 400)):
        found = compute_one_run_epsilon(canaries=r, guesses=r, right=int(v), alpha=ALPHA, delta=0.0)
        # Randomized response: exactly where the tail is below α.
        from scipy.stats import binom

        assert (found > epsilon) == (binom.sf(v - 1, r, q) < ALPHA)


@given(
    trials=st.integers(1, 10_000),
    share=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    alpha=st.sampled_from([0.05, 1e-3, 1e-6]),
)
def test_no_counts_exceed_the_ceiling_of_their_trials(trials, share, alpha):
    a, b = (Hits(hits=round(each * trials), trials=trials) for each in share)
    options = {"alpha": alpha, "delta": 1e-5}
    assert compute_pair_epsilon(a, b, **options) <= compute_pair_ceiling(trials, **options) + 1e-12
    assert compute_mu_lower(a, b, alpha=alpha) <= compute_mu_ceiling(trials, alpha=alpha)


@given(m=st.integers(1, 400), shares=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_one_more_right_guess_never_lowers_a_bound(m, shares):
    r = round(shares[0] * m)
    v = min(round(shares[1] * r), r - 1)
    if v < 0:
        return
    for bound in (
        lambda right: compute_one_run_epsilon(
            canaries=m, guesses=r, right=right, alpha=ALPHA, delta=1e-5
        ),
        lambda right: compute_one_run_mu(canaries=m, guesses=r, right=right, alpha=ALPHA),
    ):
        assert bound(v + 1) >= bound(v) - 1e-9


def test_a_curve_is_refuted_by_a_worse_one_and_not_by_itself():
    rng = np.random.default_rng(3)
    claim = ClaimedCurve.of(Composition.from_events([GaussianEvent(mu=1.0)]), delta=1e-5)
    trials = 50_000
    for mu, refuted in ((1.0, False), (1.2, True)):
        scores = rng.normal(mu, 1, trials), rng.normal(0, 1, trials)
        hits = [Hits(hits=int((each >= mu / 2).sum()), trials=trials) for each in scores]
        assert claim.refuted_by(hits_in=hits[0], hits_out=hits[1], alpha=1e-6) is refuted
        # The complements say the same, whichever world is called `in`.
        swapped = {"hits_in": hits[1].misses, "hits_out": hits[0].misses}
        assert claim.refuted_by(**swapped, alpha=1e-6) is refuted

    def curve(multiplier):
        return ClaimedCurve.of(Composition.from_events([GaussianEvent(mu=1 / multiplier)]))

    found = profile_ratio(curve, hits_in=hits[0], hits_out=hits[1], alpha=ALPHA)
    assert 1 / 1.2 < found < 1.03 / 1.2


@pytest.mark.parametrize("law", ["gaussian", "l2-laplace", "laplace-l1"])
def test_the_scale_of_noise_is_enclosed_and_two_thirds_of_it_is_not(law):
    rng = np.random.default_rng(4)
    vectors, d = 300, 4
    normal = rng.standard_normal((vectors, d))
    direction = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    noise = {
        "gaussian": normal,
        "l2-laplace": direction * rng.gamma(d, size=(vectors, 1)),
        "laplace-l1": rng.laplace(size=(vectors, d)),
    }[law]
    seen = Residuals.of(law, noise)
    assert seen.scale_lower(1e-6) < 1 < seen.scale_upper(1e-6)
    less = Residuals.of(law, noise * 2 / 3)
    assert less.scale_upper(1e-6) < 1
    assert shape_p(law, noise, 1.0) > 1e-4 > shape_p(law, noise * 1.5, 1.0)
    half = Residuals.of(law, noise[:100]) + Residuals.of(law, noise[100:])
    assert half.total == pytest.approx(seen.total)


def test_noise_that_repeats_is_found_and_its_sign_does_not_matter():
    rng = np.random.default_rng(5)
    noise = rng.laplace(size=(64, 32))
    assert repeated_lag(noise) is None
    inside = noise.copy()
    inside[:, 16:] = -inside[:, :16]
    assert repeated_lag(inside).lag == 16
    rounds = np.concatenate([noise, np.rint(noise)])
    assert repeated_lag(rounds).lag == noise.size
    assert all(repeated_lag(rng.standard_normal(3000)) is None for _ in range(200))


def test_a_threshold_is_chosen_by_the_pilot_and_finds_the_direction():
    rng = np.random.default_rng(6)
    for sign in (1, -1):
        far, near = sign * rng.normal(2, 1, 2000), sign * rng.normal(0, 1, 2000)
        event = find_best_event(far, near, trials=20_000, alpha=ALPHA, delta=1e-5)
        fresh = event.count(sign * rng.normal(2, 1, 20_000), sign * rng.normal(0, 1, 20_000))
        assert compute_pair_epsilon(*fresh, alpha=ALPHA, delta=1e-5) > 3
    assert compute_middle_threshold(far, near) == pytest.approx(-1, abs=0.1)
    assert (compute_pilot_size(100), compute_pilot_size(5000), compute_pilot_size(100_000)) == (
        50,
        2000,
        10_000,
    )


@pytest.mark.parametrize("text", ["1/0", "3/2", "-1/2", "1", "1/2/3", "a/b", "1.5/2", "٣/٤", ""])
def test_text_that_is_no_count_is_refused(text):
    with pytest.raises(ValueError, match="Expected"):
        Hits.parse(text)


def test_values_out_of_range_are_refused_with_what_came():
    good = Hits(hits=1, trials=2)
    with pytest.raises(ValueError, match=r"alpha in \(0, 0.5\), got 0.7"):
        compute_pair_epsilon(good, good, alpha=0.7, delta=0.0)
    with pytest.raises(ValueError, match="right <= guesses <= canaries, got 3 of 2"):
        compute_one_run_mu(canaries=5, guesses=2, right=3, alpha=0.05)
    with pytest.raises(ValueError, match="a law of"):
        Residuals.from_mean_norm("cauchy", vectors=1, dimension=1, mean_norm=1.0)


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
    found = compute_pair_epsilon(
        Hits.parse(seen_in), Hits.parse(seen_out), alpha=alpha, delta=delta
    )
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
    assert compute_one_run_p(0.5, **known, delta=1e-4) == pytest.approx(0.0145872, rel=4e-6)
    # Without its δ-term two of the answers above would be higher.
    assert compute_one_run_p(0.5, **known, delta=0.0) < 0.0146 / 2
    assert compute_one_run_epsilon(**known, alpha=0.05, delta=0.0) > 0.68


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
