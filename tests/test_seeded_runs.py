"""Seeded runs come out as they always did; `tests/vectors/make_runs.py` says how they are made."""

import json

import make_runs
import pytest

KNOWN = json.loads(make_runs.VECTORS.read_text(encoding="utf-8"))


def near(known):
    """The same values; floats may differ where another machine's kernels round otherwise."""
    if isinstance(known, dict):
        return {key: near(value) for key, value in known.items()}
    if isinstance(known, list):
        return [near(value) for value in known]
    if isinstance(known, float):
        return pytest.approx(known, rel=1e-5, abs=1e-5)
    return known


@pytest.mark.parametrize("name", sorted(make_runs.JOBS))
def test_a_seeded_run_is_what_it_was(name, tmp_path):
    assert make_runs.record(make_runs.JOBS[name], tmp_path) == near(KNOWN[name])
