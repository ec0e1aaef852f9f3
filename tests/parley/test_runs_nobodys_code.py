"""A job or run folder from elsewhere: planning, printing and reading run nobody's code."""

from __future__ import annotations

import shutil

import polars as pl
import pytest
from commands import invoked

import parley
from parley.client.data.schema import load_schema
from parley.server.jobs.job_file import load_job, render_job
from parley.server.jobs.section_base import JobError
from parley.server.records.run_folder import render_run_job
from parley.simulations.engine.fast_engine import simulate

MARK = "open({mark!r}, 'w').close()\n"
TRUSTED = ("algorithm.rounds=2", "parties.min-records=50")

NAMED = (
    ("model.kind=own-loss", "model.loss={file}:f"),
    ("model.features={file}:f", "model.feature-settings={{trained-on = 'nothing'}}"),
    ("algorithm.kind=fedavg", "model.kind={file}:f"),
    ("model.kind=none", "algorithm.kind={file}:F"),
)


def parley_says(*arguments):
    return invoked(*arguments)


@pytest.fixture
def evil(tmp_path):
    mark, file = tmp_path / "ran", tmp_path / "evil.py"
    file.write_text(MARK.format(mark=str(mark)) + "def f(*_): pass\nclass F: pass\n")
    yield file, mark
    assert not mark.exists()


def received(file, overrides):
    named = [each.format(file=file) for each in overrides]
    return load_job(overrides=[*TRUSTED[1:], *named])


@pytest.mark.parametrize("overrides", NAMED, ids=lambda each: each[-1].split("=")[0])
def test_a_plan_of_a_received_job_runs_nothing_and_says_what_it_would(evil, tmp_path, overrides):
    file, _ = evil
    job = received(file, overrides)
    (tmp_path / "job.toml").write_text(render_job(job))
    with pytest.raises(JobError) as refused:
        parley.plan(job)
    assert f"{file}:" in str(refused.value)
    assert "--trust-code" in str(refused.value)
    assert isinstance(parley_says("plan", tmp_path / "job.toml").exception, JobError)
    printed = parley_says("run", tmp_path / "job.toml", "--print-job")
    assert printed.exit_code == 0
    assert str(file) in printed.stdout


@pytest.mark.parametrize("overrides", NAMED, ids=lambda each: each[-1].split("=")[0])
def test_a_received_run_folder_is_read_by_every_command_and_none_runs_its_code(
    evil, tmp_path, monkeypatch, overrides
):
    file, _ = evil
    monkeypatch.chdir(tmp_path)
    run = simulate(load_job(overrides=TRUSTED), out=tmp_path / "run").folder
    (run / "job.toml").write_text(render_run_job(received(file, overrides)))
    other = shutil.copytree(run, tmp_path / "other")
    rows = tmp_path / "rows.csv"
    schema = load_schema(run / "schema.toml")
    pl.DataFrame({name: [0.0] for name in schema.features}).write_csv(rows)
    for command, status in (
        (("report", run), 0),
        (("compare", run, other, "--out", tmp_path / "page.html"), 0),
        (("predict", run, rows), 0),
        (("ledger", "show", run), 0),
        (("ledger", "verify", run), 0),
        (("certificate", "issue", run, "--key", tmp_path / "key"), 0),
        (("certificate", "verify", run / "certificate.json", "--run", run), 0),
        (("schema", "check", rows, run / "schema.toml"), 2),  # its label is not there
        (("plan", run / "job.toml"), 1),
    ):
        said = parley_says(*command)
        assert (command[0], said.exit_code) == (command[0], status), said.output


def test_who_trusts_the_code_plans_with_it_and_ones_own_run_asks_nothing(tmp_path):
    file = tmp_path / "loss.py"
    file.write_text("def f(z, y):\n    return max(0.0, 1 - y * z)\n")
    named = ("model.kind=own-loss", f"model.loss={file}:f")
    job = load_job(overrides=[*TRUSTED, *named])
    assert parley.plan(job, trust_code=True).rounds == 2
    (tmp_path / "job.toml").write_text(render_job(job))
    assert parley_says("plan", tmp_path / "job.toml", "--trust-code").exit_code == 0
    ran = parley_says("run", tmp_path / "job.toml", "--out", tmp_path / "run", "-q")
    assert ran.exit_code == 0, ran.output
