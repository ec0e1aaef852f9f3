"""Certificates: constants, and analysts who choose the next release by the answers so far.

The adversaries are played out against `DatasetBudget`, the test by which accounts admit releases,
and against an account that charges the lowest of all bounds, as accounts did before. δ is computed
by
dynamic programming over stopping rules, or exactly over all outcomes: no test draws noise.
"""

import math
from dataclasses import replace
from functools import cache

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from parley.privacy.accounting import privacy_filters
from parley.privacy.accounting.account_admission import AccountCertificate
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.dp_accounting_adapter import compose_step_losses
from parley.privacy.accounting.gaussian_curve import (
    compute_gaussian_delta,
    compute_gaussian_epsilon,
)
from parley.privacy.accounting.privacy_events import (
    Approximate,
    BoundedRange,
    GaussianEvent,
    PoissonSampledGaussian,
    Pure,
    Zcdp,
    parse_event,
)
from parley.privacy.accounting.privacy_filters import compute_mu, compute_rho
from parley.privacy.accounting.subsampled_gaussian import build_planned_steps
from parley.privacy.accounting.threat_model import Neighbouring, Unit
from parley.privacy.calibration.inverse_curves import compute_gaussian_mu, find_largest
from parley.privacy.ledger.budget import DatasetBudget, compute_account_epsilon

DELTA = 1e-5
MOST = 1.00002
"""Times the δ that is charged; the grid of the dynamic programme errs by less."""

GAUSSIAN = DatasetBudget(
    name="adult",
    fingerprint="sha256:0c4a",
    unit=Unit.RECORD,
    neighbouring=Neighbouring.REPLACE_ONE,
    certificate=AccountCertificate.GAUSSIAN,
    epsilon=1.0,
    delta=DELTA,
    reserved_delta=0.0,
)
ZCDP = replace(GAUSSIAN, certificate=AccountCertificate.ZCDP)
LOWEST = replace(GAUSSIAN, certificate=AccountCertificate.LOWEST_BOUND)


# Constants


@pytest.mark.parametrize(
    ("epsilon", "mu", "rho"),
    [
        (0.1, 0.125309, 0.004996),
        (0.5, 0.623893, 0.122459),
        (1.0, 1.232035, 0.462117),
        (2.0, 2.357961, 1.523188),
        (4.0, 4.194478, 3.856110),
        (8.0, 6.802569, 7.994635),
    ],
)
def test_pure_releases_have_the_mu_and_rho_of_randomised_response(epsilon, mu, rho):
    event = Pure(epsilon=epsilon)
    assert compute_mu(event) == pytest.approx(mu, abs=1e-6)
    assert float(compute_rho(event)) == pytest.approx(rho, abs=1e-6)
    with mpmath.workdps(40):
        p = 1 / (1 + mpmath.exp(epsilon))
        exact_mu = -2 * mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1)
        exact_rho = epsilon * mpmath.tanh(mpmath.mpf(epsilon) / 2)
        # Rounded up, and by little.
        assert exact_mu <= compute_mu(event) <= exact_mu * (1 + 1e-12)
        assert exact_rho <= float(compute_rho(event)) <= exact_rho * (1 + 1e-12)
        # Of Rényi divergences over their order the limit at 1 is the largest.
        orders = [1 + mpmath.mpf(10) ** k for k in np.linspace(-6, 3, 60)]
        divergences = [
            mpmath.log((1 - p) ** a * p ** (1 - a) + p**a * (1 - p) ** (1 - a)) / (a - 1)
            for a in orders
        ]
        assert max(d / a for d, a in zip(divergences, orders, strict=True)) <= exact_rho


@pytest.mark.parametrize("epsilon", [1e-9, 1e-6, 1e-3, 30.0, 300.0])
def test_the_mu_of_a_pure_release_is_rounded_up_at_both_ends(epsilon):
    with mpmath.workdps(320):
        p = 1 / (1 + mpmath.exp(epsilon))
        found = mpmath.mpf(compute_mu(Pure(epsilon=epsilon)))
        # P[Z > μ/2] ≤ p says that μ is no less than exact.
        assert mpmath.erfc(found / 2 / mpmath.sqrt(2)) / 2 <= p
        assert mpmath.erfc(found * (1 - 1e-5) / 2 / mpmath.sqrt(2)) / 2 > p


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0, 8.0])
def test_a_bounded_range_has_the_mu_of_half_its_epsilon(epsilon):
    event = BoundedRange(epsilon=epsilon, rho=epsilon**2 / 8)

    def mu_at(t):  # two outcomes, with likelihood ratios e^t and e^(t − ε)
        a = math.expm1(epsilon - t) / (math.exp(epsilon - t) - math.exp(-t))
        return float(ndtri(a) - ndtri(a * math.exp(-t)))

    brute = max(map(mu_at, np.linspace(1e-6, epsilon - 1e-6, 4001)))
    assert compute_mu(event) == pytest.approx(brute, abs=1e-6)
    assert compute_mu(event) >= brute - 1e-12
    assert float(compute_rho(event)) == pytest.approx(
        min(epsilon**2 / 8, epsilon * math.tanh(epsilon / 2))
    )
    assert parse_event(event.to_json()) == event


