"""Events and compositions: only proved conversions, exact sums, lossless records."""

import itertools
import json
import math
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.gaussian_curve import compute_cks20_epsilon, compute_gaussian_epsilon
from parley.privacy.accounting.privacy_events import (
    Approximate,
    GaussianEvent,
    PoissonSampledGaussian,
    PrivacyEvent,
    Pure,
    Repeated,
    Zcdp,
    parse_event,
)

SLACK = 104 * 2.0**-88

magnitudes = st.floats(1e-6, 3.0)
events = st.one_of(
    st.builds(
        lambda mu, slack: Approximate(event=GaussianEvent(mu=mu), delta=slack),
        magnitudes,
        st.sampled_from([0.0, SLACK]),
    ),
    st.builds(lambda rho: Zcdp(rho=rho), magnitudes),
    st.builds(lambda epsilon: Pure(epsilon=epsilon), magnitudes),
)


def composed(*releases: PrivacyEvent) -> Composition:
    total = Composition()
    for event in releases:
        total = total.add(event)
    return total


def test_rho_is_the_least_of_the_given_and_the_implied():
    assert Pure(epsilon=0.5).exact_rho == Fraction(1, 8)
    assert Pure(epsilon=0.5, rho=0.01).exact_rho == Fraction(1, 100)
    assert Pure(epsilon=0.5, rho=1.0).exact_rho == Fraction(1, 8)
    assert GaussianEvent(mu=0.5).exact_rho == Fraction(1, 8)


def test_events_nest():
    step = PoissonSampledGaussian(
        sampling_rate=0.1, noise_multiplier=2.0, neighbouring="replace-one"
    )
    event = Repeated(event=Approximate(event=Repeated(event=step, count=5), delta=1e-9), count=3)
    assert list(event.iterate_leaves()) == [(step, 15)]
    assert event.sampler_distance == Fraction(3, 10**9)
    assert parse_event(json.loads(json.dumps(event.to_json()))) == event


@pytest.mark.parametrize(
    "build",
    [
        lambda: GaussianEvent(mu=-1.0),
        lambda: GaussianEvent(mu=math.nan),
        lambda: GaussianEvent(mu=True),
        lambda: Zcdp(rho=math.inf),
        lambda: Pure(epsilon="0.5"),
        lambda: Pure(epsilon=0.5, rho=-1.0),
        lambda: Approximate(event=GaussianEvent(mu=1.0), delta=1.0),
        lambda: Approximate(event=GaussianEvent(mu=1.0), delta=-1e-9),
        lambda: Repeated(event=GaussianEvent(mu=1.0), count=0),
        lambda: Repeated(event=GaussianEvent(mu=1.0), count=True),
        lambda: PoissonSampledGaussian(
            sampling_rate=0.0, noise_multiplier=1.0, neighbouring="replace-one"
        ),
    ],
)
def test_events_that_prove_nothing_are_refused(build):
    with pytest.raises(ValueError, match=r"^Expected .* got "):
        build()


@pytest.mark.parametrize(
    "values",
    [
        None,
        {},
        {"kind": "unknown"},
        {"kind": "gaussian"},
        {"kind": "gaussian", "mu": 1.0, "law": "x"},
        {"kind": "repeated", "event": {"kind": "repeated"}, "count": 1},
        {"kind": "approximate", "event": 3, "delta": 0.0},
        {"law": "gaussian", "mu": 0.05, "rho": 0.00125, "epsilon": None, "delta": 0.0},
    ],
)
def test_events_of_unknown_form_are_refused(values):
    with pytest.raises(ValueError, match=r"^Expected"):
        parse_event(values)


def test_events_nested_too_deeply_are_refused():
    event = {"kind": "gaussian", "mu": 1.0}
    for _ in range(10_000):
        event = {"kind": "repeated", "event": event, "count": 1}
    with pytest.raises(ValueError, match=r"^Expected an event"):
        parse_event(event)


def test_gaussians_have_the_exact_curve_and_both_zcdp_conversions():
    total = Composition().add(GaussianEvent(mu=0.05), count=100)
    expected = {
        "exact": compute_gaussian_epsilon(0.5, 1e-5),
        "cks20": compute_cks20_epsilon(0.125, 1e-5),
    }
    values = total.compute_epsilons(1e-5)
    assert set(values) == {"exact", "cks20", "zcdp"}
    assert expected.items() <= values.items()
    assert total.rho == 0.125
    assert total.compute_lowest_epsilon(1e-5) == ("exact", values["exact"])


def test_discrete_gaussians_have_no_exact_curve():
    total = composed(Zcdp(rho=0.5))
    assert set(total.compute_epsilons(1e-5)) == {"cks20", "zcdp"}
    assert set(total.add(GaussianEvent(mu=1.0)).compute_epsilons(1e-5)) == {"cks20", "zcdp"}


