from __future__ import annotations

import pytest

from parley.deploy import engines
from parley.server.jobs.file import load_job
from parley.server.jobs.section import JobError


def test_flower_without_ray_says_how_to_add_it(tmp_path, monkeypatch):
    find = engines.importlib.util.find_spec
    monkeypatch.setattr(
        engines.importlib.util, "find_spec", lambda name: None if name == "ray" else find(name)
    )
    with pytest.raises(JobError, match=r'pip install "parley\[ray\]"'):
        engines.run_flower(load_job(overrides=["run.engine=flower"]), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