def test_a_release_of_which_only_rho_is_known_is_refused_by_a_gaussian_account():
    spent = Composition.from_events([Zcdp(rho=1e-6)])
    assert GAUSSIAN.compute_epsilon(spent) == math.inf
    assert ZCDP.can_admit(spent)
    assert not replace(GAUSSIAN, certificate=AccountCertificate.PURE).can_admit(spent)


def test_approximations_are_paid_for_out_of_the_part_that_is_kept_for_them():
    limits = replace(GAUSSIAN, reserved_delta=DELTA / 100)
    most = limits.reserved_delta / (1 + math.e)
    event = Approximate(event=GaussianEvent(mu=0.01), delta=most * 0.49)
    assert limits.can_admit(Composition().add(event, 2))
    assert not limits.can_admit(Composition().add(event, 3))
    assert not GAUSSIAN.can_admit(Composition.from_events([event]))


def test_a_pure_account_pays_for_its_samplers_out_of_delta():
    limits = replace(
        GAUSSIAN, certificate=AccountCertificate.PURE, epsilon=1.0, delta=1e-9, reserved_delta=0.0
    )
    most = limits.delta / (1 + math.exp(0.4))  # by the largest of them
    event = Approximate(event=Pure(epsilon=0.4), delta=most * 0.49)
    assert limits.can_admit(Composition().add(event, 2))
    assert not limits.can_admit(Composition().add(replace(event, delta=most * 0.51), 2))
    assert not replace(limits, delta=0.0).can_admit(Composition.from_events([event]))


@pytest.mark.parametrize(
    "event", [Pure(epsilon=39.0), GaussianEvent(mu=5.5)], ids=["pure", "gaussian"]
)
def test_no_epsilon_is_admitted_at_which_the_samplers_would_take_more_than_is_kept(event):
    limits = replace(
        GAUSSIAN,
        certificate=AccountCertificate.GAUSSIAN,
        epsilon=40.0,
        delta=DELTA,
        reserved_delta=1e-7,
    )
    assert limits.compute_epsilon(Composition.from_events([event])) > 36
    assert limits.can_admit(Composition.from_events([event]))
    near = Approximate(event=event, delta=2.0**-72)
    assert (1 + math.exp(36)) * near.delta > limits.reserved_delta
    assert not limits.can_admit(Composition.from_events([near]))


@pytest.mark.parametrize("certificate", ["pure", "gaussian", "zcdp", "plan"])
def test_a_budget_is_overrun_by_rounding_only(certificate):
    limits = replace(
        GAUSSIAN,
        certificate=AccountCertificate(certificate),
        epsilon=1.0,
        delta=DELTA,
        reserved_delta=DELTA / 100,
    )
    assert limits.can_admit(Composition.from_events([Pure(epsilon=1.0 + 1e-10)]))
    assert not limits.can_admit(Composition.from_events([Pure(epsilon=1.0 + 1e-8)]))
    assert not limits.can_admit(Composition().add(Pure(epsilon=0.25 + 1e-8), 4))


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0, 8.0])
def test_the_rho_of_a_bounded_range_holds_at_every_order(epsilon):
    rho = float(compute_rho(BoundedRange(epsilon=epsilon, rho=epsilon**2 / 8)))
    with mpmath.workdps(30):
        for t in np.linspace(0.05, 0.95, 7) * epsilon:  # likelihood ratios e^t and e^(t − ε)
            q = (1 - mpmath.exp(t - epsilon)) / (mpmath.exp(t) - mpmath.exp(t - epsilon))
            p = q * mpmath.exp(t)
            for order in (1 + mpmath.mpf(10) ** k for k in range(-6, 4)):
                moment = p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)
                assert mpmath.log(moment) / (order - 1) / order <= rho + 1e-6


# Analysts


