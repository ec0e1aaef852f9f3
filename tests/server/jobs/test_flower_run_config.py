from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from fake_grid import run_config

from parley.server.jobs.flower_run_config import RUN_KEYS, from_run_config
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError

ROOT = Path(__file__).parents[3]


def flat(tree, prefix=""):
    items = {}
    for key, value in tree.items():
        items |= (
            flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
        )
    return items


def flower_app():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]


def test_what_flwr_run_starts_with_is_what_a_job_starts_with():
    config = flat(flower_app()["config"])
    defaults = {**RUN_KEYS, **run_config(load_job())}
    assert {key: defaults.get(key) for key in config} == config


def test_the_bundle_of_this_repository_is_a_flower_app():
    from flwr.common.config import validate_config

    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    valid, errors, _ = validate_config(config, check_module=False)
    assert valid, errors
    assert all(not pattern.startswith("tests") for pattern in flower_app()["fab-include"])
    kinds = {pattern.rpartition(".")[2] for pattern in flower_app()["fab-include"]}
    assert kinds <= {"py", "toml"}  # Flower refuses a pattern for any other kind of ours


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["data.source=[ab]*.csv", "data.schema=s.toml"],
        ["data.schema=s.toml", "data.sizes=[3, 4]", "data.partition=sizes", "parties.count=2"],
        ["run.seed=99999999999999999999", "parties.min-records=7"],
        ["data.source=naïve “π”\\\\.csv", "data.schema=s.toml"],
    ],
)
def test_a_job_survives_flowers_configuration(overrides):
    job = load_job(overrides=overrides)
    assert from_run_config(RUN_KEYS | run_config(job)) == job


def test_an_unknown_key_is_named():
    with pytest.raises(JobError, match=r"Did you mean privacy\.epsilon"):
        from_run_config({"privacy.epsilom": 1.0})
    with pytest.raises(JobError, match="Unknown key epsilon"):
        from_run_config({"epsilon": 1.0})
