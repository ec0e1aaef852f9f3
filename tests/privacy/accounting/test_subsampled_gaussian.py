"""DP-SGD's accounts: known answers, the libraries' traps, calibration, composition."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
from dp_accounting.rdp import compute_epsilon

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.dp_accounting_adapter import (
    _compute_step_loss,
    compose_step_losses,
    compute_add_remove_rdp,
    convert_rdp_to_epsilon,
)
from parley.privacy.accounting.gaussian_curve import (
    compute_gaussian_delta,
    compute_gaussian_epsilon,
)
from parley.privacy.accounting.privacy_events import (
    BernoulliSteps,
    GaussianEvent,
    PoissonSampledGaussian,
    PrivacyEvent,
    Pure,
    Zcdp,
    parse_event,
)
from parley.privacy.accounting.subsampled_gaussian import (
    ORDERS,
    compute_epsilons,
    compute_pld_epsilon,
    compute_rdp_epsilon,
)
from parley.privacy.calibration.dp_sgd import calibrate_steps
from parley.privacy.mechanisms.subsampled_gaussian import PartySteps

ADD, REPLACE = "add-or-remove-one", "replace-one"


def steps(q: float, sigma: float, relation: str = ADD) -> PoissonSampledGaussian:
    return PoissonSampledGaussian(sampling_rate=q, noise_multiplier=sigma, neighbouring=relation)


def test_abadi_setting_costs_what_the_specification_says() -> None:
    account = compute_epsilons({steps(0.01, 4.0): 10_000}, delta=1e-5)
    assert account["rdp"] == pytest.approx(1.03549, abs=1e-5)
    assert account["pld"] == pytest.approx(0.946868, rel=3e-4)
    assert account["pld"] >= 0.946868 - 1e-6


def test_replace_one_full_batches_are_the_exact_gaussian_in_both_accounts() -> None:
    # μ = √100·2/40 = 1/2; given σ/2 instead of σ, the library's PLD would say 1.0.
    full = steps(1.0, 40.0, REPLACE)
    exact = compute_gaussian_epsilon(0.5, 1e-5)
    assert compute_pld_epsilon(((full, 100),), delta=1e-5) == pytest.approx(exact, rel=1e-4)
    assert compute_rdp_epsilon(((full, 100),), delta=1e-5) == pytest.approx(2.16572, abs=1e-4)


def test_laplace_among_gaussians_is_bounded_and_near_the_known_answer() -> None:
    # Laplace b = 2 with 100 Gaussians of σ = 20, Δ = 1: ε = 2.41519 for Laplace's own curve; a
    # release known only to be ½-DP costs a little more.
    value = compute_pld_epsilon((), delta=1e-5, mu=0.5, pure=0.5)
    assert 2.41519 <= value <= 2.48
    from dp_accounting.pld import privacy_loss_distribution as pld

    laplace = pld.from_laplace_mechanism(2.0)
    both = laplace.compose(pld.from_gaussian_mechanism(2.0))
    assert both.get_epsilon_for_delta(1e-5) == pytest.approx(2.41519, abs=2e-4)


@pytest.mark.parametrize(("q", "sigma"), [(0.1, 1.5), (0.3, 0.8), (0.02, 3.0)])
def test_replace_one_pair_is_the_worst_of_all_pairs_in_the_plane(q: float, sigma: float) -> None:
    """δ(ε) of one step for gradients at any angle and length never exceeds the opposite pair's."""
    axis = np.linspace(-1 - 7 * sigma, 1 + 7 * sigma, 600)
    x, y = np.meshgrid(axis, axis)
    area = (axis[1] - axis[0]) ** 2

    def density(at: tuple[float, float]) -> np.ndarray:
        squares = (x - at[0]) ** 2 + (y - at[1]) ** 2
        return np.exp(-squares / (2 * sigma**2)) / (2 * math.pi * sigma**2)

    def delta(first: tuple[float, float], second: tuple[float, float], epsilon: float) -> float:
        rest = (1 - q) * density((0.0, 0.0))
        p, other = rest + q * density(first), rest + q * density(second)
        return float(np.maximum(p - math.exp(epsilon) * other, 0).sum() * area)

    rng = np.random.default_rng(3)
    for epsilon in (0.0, 0.1, 0.5):
        worst = delta((1.0, 0.0), (-1.0, 0.0), epsilon)
        for _ in range(12):
            angle, lengths = rng.uniform(0, math.pi), rng.uniform(0, 1, 2)
            if rng.random() < 0.5:
                lengths[:] = 1
            first = (lengths[0], 0.0)
            second = (lengths[1] * math.cos(angle), lengths[1] * math.sin(angle))
            assert delta(first, second, epsilon) <= worst + 1e-6


