"""Seeded runs come out as they always did; `tests/vectors/make_runs.py` says how they are made."""

import importlib.util
import json
from pathlib import Path

import pytest

VECTORS = Path(__file__).parent / "vectors"


def _maker():
    spec = importlib.util.spec_from_file_location("make_runs", VECTORS / "make_runs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKER = _maker()
KNOWN = json.loads(MAKER.VECTORS.read_text(encoding="utf-8"))


def near(known):
    """The same values; floats may differ where another machine's kernels round otherwise."""
    if isinstance(known, dict):
        return {key: near(value) for key, value in known.items()}
    if isinstance(known, list):
        return [near(value) for value in known]
    if isinstance(known, float):
        return pytest.approx(known, rel=1e-5, abs=1e-5)
    return known


@pytest.mark.parametrize("name", sorted(MAKER.JOBS))
def test_a_seeded_run_is_what_it_was(name, tmp_path):
    assert MAKER.record(MAKER.JOBS[name], tmp_path) == near(KNOWN[name])
