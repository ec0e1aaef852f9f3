"""What a person reads is what it was; `tests/vectors/make_golden.py` says how it is made."""

import pytest
from golden_sessions import SESSIONS
from golden_text import alike
from make_golden import GOLDEN, JOBS, MORE, TEXTS, known, made

from parley.client.algorithms.registry import ALGORITHMS
from parley.client.queries.registry import QUERIES

HEAVY = {
    *("job-record-add-or-remove", "job-shares-components", "job-public-components"),
    *("job-distributed-party", "job-distributed-both", "job-drawn-parties", "audit-released"),
    *("job-gradients-sizes-momentum", "job-gradients-masked", "job-output-auto", "job-both"),
    *("job-shares-dealt", "job-shares-16-bits", "job-shares-laplace-l1", "job-random-fourier"),
    *("job-record-clipped-fraction", "job-class-weights", "session-in-shares"),
}
"""Those that say what others say too, and those that take longest: start, vmap, many trainings."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.heavy] * (name in HEAVY)) for name in TEXTS],
)
def test_a_golden_text_is_what_it_was(name):
    was, now = known(name), made(name)
    assert now == was or alike(was, now)


def test_every_golden_text_is_made():
    assert {path.stem for path in GOLDEN.iterdir()} == set(TEXTS)


def test_every_algorithm_and_every_query_has_a_golden_text():
    keys = {key for job in (JOBS | MORE).values() for key in job}
    asked = {key.removeprefix("algorithm.kind=") for key in keys}
    # A job has the first by default, others by its keys; a session asks queries.
    besides = {"gradient-perturbation", "second-moments", "held-out-counts", "query"}
    assert set(ALGORITHMS) - asked == besides
    assert {"evaluation.kind=federated", "model.kind=pca-mlp"} <= keys
    asked = {each["query"] for _, queries in SESSIONS.values() for each in queries}
    assert asked == set(QUERIES)


@pytest.mark.parametrize(
    ("now", "same"),
    [
        ("ε = 1.0921 by 5 parties", True),
        ("ε = 1.0925 by 5 parties", True),
        ("ε = 1.0921 by 6 parties", False),
        ("ε = 1.1921 by 5 parties", False),
        ("ε = 1.0921 by 5 owners", False),
        ("ε = 1.0921 by 5 parties, 3", False),
    ],
)
def test_words_and_whole_numbers_are_compared_exactly(now, same):
    assert alike("ε = 1.0921 by 5 parties", now) == same
