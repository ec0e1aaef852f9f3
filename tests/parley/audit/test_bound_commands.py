"""The calculators: known answers through the command line, and numbers that are refused."""

import json

import pytest
from commands import invoked

import parley


def call(*words):
    return invoked("audit", "bound", *words)


@pytest.mark.parametrize(
    ("words", "epsilon", "mu"),
    [
        ("pair --hits-in 490/500 --hits-out 10/500 --confidence .99 --delta 0", 3.11952, None),
        ("mu --false-positives 100/1000 --false-negatives 100/1000 --delta 1e-5", 12.1976, 2.34710),
        ("one-run --canaries 1000 --guesses 100 --right 75 --delta 1e-4", 0.672985, None),
        ("one-run-fdp --canaries 100 --guesses 100 --right 95", 4.80343, 1.08333),
        ("factor --law l2-laplace --vectors 100 --dimension 10 --mean-norm 10", 0.948560, None),
        ("bayes --false-positives 10/100 --false-negatives 10/100 --delta 0", 1.91299, None),
    ],
)
def test_a_calculator_says_what_the_statistic_says(words, epsilon, mu):
    found = json.loads(call(*words.split(), "--json").stdout)
    assert set(found) == {"method", "epsilon_lower", "mu_lower", "confidence", "delta"}
    assert found["method"] == words.split()[0]
    assert found["epsilon_lower"] == pytest.approx(epsilon, rel=5e-6)
    assert found["mu_lower"] == (mu if mu is None else pytest.approx(mu, rel=5e-6))
    # Cut, not rounded: what is printed is a bound too.
    shown = call(*words.split()).stdout
    assert float(shown.split()[2]) <= found["epsilon_lower"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("pair --hits-in 3/2 --hits-out 0/2", "3 of 2"),
        ("pair --hits-in 1/2 --hits-out x", "'x'"),
        ("pair --hits-in 1/2 --hits-out 0/2 --confidence .5", "(0.5, 1)"),
        ("pair --hits-in 1/2 --hits-out 0/2 --confidence 1", "(0.5, 1)"),
        ("mu --false-positives 1/2 --false-negatives 0/2 --delta 1", "delta"),
        ("one-run --canaries 10 --guesses 20 --right 5", "5 of 20"),
        ("factor --law cauchy --vectors 2 --dimension 2 --mean-norm 1", "'cauchy'"),
        ("factor --law gaussian --vectors 2 --dimension 2 --mean-norm nan", "nan"),
    ],
)
def test_numbers_that_say_nothing_are_wrong_input(words, said):
    result = call(*words.split())
    assert result.exit_code == 2
    assert said in result.output


def test_the_statistics_are_there_for_python():
    assert parley.audit_bounds.pair_bound.__name__ == "pair_bound"
