"""What a bound promises: at most α of honest counts exceed it, and none exceeds its ceiling."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.events import Gaussian
from parley.privacy.audit.claimed_curve import ClaimedCurve, profile_ratio
from parley.privacy.audit.counts import Hits, best_event, middle_threshold, pilot_size
from parley.privacy.audit.noise_scale import Residuals, repeated_lag, shape_p
from parley.privacy.audit.one_run import one_run_epsilon, one_run_mu
from parley.privacy.audit.pair import (
    mu_ceiling,
    mu_lower,
    pair_ceiling,
    pair_epsilon,
)

ALPHA = 0.05


def counted(rng, rate, trials, size):
    return [Hits(hits=int(k), trials=trials) for k in rng.binomial(trials, rate, size)]


def test_honest_counts_exceed_the_truth_no_more_often_than_alpha():
    rng = np.random.default_rng(1)
    rate, epsilon, delta = 0.1, 1.0, 1e-5
    ins = counted(rng, rate * np.exp(epsilon) + delta, 2000, 2000)
    outs = counted(rng, rate, 2000, 2000)
    values = [pair_epsilon(a, b, alpha=ALPHA, delta=delta) for a, b in zip(ins, outs, strict=True)]
    too_high = np.mean(np.array(values) > epsilon)
    assert too_high <= ALPHA
    # …and it is a bound that says something.
    assert np.mean(values) > 0.7 * epsilon
    mu = 1.0
    positives = counted(rng, norm.sf(mu / 2), 2000, 2000)
    negatives = counted(rng, norm.sf(mu / 2), 2000, 2000)
    bounds = [mu_lower(a, b, alpha=ALPHA) for a, b in zip(positives, negatives, strict=True)]
    assert np.mean(np.array(bounds) > mu) <= ALPHA
    assert np.mean(bounds) > 0.85 * mu


def test_honest_canaries_of_one_run_exceed_the_truth_no_more_often_than_alpha():
    rng = np.random.default_rng(2)
    epsilon, r = 1.0, 200
    q = 1 / (1 + np.exp(-epsilon))
    for v in np.unique(rng.binomial(r, q, 400)):
        found = one_run_epsilon(canaries=r, guesses=r, right=int(v), alpha=ALPHA, delta=0.0)
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
    assert pair_epsilon(a, b, **options) <= pair_ceiling(trials, **options) + 1e-12
    assert mu_lower(a, b, alpha=alpha) <= mu_ceiling(trials, alpha=alpha)


@given(m=st.integers(1, 400), shares=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_one_more_right_guess_never_lowers_a_bound(m, shares):
    r = round(shares[0] * m)
    v = min(round(shares[1] * r), r - 1)
    if v < 0:
        return
    for bound in (
        lambda right: one_run_epsilon(canaries=m, guesses=r, right=right, alpha=ALPHA, delta=1e-5),
        lambda right: one_run_mu(canaries=m, guesses=r, right=right, alpha=ALPHA),
    ):
        assert bound(v + 1) >= bound(v) - 1e-9


def test_a_curve_is_refuted_by_a_worse_one_and_not_by_itself():
    rng = np.random.default_rng(3)
    claim = ClaimedCurve.of(Composition.of([Gaussian(mu=1.0)]), delta=1e-5)
    trials = 50_000
    for mu, refuted in ((1.0, False), (1.2, True)):
        scores = rng.normal(mu, 1, trials), rng.normal(0, 1, trials)
        hits = [Hits(hits=int((each >= mu / 2).sum()), trials=trials) for each in scores]
        assert claim.refuted_by(hits_in=hits[0], hits_out=hits[1], alpha=1e-6) is refuted
        # The complements say the same, whichever world is called `in`.
        swapped = {"hits_in": hits[1].misses, "hits_out": hits[0].misses}
        assert claim.refuted_by(**swapped, alpha=1e-6) is refuted

    def curve(multiplier):
        return ClaimedCurve.of(Composition.of([Gaussian(mu=1 / multiplier)]))

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
        event = best_event(far, near, trials=20_000, alpha=ALPHA, delta=1e-5)
        fresh = event.count(sign * rng.normal(2, 1, 20_000), sign * rng.normal(0, 1, 20_000))
        assert pair_epsilon(*fresh, alpha=ALPHA, delta=1e-5) > 3
    assert middle_threshold(far, near) == pytest.approx(-1, abs=0.1)
    assert (pilot_size(100), pilot_size(5000), pilot_size(100_000)) == (50, 2000, 10_000)


@pytest.mark.parametrize("text", ["1/0", "3/2", "-1/2", "1", "1/2/3", "a/b", "1.5/2", "٣/٤", ""])
def test_text_that_is_no_count_is_refused(text):
    with pytest.raises(ValueError, match="Expected"):
        Hits.parse(text)


def test_values_out_of_range_are_refused_with_what_came():
    good = Hits(hits=1, trials=2)
    with pytest.raises(ValueError, match=r"alpha in \(0, 0.5\), got 0.7"):
        pair_epsilon(good, good, alpha=0.7, delta=0.0)
    with pytest.raises(ValueError, match="right <= guesses <= canaries, got 3 of 2"):
        one_run_mu(canaries=5, guesses=2, right=3, alpha=0.05)
    with pytest.raises(ValueError, match="a law of"):
        Residuals.from_mean_norm("cauchy", vectors=1, dimension=1, mean_norm=1.0)