def test_pure_events_add_exactly():
    total = Composition().add(Pure(epsilon=0.1), count=10)
    assert total.compute_epsilons(0.0) == {"pure": 1.0}
    assert set(total.compute_epsilons(1e-5)) == {"pure", "cks20", "zcdp"}
    one_by_one = composed(*[Pure(epsilon=0.1)] * 10)
    assert one_by_one == total


def test_mixtures_add_pure_epsilon_to_the_rest():
    gaussians = Composition().add(GaussianEvent(mu=0.05), count=100)
    mixed = gaussians.add(Pure(epsilon=0.5))
    values = mixed.compute_epsilons(1e-5)
    assert set(values) == {"mixed", "cks20", "zcdp"}
    assert values["mixed"] == pytest.approx(0.5 + compute_gaussian_epsilon(0.5, 1e-5), abs=1e-12)
    assert values["cks20"] == pytest.approx(compute_cks20_epsilon(0.25, 1e-5), rel=1e-12)
    assert mixed.compute_epsilons(0.0) == {}
    with_discrete = mixed.add(Zcdp(rho=0.125))
    rest = compute_cks20_epsilon(0.25, 1e-5)
    assert with_discrete.compute_epsilons(1e-5)["mixed"] == pytest.approx(0.5 + rest, abs=1e-12)


def test_nothing_released_costs_nothing():
    assert set(Composition().compute_epsilons(0.0).values()) == {0.0}
    assert Composition().compute_lowest_epsilon(1e-5)[1] == 0.0
    assert Composition().add(GaussianEvent(mu=1.0), count=0) == Composition()


def test_delta_zero_gives_no_epsilon_to_gaussians():
    assert composed(GaussianEvent(mu=1.0)).compute_lowest_epsilon(0.0) == ("none", math.inf)


def test_sampler_distance_is_paid_from_delta_with_its_factor():
    slack = 2.0**-30
    total = composed(Approximate(event=GaussianEvent(mu=1.0), delta=slack))
    epsilon = total.compute_epsilons(1e-5)["exact"]
    left = 1e-5 - (1 + math.exp(epsilon)) * slack
    assert epsilon == pytest.approx(compute_gaussian_epsilon(1.0, left), rel=1e-9)
    assert epsilon >= compute_gaussian_epsilon(1.0, left)
    assert total.compute_sampler_delta(epsilon) == pytest.approx((1 + math.exp(epsilon)) * slack)


def test_sampler_distance_beyond_delta_leaves_no_claim():
    assert (
        composed(Approximate(event=GaussianEvent(mu=1.0), delta=1e-5)).compute_epsilons(1e-5) == {}
    )
    assert (
        composed(Approximate(event=GaussianEvent(mu=60.0), delta=SLACK)).compute_epsilons(1e-5)
        == {}
    )
    pure = composed(Approximate(event=Pure(epsilon=0.5), delta=SLACK))
    assert pure.compute_lowest_epsilon(0.0) == ("none", math.inf)
    assert pure.compute_lowest_epsilon(2.0**-40) == ("pure", 0.5)


def test_many_pure_events_do_not_raise_what_the_others_samplers_cost():
    gaussian = Approximate(event=GaussianEvent(mu=0.02), delta=1e-23)
    total = Composition().add(Pure(epsilon=1.0), count=100).add(gaussian)
    # (1 + e^100)·1e-23 is above any δ; (1 + e^1)·1e-23 is not.
    assert total.compute_lowest_epsilon(1e-6)[0] == "mixed"
    rest = compute_gaussian_epsilon(0.02, 1e-6 * (1 - 1e-9))
    assert total.compute_lowest_epsilon(1e-6)[1] == pytest.approx(100 + rest, rel=1e-9)
    # Nothing says that the distance is not that of the one event of 90.
    assert composed(Pure(epsilon=90.0), gaussian).compute_epsilons(1e-6) == {}
    own = Composition().add(Approximate(event=Pure(epsilon=1.0), delta=1e-23), count=100)
    assert own.compute_lowest_epsilon(1e-12)[1] == 100.0
    assert own.compute_lowest_epsilon(1e-22) == ("none", math.inf)
    with pytest.raises(ValueError, match="one pure event within a distance"):
        Approximate(event=Repeated(event=Pure(epsilon=1.0), count=2), delta=1e-9)


