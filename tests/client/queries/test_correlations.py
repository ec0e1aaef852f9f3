"""Correlations and regressions: known answers, what noise makes of them, what cannot be asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from blocks import block_of_columns

from parley.client.data.schema import Schema
from parley.client.queries.base import QueryError, QueryFacts
from parley.client.queries.correlations import CorrelationsQuery, Formula
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.estimation.moment_regression import NoisySecondMoments
from parley.privacy.estimation.noise_intervals import CellNoise

SCHEMA = Schema.from_toml(
    """
[columns]
dose = { kind = "numeric", range = [0, 128] }
weight = { kind = "numeric", range = [0, 128] }
gain = { kind = "numeric", range = [-64, 64] }
arm = { kind = "categorical", categories = ["a", "b", "c"] }
sick = { kind = "label", positive = "yes", negative = "no" }
"""
)
# Dose, weight, arm, gain: 16 records made up for this test; every value is one of the grid.
ROWS = [
    *((86, 0, "a", 11), (103, 6, "b", 30), (2, 19, "c", 1), (104, 128, "a", 10)),
    *((60, 24, "b", 24), (66, 84, "c", 10), (81, 96, "a", 12), (36, 30, "b", 3)),
    *((126, 36, "c", 38), (6, 56, "a", -5), (35, 33, "b", 22), (49, 125, "c", -9)),
    *((73, 22, "a", 13), (52, 115, "b", 16), (16, 102, "c", -16), (5, 108, "a", -23)),
]
EXACT = CellNoise(law="laplace", scale=0.01)  # a deviation of 10⁻²¹
ALL = CorrelationsQuery(
    of=("dose", "weight", "arm", "gain"), regressions=("gain ~ dose + weight + arm", "gain ~ dose")
)


def block(rows=ROWS):
    dose, weight, arm, gain = zip(*rows, strict=True)
    sick = ["yes"] * len(rows)
    columns = {"dose": dose, "weight": weight, "arm": arm, "gain": gain, "sick": sick}
    return block_of_columns([{name: list(part) for name, part in columns.items()}], SCHEMA)


def told(query, given, noise=EXACT, rng=None):
    (vector,) = query.compute_party_vectors(given, 4096)
    facts = QueryFacts(schema=SCHEMA, neighbouring=Neighbouring.REPLACE_ONE, records=given.records)
    drawn = 0 if rng is None else np.rint(noise.draw(rng, vector.shape)).astype(np.int64)
    noisy = vector + drawn
    return query.answer(noisy, 4096, noise, facts), query.derive_tables(noisy, 4096, noise, facts)


def test_without_noise_it_is_what_numpy_and_statsmodels_say_of_the_pooled_rows():
    """numpy 2.4.6: corrcoef, mean, std. statsmodels 0.15.0: OLS(…).fit(use_t=False)."""
    table, beside = told(ALL, block())
    found = {
        (a, b): r for a, b, r in zip(table["column"], table["with"], table["value"], strict=True)
    }
    assert found["dose", "weight"] == pytest.approx(-0.1396493824334629, abs=1e-12)
    assert found["weight", "arm: c"] == pytest.approx(0.17939173621102344, abs=1e-12)
    assert found["weight", "gain"] == pytest.approx(-0.5010986378835837, abs=1e-12)
    assert found["arm: b", "gain"] == pytest.approx(0.4438410641657107, abs=1e-12)
    assert ("arm: b", "arm: c") not in found
    fitted = beside["gain ~ dose + weight + arm"]
    assert list(fitted["term"]) == ["1", "dose", "weight", "arm: b", "arm: c"]
    known = {
        "coefficient": [-7.6191372721, 0.30589038985, -0.1094543043, 13.675506032, 4.5860701528],
        "from": [-18.561070483, 0.20452980844, -0.19872142892, 4.3965601126, -4.4078136175],
        "to": [3.3227959384, 0.40725097125, -0.02018717968, 22.954451951, 13.579953923],
        "p": [0.17232492463, 3.32148055e-9, 0.01625242526, 0.0038691639900, 0.31759854296],
    }
    for name, values in known.items():
        assert list(fitted[name]) == pytest.approx(values, rel=1e-3, abs=1e-3)
    alone = beside["gain ~ dose"]
    assert list(alone["coefficient"]) == pytest.approx([-9.57114681, 0.32237594329], abs=1e-3)
    fit = beside["fit of regressions"]
    assert list(fit["R²"]) == pytest.approx([0.8442087291542077, 0.5649882501291554], rel=1e-3)
    assert fit["residual deviation"][0] == pytest.approx(7.54732194759625, rel=1e-3)
    means = beside["means"]
    assert list(means["mean"]) == pytest.approx([56.25, 61.5, 0.3125, 0.3125, 8.5625], rel=1e-3)
    assert means["standard deviation"][-1] == pytest.approx(15.85468681, rel=1e-3)


def test_a_target_on_all_others_is_the_same_as_by_their_names():
    _, beside = told(replace(ALL, regressions=("gain ~ .", "gain ~ dose + weight + arm")), block())
    one, same = (beside[text] for text in ("gain ~ .", "gain ~ dose + weight + arm"))
    assert {k: list(v) for k, v in one.items()} == {k: list(v) for k, v in same.items()}


def test_a_record_with_an_empty_category_adds_nothing():
    (with_it,) = ALL.compute_party_vectors(block([*ROWS, (128, 128, "", 64)]), 4096)
    (without,) = ALL.compute_party_vectors(block(), 4096)
    assert np.array_equal(with_it, without)


def drawn(count, rng, slope=0.4):
    """`[N]` rows: dose, weight, gain; weight and gain have nothing in common."""
    dose = np.clip(64 + 20 * rng.normal(size=count), 0, 128).round()
    weight = np.clip(30 + 15 * rng.exponential(size=count), 0, 128).round()
    gain = np.clip(slope * (dose - 64) + 12 * rng.normal(size=count), -64, 64).round()
    arm = rng.choice(["a", "b", "c"], count, p=[0.6, 0.398, 0.002])
    return list(zip(dose.tolist(), weight.tolist(), arm.tolist(), gain.tolist(), strict=True))


def moments_of(rows, deviation):
    """Of (1, dose, gain, arm is b), every entry with noise of this deviation; N is public."""
    dose, _, arm, gain = zip(*rows, strict=True)
    z = np.stack(
        [np.ones(len(rows)), np.array(dose) / 64 - 1, np.array(gain) / 64, np.array(arm) == "b"]
    )
    pairs = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (2, 2), (2, 3)]
    return NoisySecondMoments(
        values=np.array([z[i] @ z[j] for i, j in pairs], dtype=np.float64),
        pairs=pairs,
        tied=[pair == (0, 3) for pair in pairs],
        deviations=np.full(len(pairs), deviation),
        records=len(rows),
    )


def test_deviations_by_noise_are_those_of_draws():
    """A right scale is within a tenth; ⅔ and 1½ of it are not."""
    rng = np.random.default_rng(2)
    exact = moments_of(drawn(3000, rng), 6.0)
    many = [
        replace(exact, values=exact.values + rng.normal(0, 6.0, len(exact.values)))
        for _ in range(1500)
    ]
    places = ([0, 0, 1], [1, 2, 2])
    apart = np.array([each.estimate_correlations().value[places] for each in many]).std(axis=0)
    said = exact.estimate_correlations().noise[places]
    assert apart / said == pytest.approx(np.ones(3), abs=0.1)
    found = [each.estimate_regression(2, (1, 3)) for each in many]
    apart = np.array([each.coefficients for each in found]).std(axis=0)
    fitted = exact.estimate_regression(2, (1, 3))
    said = np.sqrt(np.diag(fitted.noise))
    assert apart / said == pytest.approx(np.ones(3), abs=0.1)
    shares = np.std([each.r_squared[0] for each in found])
    assert shares / np.linalg.norm(fitted.r_squared_shifts) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_tests_keep_their_level_where_noise_is_as_large_as_sampling(law):
    """400 draws without a slope: 5 % of p below .05, ± four deviations; blindly, far more."""
    rng, noise = (
        np.random.default_rng(8),
        CellNoise(law=law, scale=8.0 if law == "gaussian" else 6.0),
    )
    held, blind = [], []
    for _ in range(400):
        exact = moments_of(drawn(1500, rng, slope=0.0), noise.deviation)
        noisy = replace(exact, values=exact.values + noise.draw(rng, exact.values.shape))
        found, fitted = noisy.estimate_correlations(), noisy.estimate_regression(2, (1, 3))
        r, once = found.value[0, 1], 1 / np.sqrt(1500)
        errors = np.sqrt([fitted.noise[1, 1], fitted.sampling[1, 1]])
        slope = noise.compute_p_value(fitted.coefficients[1], *errors)
        held.append([noise.compute_p_value(r, found.null_noise[0, 1], once) < 0.05, slope < 0.05])
        blind.append(noise.compute_p_value(r, 0.0, once) < 0.05)
    assert np.abs(np.mean(held, axis=0) - 0.05).max() < 4 * np.sqrt(0.05 * 0.95 / 400)
    assert np.mean(blind) > 0.1


def test_p_of_laplace_noise_and_a_normal_error_is_that_of_draws():
    rng, noise = np.random.default_rng(9), CellNoise(law="laplace", scale=1.0)
    for b, s in ((1.0, 0.3), (0.5, 1.0), (1.0, 4.0)):
        apart = np.abs(rng.laplace(0, b, 200_000) + rng.normal(0, s, 200_000))
        for t in (0.0, 1.0, 3.0, 6.0):
            said = float(noise.compute_p_value(np.array(-t), b * np.sqrt(2), s))
            assert abs((apart > t).mean() - said) < 5 * np.sqrt(said / 200_000)


def test_too_few_records_have_no_value_and_are_told_how_many_it_takes():
    rng = np.random.default_rng(4)
    noise = CellNoise(law="gaussian", scale=30.0 * ALL.get_steps_per_unit(4096))
    rows = drawn(12_000, rng)
    table, beside = told(ALL, block(rows), noise, rng)
    fitted = beside["gain ~ dose + weight + arm"]
    known = np.isfinite(fitted["coefficient"])
    # Some 24 records of arm c are within the noise: they stand with the reference.
    assert known.tolist() == [True, True, True, True, False]
    assert fitted["from"][1] < 0.4 < fitted["to"][1]
    assert np.isfinite(table["value"]).sum() == 6  # c has no correlation
    few, beside = told(ALL, block(rows[:200]), noise, rng)
    assert np.isnan(few["value"]).any()
    assert np.isnan(beside["gain ~ dose + weight + arm"]["coefficient"]).all()
    assert min(beside["fit of regressions"]["records it takes"]) > 200
    assert np.isnan(beside["fit of regressions"]["R²"]).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"of": ("dose",)}, "Expected 2 to 32 distinct columns"),
        ({"of": ("dose", "dose")}, "Expected 2 to 32 distinct columns"),
        ({"by": ("arm",)}, "none that is grouped by"),
        ({"of": ("dose", "age")}, "age"),
        ({"regressions": ("gain - dose",)}, "Expected a regression such as"),
        ({"regressions": ("gain ~ dose +",)}, "Expected a regression such as"),
        ({"regressions": ("gain ~ age",)}, "Expected columns of dose, weight, arm, gain"),
        ({"regressions": ("gain ~ gain",)}, "Expected every column once"),
        ({"regressions": ("gain ~ dose + dose",)}, "Expected every column once"),
        ({"regressions": ("gain ~ dose",) * 2}, "Expected every regression once"),
        ({"regressions": ("arm ~ dose",)}, "Expected a column of numbers, with a range, got 'arm'"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(change, said):
    with pytest.raises(ValueError, match=said):
        replace(replace(ALL, regressions=()), **change).check(SCHEMA, Neighbouring.REPLACE_ONE)


def test_names_with_spaces_stand_in_backticks():
    found = Formula.parse(" `a + b`~ x+`c ~ d` ")
    assert found == Formula(target="a + b", on=("x", "c ~ d"))
    with pytest.raises(QueryError, match="got 'a'"):
        Formula.parse("a")