def test_replace_one_rdp_agrees_with_integration_and_never_beats_pld_by_magic() -> None:
    kind = steps(0.05, 1.2, REPLACE)
    account = compute_epsilons({kind: 300}, delta=1e-6)
    assert account["pld"] <= account["rdp"]
    # Twice the sensitivity without sampling is an upper bound.
    assert account["rdp"] <= compute_gaussian_epsilon(math.sqrt(300) * 2 / 1.2, 1e-6)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_calibration_meets_the_budget_closely(relation: str, epsilon: float) -> None:
    sigma = calibrate_steps(
        sampling_rate=0.01, steps=10_000, epsilon=epsilon, delta=1e-5, neighbouring=relation
    )
    spent = compute_pld_epsilon(((steps(0.01, sigma, relation), 10_000),), delta=1e-5)
    assert epsilon * 0.999 <= spent <= epsilon


def test_calibration_beside_a_gaussian_release_keeps_the_total() -> None:
    sigma = calibrate_steps(
        sampling_rate=0.05, steps=200, epsilon=1.0, delta=1e-5, neighbouring=ADD, mu=0.1
    )
    assert 0.998 <= compute_pld_epsilon(((steps(0.05, sigma), 200),), delta=1e-5, mu=0.1) <= 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampling_rate": 0.0}, "sampling rate in"),
        ({"sampling_rate": 1.5}, "sampling rate in"),
        ({"steps": 0}, "steps ≥ 1"),
        ({"delta": 0.0}, r"delta in \(0, 1\), got 0: .* no pure guarantee"),
        ({"epsilon": 1000.0, "slack": 1e-20}, r"epsilon below 34\.5 at delta = 1e-05, got 1000: "),
        ({"epsilon": 1000.0, "slack": 1e-4}, r"epsilon below 0 at delta = 1e-05, got 1000: "),
        ({"epsilon": -1.0}, "epsilon"),
    ],
)
def test_calibration_says_what_is_out_of_range(change: dict[str, float], message: str) -> None:
    good = {"sampling_rate": 0.1, "steps": 10, "epsilon": 1.0, "delta": 1e-5}
    with pytest.raises(ValueError, match=message):
        calibrate_steps(**(good | change))


def release(count: int = 50, relation: str = REPLACE) -> PrivacyEvent:
    return PartySteps(
        sensitivity=2.0 if relation == REPLACE else 1.0,
        dimension=100,
        clip_norm=1.0,
        noise_multiplier=4.0,
        sampling_rate=0.05,
        steps=count,
        neighbouring=relation,
    ).event()


def test_steps_compose_in_a_composition_and_every_prefix_costs_less() -> None:
    spent = Composition()
    values = []
    for _ in range(4):
        spent = spent.add(release())
        name, value = spent.compute_lowest_epsilon(1e-5)
        assert name == "pld"
        values.append(value)
    assert all(before < after for before, after in pairwise(values))
    whole = compute_epsilons({steps(0.05, 4.0, REPLACE): 200}, delta=1e-5)
    assert values[-1] == pytest.approx(whole["pld"], rel=1e-6)
    assert spent == Composition().add(release(), count=4)


def test_a_composition_of_steps_gaussians_and_pure_releases_survives_json() -> None:
    spent = (
        Composition().add(GaussianEvent(mu=0.1)).add(release(), count=3).add(Pure(epsilon=0.125))
    )
    assert Composition.from_json(spent.to_json()) == spent
    event = release()
    assert parse_event(event.to_json()) == event
    values = spent.compute_epsilons(1e-5)
    assert values["pld"] < min(value for name, value in values.items() if name != "pld")
    alone = Composition().add(release(), count=3).compute_epsilons(1e-5)
    assert values["pld"] > alone["pld"]
    assert values["rdp"] > alone["rdp"]