def test_a_distance_costs_its_own_part_s_epsilon_where_laws_are_worst():
    """Two laws of two outcomes each, all of δ by enumeration: the bound is kept, and nearly met."""
    pure, other, gap = 3.0, 1.0, 1e-3
    said = 1 / (1 + math.exp(-pure))  # randomised response
    first = ((said, 1 - said), (1 - said, said))
    high = 1 / (1 + math.exp(-other))
    low = 1 - high
    # Both laws of the second moved by the distance, towards what tells them apart.
    second = ((high + gap, low - gap), (low - gap, high + gap))
    delta = sum(
        max(0.0, a * b - math.exp(pure + other) * c * d)
        for (a, c), (b, d) in itertools.product(zip(*first, strict=True), zip(*second, strict=True))
    )
    paid = (1 + math.exp(other)) * gap
    assert 0.9 * paid < delta <= paid < (1 + math.exp(pure + other)) * gap / 10


@pytest.mark.parametrize("count", [-1, 1.0, True, "1"])
def test_bad_counts_are_refused(count):
    with pytest.raises(ValueError, match="Expected an integer count ≥ 0"):
        Composition().add(GaussianEvent(mu=1.0), count=count)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan])
def test_bad_deltas_are_refused(delta):
    with pytest.raises(ValueError, match="Expected 0 ≤ delta < 1"):
        Composition().compute_epsilons(delta)


@settings(max_examples=60, deadline=None)
@given(releases=st.lists(events, max_size=12), seed=st.integers(0, 2**32))
def test_order_does_not_matter_at_all(releases, seed):
    shuffled = random.Random(seed).sample(releases, len(releases))
    assert composed(*releases) == composed(*shuffled)


@settings(max_examples=60, deadline=None)
@given(
    releases=st.lists(events, min_size=1, max_size=12), delta=st.sampled_from([1e-12, 1e-5, 0.1])
)
def test_every_prefix_costs_at_most_the_whole(releases, delta):
    costs = [
        composed(*releases[:n]).compute_lowest_epsilon(delta)[1] for n in range(len(releases) + 1)
    ]
    assert all(a <= b * (1 + 1e-11) + 1e-14 for a, b in itertools.pairwise(costs))


@settings(max_examples=60, deadline=None)
@given(releases=st.lists(events, max_size=8))
def test_records_are_lossless_through_json(releases):
    for event in releases:
        assert parse_event(json.loads(json.dumps(event.to_json()))) == event
    total = composed(*releases)
    assert Composition.from_json(json.loads(json.dumps(total.to_json()))) == total


@settings(max_examples=40, deadline=None)
@given(event=events, count=st.integers(0, 10**6))
def test_count_is_repetition(event, count):
    once = Composition().add(event, count)
    assert once == Composition().add(event, count // 2).add(event, count - count // 2)


@pytest.mark.parametrize(
    "change",
    [
        {"slack": "-1"},
        {"slack": "1e999999999"},
        {"slack": 0.5},
        {"slack": "1/0"},
        {"unknown": 1},
        {"events": [{"event": {"kind": "gaussian", "mu": 1.0}, "count": 0}]},
        {"events": [{"event": {"kind": "gaussian", "mu": 1.0}, "count": True}]},
        {"events": [{"event": {"kind": "gaussian", "mu": 1.0}, "count": 1}] * 2},
        {"events": [{"count": 1}]},
    ],
)
def test_records_that_were_edited_are_refused(change):
    values = composed(GaussianEvent(mu=1.0)).to_json() | change
    with pytest.raises(ValueError, match="Expected"):
        Composition.from_json(values)


def test_totals_stay_exact_over_a_million_rounds():
    total = Composition().add(GaussianEvent(mu=1e-3), count=10**6)
    assert total.rho == 0.5
    assert total.compute_epsilons(1e-5)["exact"] == compute_gaussian_epsilon(1.0, 1e-5)


def test_library_agrees_where_neighbours_agree():
    """The trap: under REPLACE_ONE the PLD of dp_accounting doubles a Gaussian's sensitivity."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    replace = dp_accounting.NeighboringRelation.REPLACE_ONE
    rounds = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(20.0), 100)
    pld, rdp = (kind(neighboring_relation=replace) for kind in (PLDAccountant, RdpAccountant))
    assert pld.compose(rounds).get_epsilon(1e-5) == pytest.approx(4.37718, abs=1e-4)
    assert rdp.compose(rounds).get_epsilon(1e-5) == pytest.approx(2.16572, abs=1e-4)
    # In our terms the first is μ = 1 (C = 1 and Δ = 2C, σ/C = 20), the second μ = ½ (Δ = 1).
    doubled = Composition().add(GaussianEvent(mu=0.1), count=100)
    assert doubled.compute_epsilons(1e-5)["exact"] == pytest.approx(4.37718, abs=5e-6)
    single = Composition().add(GaussianEvent(mu=0.05), count=100)
    assert single.compute_epsilons(1e-5)["cks20"] == pytest.approx(2.16572, abs=5e-6)
