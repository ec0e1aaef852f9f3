"""Fixtures that tests of several packages share."""

from __future__ import annotations

import functools
import gc
import json
import os
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import typer.testing
import vl_convert
from hypothesis import HealthCheck, settings

# Tests run side by side, one a core: threads of one on small tensors would wait for each other's.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import parley.deploy.stream  # noqa: F401 - before anything else imports gRPC

# The same examples in every run, and no limit on time: a busy machine fails no test. With
# PARLEY_TEST_RANDOM=1 Hypothesis tries others.
settings.register_profile(
    "steady",
    deadline=None,
    derandomize="PARLEY_TEST_RANDOM" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")

# A process of a user's puts the commands together once; here one calls them hundreds of times.
typer.main.get_command = typer.testing._get_command = functools.cache(typer.main.get_command)

pytest_plugins = ["commands", "fake_grid", "ground"]

TESTS_OF_PLOTS = (
    *("tests/parley/presentation/", "tests/parley/analytics/", "tests/parley/sweeps/"),
    *("tests/parley/audit/", "tests/parley/tracking/", "tests/parley/commands/test_audit.py"),
    *("tests/parley/test_hostile_pages.py", "tests/parley/certificate/", "tests/examples/"),
    *("tests/test_golden.py", "tests/test_docs", "tests/test_example", "tests/test_fixtures"),
)
"""Tests that look at plots. Others skip them: a fifth of a small run's time is a plot's SVG."""

_draw_svg = vl_convert.vegalite_to_svg
_draws_plots = True


def _draw_or_skip(chart: dict[str, Any], **options: Any) -> str:
    """Draw a chart, or return an empty one where no test looks at it."""
    if _draws_plots:
        return str(_draw_svg(chart, **options))
    json.dumps(chart)
    return '<svg viewBox="0 0 1 1"></svg>'


vl_convert.vegalite_to_svg = _draw_or_skip


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Draw plots only in `TESTS_OF_PLOTS`."""
    global _draws_plots  # noqa: PLW0603 - one flag of this process
    _draws_plots = item.nodeid.startswith(TESTS_OF_PLOTS)


POSTGRES_URL = "PARLEY_TEST_POSTGRES_URL"

LONG_FILES = (
    "tests/test_golden.py",
    "tests/simulations/audit/test_guarantee_audit.py",
    "tests/client/party/test_neighbours.py",
    "tests/client/data/test_input_bombs.py",
    "tests/privacy/accounting/test_privacy_filters.py",
    "tests/server/planning/test_principal_components.py",
    "tests/client/queries/test_extreme_records.py",
    "tests/processes/",
    "tests/examples/",
    "tests/server/rounds/",
    "tests/simulations/",
    "tests/test_",
    "tests/parley/",
    "tests/conformance/",
)
"""Files and folders whose tests take longest: they are begun first, so that none ends alone."""


def pytest_xdist_auto_num_workers() -> int:
    """One more than cores: tests with processes of their own wait for them."""
    return (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """What is imported and collected stays to the end: no search for garbage goes through it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files in the order of `LONG_FILES`, then the rest; a file's own order stays.

    A heavy test may take an hour, so that a busy machine ends none that works.
    """
    for item in items:
        if item.get_closest_marker("heavy") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))

    def place(item: pytest.Item) -> int:
        starts = (at for at, name in enumerate(LONG_FILES) if item.nodeid.startswith(name))
        return next(starts, len(LONG_FILES))

    items.sort(key=place)


@pytest.fixture
def no_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a non-private model would reach is no matter, and takes most of the time."""
    from parley.simulations.data.network_experiment import NetworkExperiment

    monkeypatch.setattr(
        NetworkExperiment, "compute_optimum", lambda self: self.algorithm.model.start()
    )


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a test may make a ledger: a path, then a fresh schema of a real PostgreSQL."""
    if request.param == "sqlite":
        yield str(tmp_path / "ledger.sqlite")
        return
    base = os.environ.get(POSTGRES_URL)
    if not base:
        pytest.skip(f"needs a PostgreSQL server, {POSTGRES_URL} is not set (see .ci/postgres.sh)")
    from ledgers import tamper

    schema = f"test_{uuid.uuid4().hex}"
    tamper(base, f'CREATE SCHEMA "{schema}"')
    yield f"{base}?options=-csearch_path%3D{schema}&application_name={schema}"
    tamper(base, f'DROP SCHEMA "{schema}" CASCADE')
