"""Our own e^v, beside 40 digits of it."""

import mpmath
import numpy as np

from parley.client.models.exact_math import exp, ordered_sum


def test_exp_is_right_to_its_last_digits_and_a_number_s_own():
    rng = np.random.default_rng(0)
    v = np.concatenate([rng.uniform(-700, 700, 500), rng.normal(size=500), [0.0, 5e-324, -1e-300]])
    found = exp(v)
    with mpmath.workdps(40):
        off = [abs(float(mpmath.mpf(e) / mpmath.exp(w) - 1)) for e, w in zip(found, v, strict=True)]
    assert (np.array(off) <= 2.0**-49 + np.abs(v) * 2.0**-52).all()
    for at in (0, 3, 501):
        assert exp(v[at : at + 1])[0] == found[at] == exp(v[at:])[0] == exp(v[: at + 1])[at]
    assert exp(np.array([-np.inf, -1e308, -701.0])).tolist() == [exp(np.array([-700.0]))[0]] * 3
    assert np.isnan(exp(np.array([np.nan]))[0])


def test_sums_are_from_the_first_to_the_last():
    values = np.array([[1.0, 1e16, -1e16, 1.0]])
    assert ordered_sum(values).tolist() == [1.0]
