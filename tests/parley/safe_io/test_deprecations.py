"""Old names work with a warning that has the new one, in every place where people write names."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

import parley
from parley import cli
from parley.client.data.schema import Schema, SchemaError
from parley.client.party.owner_policy import PolicyError, parse_policy
from parley.safe_io import deprecations
from parley.safe_io.deprecations import DeprecatedName, Deprecation
from parley.server.jobs.job_file import load_job
from parley.server.jobs.key_lookup import check_key
from parley.server.jobs.section_base import JobError
from parley.sweeps.sweep_cells import load_sweep
from parley.version import __version__

ROWS = (
    Deprecation(kind="job", old="privacy.eps", new="privacy.epsilon", since="1.1", end="1.3"),
    Deprecation(kind="job", old="run.count", new="parties.count", since="1.1", end="1.3"),
    Deprecation(kind="policy", old="data.*.eps", new="data.*.epsilon", since="1.1", end="1.3"),
    Deprecation(
        kind="schema", old="columns.*.between", new="columns.*.range", since="1.1", end="2.0"
    ),
    Deprecation(kind="option", old="--eps", new="--epsilon", since="1.1", end="1.3"),
    Deprecation(kind="python", old="simulate", new="run", since="1.1", end="1.3"),
)
ADVICE = r"{} is deprecated since Parley 1\.1 and stops working with 1\.3\. Use {}\."


@pytest.fixture(autouse=True)
def _deprecated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deprecations, "DEPRECATIONS", ROWS)


def test_an_old_job_key_means_the_new_one_in_files_overrides_and_sweeps(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text("[privacy]\neps = 2.0\n[run]\ncount = 3\n")
    with pytest.warns(DeprecatedName, match=ADVICE.format("privacy.eps", "privacy.epsilon")):
        job = load_job(path)
    assert (job.privacy.epsilon, job.parties.count) == (2.0, 3)
    with pytest.warns(DeprecatedName, match=ADVICE.format("run.count", "parties.count")):
        assert load_job(overrides=["run.count=4"]).parties.count == 4
    with pytest.warns(DeprecatedName, match="Use privacy.epsilon"):
        assert check_key("privacy.eps", where="sweep") == "privacy.epsilon"
    with pytest.warns(DeprecatedName):
        assert load_job(path, overrides=["privacy.epsilon=1"]).privacy.epsilon == 1.0
    path.write_text("[privacy]\neps = 2.0\nepsilon = 1.0\n")
    with pytest.raises(JobError, match=r"Expected privacy.epsilon or privacy.eps, got both\."):
        load_job(path)
    path.write_text("parties = 3\n[run]\ncount = 3\n")
    with pytest.raises(JobError, match=r"Expected a table \[parties\], got 3"):
        load_job(path)


def test_an_old_job_key_means_the_new_one_on_the_axes_of_a_sweep(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text('[privacy]\nepsilon = 1.0\n[sweep.grid]\n"privacy.eps" = [0.5, 2.0]\n')
    with pytest.warns(DeprecatedName):
        sweep = load_sweep(path)
    assert [cell.error for cell in sweep.cells] == ["", ""]
    assert [cell.job.privacy.epsilon for cell in sweep.cells if cell.job] == [0.5, 2.0]


def test_old_keys_of_policies_and_schemas_mean_the_new_ones() -> None:
    policy = '[data.visits]\npath = "a.csv"\nschema = "a.toml"\n{}\ndelta = 1e-5\n'
    with pytest.warns(DeprecatedName, match=ADVICE.format(r"data.\*.eps", r"data.\*.epsilon")):
        assert parse_policy(policy.format("eps = 2"), source="p").data["visits"].epsilon == 2
    with pytest.raises(PolicyError, match="got both"):
        parse_policy(policy.format("eps = 2\nepsilon = 2"), source="p")
    columns = Schema.of({"age": (0, 120), "ill": ["no", "yes"]}, label="ill")
    text = columns.to_toml()
    with pytest.warns(DeprecatedName, match="columns"):
        assert Schema.from_toml(text.replace("range", "between")) == columns
    with pytest.raises(SchemaError, match="got both"):
        Schema.from_toml(text.replace("range =", "between = [0, 120], range ="))


def test_an_old_option_and_an_old_python_name_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(DeprecatedName, match=ADVICE.format("simulate", "run")):
        assert parley.simulate is parley.run
    with pytest.raises(AttributeError, match="no attribute 'simulated'"):
        _ = parley.simulated
    monkeypatch.setattr("sys.argv", ["parley", "plan", "--eps=2", "--json"])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    assert ended.value.code == 0
    assert json.loads(printed.out)["guarantees"][0]["epsilon_budget"] == 2
    assert "parley: warning: --eps is deprecated since Parley 1.1" in printed.err


def test_two_minor_versions_later_an_old_name_is_refused_and_a_stored_one_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    over = tuple(replace(row, is_over=True) for row in ROWS)
    monkeypatch.setattr(deprecations, "DEPRECATIONS", over)
    path = tmp_path / "job.toml"
    path.write_text("[privacy]\neps = 2.0\n")
    refusal = r"privacy.eps was replaced by privacy.epsilon in Parley 1.1\. Use privacy.epsilon\."
    with pytest.raises(JobError, match=refusal):
        load_job(path)
    with pytest.raises(JobError, match=f"sweep: {refusal}"):
        check_key("privacy.eps", where="sweep")
    with pytest.raises(AttributeError, match="simulate was replaced by run"):
        _ = parley.simulate
    monkeypatch.setattr("sys.argv", ["parley", "plan", "--eps=2"])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "--eps was replaced by --epsilon" in capsys.readouterr().err
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_job(path, stored=True).privacy.epsilon == 2


def test_a_new_name_exists_and_only_its_last_part_differs_behind_a_star(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    for row in deprecations.DEPRECATIONS:
        now = tuple(map(int, __version__.split(".")[:2]))
        assert row.since.startswith(f"{now[0]}."), f"delete {row}"
        since, end = (tuple(map(int, each.split("."))) for each in (row.since, row.end))
        assert end == ((now[0] + 1, 0) if row.kind == "schema" else (since[0], since[1] + 2))
        assert row.is_over is (now >= end), f"set is_over of {row}"
        if "*" in row.old:
            assert row.old.rpartition(".")[0] == row.new.rpartition(".")[0]
        if row.kind == "job":
            assert check_key(row.new, where="table") == row.new
