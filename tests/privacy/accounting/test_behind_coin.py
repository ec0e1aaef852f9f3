"""Steps behind a coin that may be seen: known answers, and what the mixture is not."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, norm

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import (
    Approximate,
    BernoulliSteps,
    GaussianEvent,
    PoissonSampledGaussian,
    Pure,
    Repeated,
    Zcdp,
    parse_event,
)
from parley.privacy.accounting.subsampled_gaussian import (
    ORDERS,
    _compute_step_rdp,
    compute_epsilons,
    compute_pld_epsilon,
    compute_rdp_epsilon,
)
from parley.privacy.calibration.dp_sgd import calibrate_steps

ADD, REPLACE = "add-or-remove-one", "replace-one"


def step(q: float, sigma: float, relation: str = ADD) -> PoissonSampledGaussian:
    return PoissonSampledGaussian(sampling_rate=q, noise_multiplier=sigma, neighbouring=relation)


def coin(p: float, event: PoissonSampledGaussian, count: int = 1) -> BernoulliSteps:
    return BernoulliSteps(probability=p, event=event, count=count)


def gaussian_delta(mu: float, epsilon: float) -> float:
    return float(
        norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    )


def known_epsilon(p: float, releases: int, mu: float, delta: float) -> float:
    """Σ_j Bin(T, p)(j)·δ_Gauss(ε; √j·μ) = δ, solved: of how many rounds one was in."""
    weights = binom.pmf(np.arange(releases + 1), releases, p)

    def excess(epsilon: float) -> float:
        terms = (w * gaussian_delta(math.sqrt(j) * mu, epsilon) for j, w in enumerate(weights) if j)
        return math.log((sum(terms) + 1e-300) / delta)

    return float(brentq(excess, 1e-3, 50))


@pytest.mark.parametrize(
    ("relation", "p", "releases", "mu"),
    [(ADD, 0.01, 100, 0.6), (REPLACE, 0.1, 100, 0.5), (REPLACE, 0.3, 20, 1.0)],
)
def test_gaussians_cost_what_the_rounds_that_one_is_in_cost(
    relation: str, p: float, releases: int, mu: float
) -> None:
    lengths = 2 if relation == REPLACE else 1
    event = coin(p, step(1.0, lengths / mu, relation))
    known = known_epsilon(p, releases, mu, 1e-5)
    account = compute_epsilons({event: releases}, delta=1e-5)
    assert known <= account["pld"] <= known * 1.001 + 1e-4
    assert account["pld"] <= account["rdp"] <= 1.5 * known


def test_a_million_runs_have_the_divergence_that_is_charged_and_refute_a_coin_a_step() -> None:
    """δ(ε) = E(1 − e^(ε−L))⁺ over L, what is lost in a run: coins are seen, and then the sums."""
    p, count, releases, mu, delta = 0.1, 20, 5, 0.4, 0.02
    event = step(1.0, 1 / mu)
    epsilon = compute_pld_epsilon(((coin(p, event, count), releases),), delta=delta)
    apart = compute_pld_epsilon(((coin(p, event), count * releases),), delta=delta)
    rng = np.random.default_rng(5)
    runs = 1_000_000
    mus = mu * np.sqrt(count * rng.binomial(releases, p, runs))
    losses = mus**2 / 2 + mus * rng.standard_normal(runs)

    def estimate(at: float) -> tuple[float, float]:
        values = -np.expm1(np.minimum(at - losses, 0.0))
        return float(values.mean()), float(values.std() / math.sqrt(runs))

    found, deviation = estimate(epsilon)
    assert abs(found - delta) < 5 * deviation  # missed with probability 6·10⁻⁷
    found, deviation = estimate(apart)
    assert found - 5 * deviation > delta


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_renyi_divergences_are_those_of_the_mixture(relation: str) -> None:
    q, sigma, p, count = 0.2, 1.5, 0.05, 3
    mirrored = -1 if relation == REPLACE else 0

    x = np.linspace(-25, 45, 200_001)
    rest = math.log1p(-q) + norm.logpdf(x, 0, sigma)
    over = np.logaddexp(rest, math.log(q) + norm.logpdf(x, 1, sigma))
    under = np.logaddexp(rest, math.log(q) + norm.logpdf(x, mirrored, sigma))

    def moment(alpha: float) -> float:
        return float(np.exp(alpha * over + (1 - alpha) * under).sum() * (x[1] - x[0]))

    found = _compute_step_rdp(coin(p, step(q, sigma, relation), count))
    for alpha in (2.0, 4.0, 12.0):
        direct = math.log1p(p * (moment(alpha) ** count - 1)) / (alpha - 1)
        assert found[ORDERS.index(alpha)] == pytest.approx(direct, rel=1e-8)


def test_more_likely_costs_more_and_never_more_than_always() -> None:
    event = step(0.5, 2.0, REPLACE)
    for account in (compute_pld_epsilon, compute_rdp_epsilon):
        rising = [account(((coin(p, event, 4), 10),), delta=1e-5) for p in (0.01, 0.1, 0.5, 0.99)]
        assert all(one < other for one, other in pairwise(rising))
        assert rising[-1] <= account(((event, 40),), delta=1e-5) * (1 + 1e-9)
    kind = coin(0.3, event, 4)
    assert kind.exact_rho == 4 * event.exact_rho
    assert (_compute_step_rdp(kind) <= float(kind.exact_rho) * np.asarray(ORDERS)).all()


def test_it_is_kept_in_a_ledger_and_composes_with_all_else() -> None:
    event = coin(0.1, step(0.5, 2.0), 4)
    whole = Approximate(event=Repeated(event=event, count=3), delta=1e-12)
    assert parse_event(json.loads(json.dumps(whole.to_json()))) == whole
    assert list(whole.iterate_leaves()) == [(event, 3)]
    parts = (whole, Repeated(event=event.event, count=2), GaussianEvent(mu=0.2), Pure(epsilon=0.1))
    total = Composition.from_events(parts)
    again = Composition.from_json(json.loads(json.dumps(total.to_json())))
    assert again == total == Composition.from_events(reversed(parts))
    found = total.compute_epsilons(1e-5)
    assert {"pld", "rdp", "cks20", "zcdp", "mixed"} == set(found)
    alone = [Composition.from_events([part]).compute_lowest_epsilon(1e-5)[1] for part in parts]
    assert max(alone) < min(found.values()) <= found["pld"] < sum(alone)
    assert "pld" not in Composition.from_events([*parts, Zcdp(rho=0.1)]).compute_epsilons(1e-5)
    with pytest.raises(ValueError, match="one neighbouring relation"):
        Composition.from_events([event, step(0.5, 2.0, REPLACE)])


@pytest.mark.parametrize(
    "change",
    [
        {"probability": 0.0},
        {"probability": 1.0},
        {"probability": math.nan},
        {"count": 0},
        {"count": True},
        {"event": GaussianEvent(mu=1.0).to_json()},
        {"event": coin(0.1, step(0.5, 2.0)).to_json()},
        {"kind": "behind-two-coins"},
    ],
)
def test_what_is_no_such_coin_is_refused(change: dict[str, object]) -> None:
    good = coin(0.1, step(0.5, 2.0), 4).to_json()
    assert parse_event(good).exact_rho
    with pytest.raises(ValueError, match=r"^Expected .* got "):
        parse_event(good | change)


def test_calibration_meets_the_budget_with_a_fraction_of_the_noise() -> None:
    sigma = calibrate_steps(
        sampling_rate=0.5, steps=300, epsilon=2.0, delta=1e-5, probability=0.01, together=3
    )
    event = coin(0.01, step(0.5, sigma, REPLACE), 3)
    assert 1.998 <= compute_pld_epsilon(((event, 100),), delta=1e-5) <= 2.0
    assert compute_rdp_epsilon(((step(0.5, 5 * sigma, REPLACE), 300),), delta=1e-5) > 2.1


def test_calibration_refuses_what_delta_alone_would_cover_and_broken_blocks() -> None:
    asked = {"sampling_rate": 1.0, "steps": 2, "epsilon": 2.0}
    with pytest.raises(ValueError, match=r"delta below 0\.000199, the chance .* got 0\.0002"):
        calibrate_steps(**asked, delta=2e-4, probability=1e-4)
    # Far from what RDP says, where the search begins.
    assert 0 < calibrate_steps(**asked, delta=1.8e-4, probability=1e-4) < 1
    with pytest.raises(ValueError, match="a multiple of 3"):
        calibrate_steps(**asked, delta=1e-5, probability=0.1, together=3)