def test_a_discrete_gaussian_beside_steps_is_converted_by_rdp_alone() -> None:
    mixed = Composition().add(release()).add(Zcdp(rho=0.01))
    assert "pld" not in mixed.compute_epsilons(1e-5)
    assert mixed.compute_lowest_epsilon(1e-5)[0] == "rdp"


def test_two_neighbouring_relations_are_not_composed() -> None:
    with pytest.raises(ValueError, match="one neighbouring relation"):
        Composition().add(release()).add(release(relation=ADD))


def test_full_batches_are_charged_as_the_gaussians_they_are() -> None:
    event = PartySteps(
        sensitivity=2.0,
        dimension=10,
        clip_norm=1.0,
        noise_multiplier=8.0,
        sampling_rate=1.0,
        steps=16,
        neighbouring=REPLACE,
    ).event()
    [(gaussian, count)] = event.iterate_leaves()
    assert isinstance(gaussian, GaussianEvent)
    assert count == 1
    assert gaussian.mu == pytest.approx(1.0, rel=1e-12)
    assert gaussian.mu >= 1.0
    assert compute_gaussian_delta(1.0, 1.0) == pytest.approx(0.126937, abs=1e-6)


@pytest.mark.parametrize(
    ("rate", "sigma", "relation"),
    [(0.01, 1.0, "add-or-remove-one"), (0.2, 0.8, "replace-one"), (1.0, 20.0, "replace-one")],
)
def test_a_composed_loss_is_the_librarys(rate, sigma, relation):
    kind = PoissonSampledGaussian(sampling_rate=rate, noise_multiplier=sigma, neighbouring=relation)
    for count in (1, 3, 150, 400):
        own = compose_step_losses(((kind, count),), 0.0, 0.0, 1e-3)
        known = _compute_step_loss(kind, 1e-3)[0].self_compose(count)
        for delta in (0.5, 1e-3, 1e-9):
            assert own.compute_epsilon(delta + own.lost) == pytest.approx(
                known.get_epsilon_for_delta(delta), rel=1e-9
            )
    assert math.isinf(own.compute_epsilon(own.lost))


@pytest.mark.parametrize("count", [1, 30, 1000, 100_000])
@pytest.mark.parametrize("mu", [1.0, 3.0])
def test_no_transform_rounds_an_epsilon_below_the_truth(count, mu):
    """Drill: at δ = 10⁻¹² a hundred thousand steps were charged 2.4 % less than they cost."""
    kind = PoissonSampledGaussian(
        sampling_rate=1.0, noise_multiplier=math.sqrt(count) / mu, neighbouring=ADD
    )
    for delta, beside in product((1e-5, 1e-9, 1e-11, 1e-13), (0.0, 0.5)):
        exact = compute_gaussian_epsilon(math.hypot(mu, beside), delta)
        charged = compute_pld_epsilon(((kind, count),), delta=delta, mu=beside)
        assert charged >= exact * (1 - 1e-12)
        assert charged < exact * 1.001 or delta < 1e-5


def test_a_loss_that_ends_with_places_without_mass_is_charged_whole():
    """Drill: its moments were −∞, and the direction that decides was left out."""
    kind = BernoulliSteps(probability=0.5, event=steps(1e-4, 5.0), count=10)
    for count, delta in product((1, 5, 100), (1e-6, 1e-8)):
        known = _compute_step_loss(kind, 1e-4)[0].self_compose(count).get_epsilon_for_delta(delta)
        own = compose_step_losses(((kind, count),), 0.0, 0.0, 1e-4)
        assert own.compute_epsilon(delta + own.lost) == pytest.approx(known, rel=1e-9)


def test_an_epsilon_of_renyi_divergences_is_the_librarys():
    for count, delta in product((1, 100, 100_000), (0.9, 0.1, 1e-6, 1e-15)):
        divergences = count * compute_add_remove_rdp(0.01, 1.0, ORDERS)
        known, _ = compute_epsilon(ORDERS, divergences, delta)
        assert convert_rdp_to_epsilon(ORDERS, divergences, delta) == pytest.approx(known, rel=1e-12)
    # An order that could not be computed says nothing.
    assert convert_rdp_to_epsilon((2.0, 3.0), np.array([math.nan, math.inf]), 1e-6) == math.inf