def stopping(limits, *, releases, claim=None):
    """δ over the charged one: equal Gaussians, and at the best moment what is left as a coin.

    After each Gaussian the analyst may stop, and ask by randomised response of the largest ε that
    the account still admits. With `claim`: stop, and claim that ε for what was released.
    """
    epsilon = limits.epsilon
    mu = find_largest(
        lambda m: limits.can_admit(Composition.from_events([GaussianEvent(mu=m)])), start=1e-9
    )
    total, step = mu**2, mu**2 / releases
    h = math.sqrt(step) / {2: 300, 10: 120, 100: 40, 400: 20}[releases]
    low, high = -6 * mu - 0.5, total / 2 + 8.5 * mu
    loss = low + h * np.arange(int((high - low) / h) + 1)
    reach = int(8 * math.sqrt(step) / h) + 1
    weights = np.exp(-((np.arange(-reach, reach + 1) * h - step / 2) ** 2) / (2 * step))
    weights /= weights.sum()

    def before(values):
        padded = np.pad(values, reach, mode="edge")
        size = 1 << (len(padded) + len(weights)).bit_length()
        found = np.fft.irfft(np.fft.rfft(padded, size) * np.fft.rfft(weights[::-1], size), size)
        return found[2 * reach : 2 * reach + len(values)]

    def payoff(made):
        spent = Composition().add(GaussianEvent(mu=mu / math.sqrt(releases) * (1 - 1e-12)), made)
        if claim is not None:
            return np.maximum(0, -np.expm1(claim(spent) - loss))
        coin = find_largest(lambda p: limits.can_admit(spent.add(Pure(epsilon=p))), start=1e-9)
        heads = 1 / (1 + math.exp(-coin))
        of = (heads, coin), (1 - heads, -coin)
        return sum(w * np.maximum(0, -np.expm1(epsilon - loss - own)) for w, own in of)

    value = payoff(releases)
    for made in range(releases - 1, 0, -1):
        value = np.maximum(payoff(made), before(value))
    return float(np.interp(0.0, loss, before(value))) / limits.delta


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("limits", [GAUSSIAN, ZCDP], ids=["gaussian", "zcdp"])
def test_who_changes_the_kind_of_noise_by_the_answers_gains_nothing(limits, epsilon):
    for releases in (2, 10):
        assert stopping(replace(limits, epsilon=epsilon), releases=releases) <= MOST


@pytest.mark.heavy  # a minute: long convolutions, and a bisection per stop
@pytest.mark.parametrize(("releases", "exceeds"), [(100, 6.33), (400, 8.18)])
def test_who_changes_the_kind_of_noise_late_gains_nothing(releases, exceeds):
    for limits in (GAUSSIAN, ZCDP):
        assert stopping(limits, releases=releases) <= MOST
    assert stopping(GAUSSIAN, releases=releases, claim=lambda _: 1.0) <= MOST
    assert stopping(LOWEST, releases=releases) == pytest.approx(exceeds, rel=0.02)
    assert stopping(GAUSSIAN, releases=releases, claim=GAUSSIAN.compute_epsilon) > 5


def test_who_stops_by_the_answers_gains_nothing_over_the_budget():
    assert stopping(GAUSSIAN, releases=10, claim=lambda _: 1.0) <= MOST


def test_an_account_that_charges_the_lowest_bound_is_exceeded():
    assert stopping(LOWEST, releases=10) == pytest.approx(3.06, abs=0.1)
    assert stopping(LOWEST, releases=2) > 1.3
    # What was spent so far is no bound, if the answers say when to stop.
    assert stopping(GAUSSIAN, releases=10, claim=GAUSSIAN.compute_epsilon) > 1.3


def hockey_stick(mu, epsilon):
    """δ of a Gaussian at any real ε."""
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0, 8.0])
def test_the_sum_of_pure_releases_next_to_one_filter_is_free(epsilon):
    limits = replace(GAUSSIAN, epsilon=epsilon)
    for share in np.linspace(0.02, 0.98, 9):
        first = share * epsilon
        found, heads = 0.0, 1 / (1 + math.exp(-first))
        before = Composition.from_events([Pure(epsilon=first)])
        pure = epsilon - first
        assert limits.can_admit(before.add(Pure(epsilon=pure)))
        mu = find_largest(
            lambda m, b=before: limits.can_admit(b.add(GaussianEvent(mu=m))), start=1e-9
        )
        coin = 1 / (1 + math.exp(-pure))
        for weight, loss in ((heads, first), (1 - heads, -first)):
            of_pure = sum(
                w * max(0.0, -math.expm1(epsilon - loss - own))
                for w, own in ((coin, pure), (1 - coin, -pure))
            )
            of_gaussian = hockey_stick(mu, epsilon - loss) if mu > 1e-6 else 0.0
            found += weight * max(of_pure, of_gaussian)
        assert found <= DELTA * MOST


