"""Fixtures that tests of several packages share."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

# Tests run side by side, one a core: threads of one on small tensors would wait for each other's.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import parley.deploy.stream  # noqa: F401 - before anything else imports gRPC

pytest_plugins = ["commands", "fake_grid", "ground"]

POSTGRES_URL = "PARLEY_TEST_POSTGRES_URL"


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a test may make a ledger: a path, then a fresh schema of a real PostgreSQL."""
    if request.param == "sqlite":
        yield str(tmp_path / "ledger.sqlite")
        return
    base = os.environ.get(POSTGRES_URL)
    if not base:
        pytest.skip(f"needs a PostgreSQL server, {POSTGRES_URL} is not set (see .ci/postgres.sh)")
    import sqlalchemy as sa

    schema = f"test_{uuid.uuid4().hex}"
    engine = sa.create_engine(base, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f'CREATE SCHEMA "{schema}"')
    url = sa.make_url(base).update_query_dict(
        {"options": f"-csearch_path={schema}", "application_name": schema}
    )
    yield url.render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.exec_driver_sql(f'DROP SCHEMA "{schema}" CASCADE')
    engine.dispose()