X = np.linspace(-9, 9, 6001)
WEIGHTS = np.exp(-(X**2) / 2) / math.sqrt(2 * math.pi) * (X[1] - X[0])
RATE, STEPS = 0.0005, 500


def sampled(sigma):
    return PoissonSampledGaussian(
        sampling_rate=RATE, noise_multiplier=sigma, neighbouring="replace-one"
    )


@cache
def job_curve(sigma):
    (curve,) = compose_step_losses(((sampled(sigma), STEPS),), 0.0, 0.0, 1e-4).iterate_curves()
    return curve[0][::-1], curve[1][::-1]


def job_or_gaussian(sigma, first, second):
    """δ of a Gaussian, then by its answer another one or a job of sampled steps; over δ."""
    epsilons, deltas = job_curve(sigma)
    left = 1.0 - (first**2 / 2 + first * X)
    above = np.interp(np.maximum(left, 0), epsilons, deltas)
    below = np.interp(np.maximum(-left, 0), epsilons, deltas)  # both directions are one curve
    job = np.where(left >= 0, above, -np.expm1(np.minimum(left, 0)) + np.exp(left) * below)
    other = ndtr(second / 2 - left / second) - np.exp(left) * ndtr(-second / 2 - left / second)
    return float(WEIGHTS @ np.maximum(job, other)) / DELTA


def least(holds, low=0.5, high=1.5):
    """The least σ found for which `holds`."""
    while high - low > 0.004:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def test_who_chooses_a_job_of_sampled_steps_by_the_answers_gains_nothing():
    limits = replace(GAUSSIAN, reserved_delta=DELTA / 10)
    mu = compute_gaussian_mu(1.0, limits.delta - limits.reserved_delta)
    first = mu * math.sqrt(0.5)
    second = math.sqrt(mu**2 - first**2) * (1 - 1e-9)
    before = Composition.from_events([GaussianEvent(mu=first)])
    part = limits.compute_next_delta(before)

    def admitted(sigma):
        return limits.can_admit(before.add(build_planned_steps(sampled(sigma), STEPS, part)))

    sigma = least(admitted)
    assert job_or_gaussian(sigma, first, second) <= MOST
    # By the bound for the whole of them, which accounts charged before:
    mu = compute_gaussian_mu(1.0, DELTA)
    first = mu * math.sqrt(0.5)
    second = math.sqrt(mu**2 - first**2) * (1 - 1e-9)
    fixed = Composition.from_events([GaussianEvent(mu=first)])
    wrong = least(lambda s: LOWEST.can_admit(fixed.add(sampled(s), STEPS)))
    assert wrong < sigma
    assert job_or_gaussian(wrong, first, second) > 1.3


@pytest.mark.parametrize("neighbouring", ["replace-one", "add-or-remove-one"])
@pytest.mark.parametrize("steps", [(0.01, 200, 1.0), (0.002, 300, 0.7), (1.0, 10, 20.0)])
def test_planned_steps_are_a_gaussian_but_for_their_delta(neighbouring, steps):
    rate, count, sigma = steps
    event = PoissonSampledGaussian(
        sampling_rate=rate, noise_multiplier=sigma, neighbouring=neighbouring
    )
    whole = build_planned_steps(event, count, 1e-6)
    assert whole.mu <= math.sqrt(2 * float(event.exact_rho) * count) * (1 + 1e-12)
    assert parse_event(whole.to_json()) == whole
    loss = compose_step_losses(((event, count),), 0.0, 0.0, 1e-4)
    for epsilon in np.linspace(0, 4, 41):
        if 1e-8 < (allowed := compute_gaussian_delta(whole.mu, epsilon) + whole.delta) < 1:
            assert loss.compute_epsilon(allowed * (1 + 1e-9)) <= epsilon + 2e-4
    # A μ that is 2 % lower is none: the bound is no looser than it has to be.
    lower, slack = 0.98 * whole.mu, whole.delta
    assert rate == 1 or any(
        loss.compute_epsilon(compute_gaussian_delta(lower, e) + slack) > e
        for e in np.linspace(0, 6, 601)
    )


def test_the_parts_of_delta_that_jobs_take_add_up_to_what_is_kept_for_them():
    limits = replace(GAUSSIAN, epsilon=50.0, reserved_delta=DELTA / 10)
    spent = Composition()
    for number in range(1, 30):
        part = limits.compute_next_delta(spent)
        assert part == pytest.approx(limits.reserved_delta / (number * (number + 1)), rel=1e-9)
        spent = spent.add(build_planned_steps(sampled(3.0), 10, part))
        assert limits.can_admit(spent)
    assert limits.compute_used_delta(spent) <= limits.reserved_delta


# Random strategies, exactly


def two_outcomes(epsilon, share=0.5):
    """Probabilities of two outcomes with likelihood ratios e^t and e^(t − ε), t = share·2ε."""
    t = min(share * epsilon * 2, epsilon)
    q = (1 - math.exp(t - epsilon)) / (math.exp(t) - math.exp(t - epsilon)) if epsilon else 0.5
    return [(q * math.exp(t), q), (1 - q * math.exp(t), 1 - q)]


def randomised_response(epsilon):
    heads = 1 / (1 + math.exp(-epsilon))
    return [(heads, 1 - heads), (1 - heads, heads)]


def binned_gaussian(mu, cuts):
    """A Gaussian's answer between `cuts`: post-processing, with finitely many outcomes."""
    edges = np.array([-np.inf, *cuts, np.inf])
    with_it, without = np.diff(ndtr(edges - mu)), np.diff(ndtr(edges))
    return list(zip(with_it, without, strict=True))


def random_release(rng, epsilon):
    """An event that may be chosen next, and its outcomes under both neighbours."""
    size = epsilon * rng.choice([0.05, 0.2, 0.5, 0.9, 1.0]) * rng.uniform(0.5, 1)
    match rng.integers(3):
        case 0:
            return Pure(epsilon=size), randomised_response(size)
        case 1:
            rho = size**2 / 8 * (1 + 1e-12)
            return BoundedRange(epsilon=size, rho=rho), two_outcomes(size, rng.uniform(0.1, 0.5))
        case _:
            mu = size / 3
            cuts = np.sort(rng.normal(0, 2, 3)) + mu / 2
            return GaussianEvent(mu=mu), binned_gaussian(mu, cuts)


def exceeded(limits, rng, *, depth=5):
    """P(S) − e^ε·Q(S) of the worst S after a random strategy, and the same the other way round."""

    def play(spent, p, q, level):
        # Which kind, of what size, and whether to stop: of what was seen.
        if level == depth or rng.uniform() < 0.1:
            return np.array([max(0.0, p - bound * q), max(0.0, q - bound * p)])
        for _ in range(6):
            event, outcomes = random_release(rng, limits.epsilon)
            after = spent.add(event)
            if limits.can_admit(after):
                return sum(play(after, p * a, q * b, level + 1) for a, b in outcomes)
        return np.array([max(0.0, p - bound * q), max(0.0, q - bound * p)])

    bound = math.exp(limits.epsilon)
    return float(play(Composition(), 1.0, 1.0, 0).max())


@pytest.mark.parametrize("certificate", ["gaussian", "zcdp", "pure"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_no_random_strategy_exceeds_its_certificate(certificate, epsilon):
    delta = 0.0 if certificate == "pure" else 0.01
    limits = replace(
        GAUSSIAN,
        certificate=AccountCertificate(certificate),
        epsilon=epsilon,
        delta=delta,
        reserved_delta=delta / 100,
    )
    for seed in range(40):
        found = exceeded(limits, np.random.default_rng(seed))
        assert found <= delta * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(
    "mutation",
    [
        ("_compute_pure_mu", lambda epsilon: epsilon / 2),
        ("sum_pure_epsilon", lambda _counts: 0.0),
        ("compute_gaussian_epsilon", lambda mu, delta: compute_gaussian_epsilon(0.5 * mu, delta)),
        ("compute_cks20_epsilon", lambda rho, _delta: rho),
        ("compute_rho", lambda event: compute_rho(event) / 4),
        ("compute_mu", lambda event: event.mu if isinstance(event, GaussianEvent) else 0.0),
    ],
    ids=lambda mutation: mutation[0],
)
def test_a_rule_that_is_weakened_is_found_out(monkeypatch, mutation):
    monkeypatch.setattr(privacy_filters, *mutation)
    compute_account_epsilon.cache_clear()
    try:
        found = [stopping(limits, releases=10) for limits in (GAUSSIAN, ZCDP)]
        for kind in ("pure", "gaussian", "zcdp"):
            delta = 0.0 if kind == "pure" else 0.01
            limits = replace(
                GAUSSIAN,
                certificate=AccountCertificate(kind),
                epsilon=1.0,
                delta=delta,
                reserved_delta=0.0,
            )
            rngs = map(np.random.default_rng, range(12))
            found += [exceeded(limits, rng) / 0.01 for rng in rngs]
    finally:
        compute_account_epsilon.cache_clear()
    assert max(found) > 1.3
