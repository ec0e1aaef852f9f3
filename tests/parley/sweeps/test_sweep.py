"""A sweep runs a grid of simulations once each, goes on after a kill, and tells means honestly."""

import html
import json
import re
import stat
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import invoked

from parley.cli import app
from parley.client.contract.assumptions import BATCH_INVARIANCE
from parley.presentation.page_registry import write_page
from parley.server.jobs.section_base import JobError
from parley.simulations.data.experiment_loading import (
    build_experiment,
    load_experiment,
    prepare_data,
)
from parley.simulations.data.memory_mapped_rows import load_prepared, save_prepared
from parley.simulations.data.prepared_data import compute_data_key
from parley.simulations.engine.fast_engine import simulate
from parley.sweeps import cell_worker, sweep_runner
from parley.sweeps.comparison_page import compare_runs, list_run_names
from parley.sweeps.latex_table import format_latex_table
from parley.sweeps.sweep_cells import build_sweep, load_sweep
from parley.sweeps.sweep_page import _format_mean, format_total_cost
from parley.sweeps.sweep_plots import draw_figures
from parley.sweeps.sweep_runner import SweepResult, run_cells
from parley.sweeps.sweep_summary import compute_total_charge, summarise_rows, write_results
from parley.sweeps.sweep_table import build_grid

ROOT = Path(__file__).resolve().parents[3]


BASE = {
    "parties": {"count": 3},
    "data": {"source": "synthetic", "records": 120},
    "algorithm": {"rounds": 2},
    "model": {"features": "none"},
    "secure-aggregation": {"masked-check": False},
}


def _sweep(**table):
    return build_sweep({**BASE, "sweep": table}, source="s.toml")


def test_a_grid_has_every_combination_and_rules_leave_cells_out():
    sweep = _sweep(
        seeds=[7, 9],
        grid={"privacy.epsilon": [0.5, 1, 2]},
        zip=[{"parties.count": [3, 6], "parties.min-records": [30, 10]}],
        methods={"few": {"algorithm.rounds": 1}, "many": {"algorithm.rounds": 5}},
        where=[{"method": "many", "privacy.epsilon": 0.5}],
    )
    assert sweep.axes == ("method", "privacy.epsilon", "parties.count", "parties.min-records")
    assert len(sweep.cells) == (2 * 3 * 2 - 2) * 2
    assert len({cell.name for cell in sweep.cells}) == len(sweep.cells)
    first = sweep.cells[0]
    assert first.values == {
        "method": "few",
        "privacy.epsilon": 0.5,
        "parties.count": 3,
        "parties.min-records": 30,
    }
    assert (first.job.rounds, first.job.privacy.epsilon, first.repetition) == (1, 0.5, 7)


def test_a_value_more_changes_no_other_cell_and_another_job_changes_all():
    few = _sweep(seeds=2, grid={"privacy.epsilon": [1, 2]})
    more = _sweep(seeds=3, grid={"privacy.epsilon": [0.5, 1, 2]})
    names = {cell.name: cell.job.run.seed for cell in more.cells}
    assert {cell.name: cell.job.run.seed for cell in few.cells}.items() <= names.items()
    assert len(set(names.values())) == 9
    other = build_sweep({**BASE, "algorithm": {"rounds": 3}, "sweep": {"seeds": 9}}, source="s")
    assert not {cell.name for cell in other.cells} & names.keys()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"grid": {"privacy.epsilom": [1]}}, "Unknown key privacy.epsilom. Did you mean privacy.e"),
        ({"gird": {}}, "Unknown key sweep.gird. Did you mean sweep.grid"),
        ({"grid": {"privacy": {"epsilon": [1]}}}, r'in quotes, such as "privacy.epsilon" = \['),
        ({"grid": {"privacy.epsilon": 1}}, "Expected a list of values for privacy.epsilon"),
        ({"zip": [{"parties.count": [1, 2], "privacy.epsilon": [1]}]}, "as many values of each"),
        ({"seeds": 0}, "Expected sweep.seeds"),
        ({"seeds": [1, 1]}, "Expected sweep.seeds"),
        ({"where": [{"method": "a"}]}, "sweep.where names method, which is not swept"),
        ({"methods": {"a": {"privacy.nois": 1}}}, "Did you mean privacy.noise"),
        ({"grid": {"privacy.epsilon": [1]}, "where": [{"privacy.epsilon": 1}]}, "leaves out all"),
        (
            {"grid": {"privacy.epsilon": [1]}, "zip": [{"privacy.epsilon": [1]}]},
            "every key on one axis",
        ),
        ({"seeds": 10_001}, r"at most 10,000 cells, got 10,001: --yes"),
    ],
)
def test_a_sweep_that_makes_no_sense_is_refused_before_anything_runs(table, message):
    with pytest.raises(JobError, match=message):
        _sweep(**table)


@pytest.mark.parametrize(
    "given", [{"overrides": ["privacy.epsilon=2"]}, {"values": {"privacy.epsilon": 2}}]
)
def test_a_key_of_an_axis_is_refused_as_one_value_for_all_cells(given, tmp_path):
    file = tmp_path / "s.toml"
    file.write_text('[sweep.grid]\n"privacy.epsilon" = [1]\n')
    with pytest.raises(JobError, match=r"Expected privacy\.epsilon as one value .* got both"):
        load_sweep(file, **given)


@pytest.mark.parametrize("engine", ["ray", "processes"])
def test_a_sweep_in_another_engine_is_refused_and_not_run_in_this_one(tmp_path, engine):
    """With "ray" its cells ran here, and said that they had run there."""
    with pytest.raises(JobError, match=r"run\.engine = 'fast'"):
        run_cells(_sweep(grid={"run.engine": [engine]}), tmp_path, workers=1)


def test_prepared_data_are_the_jobs_own_and_its_key_tells_them_apart(tmp_path):
    sweep = _sweep(
        grid={"model.lambda": [0.1, 0.2], "data.seed": [0, 1], "privacy.epsilon": [1, 2]}
    )
    assert len({compute_data_key(cell.job) for cell in sweep.cells}) == 2
    job = sweep.cells[0].job
    save_prepared(prepare_data(job), tmp_path / "data")
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    ours, whole = build_experiment(job, load_prepared(tmp_path / "data")), load_experiment(job)
    np.testing.assert_array_equal(ours.block.features, whole.block.features)
    np.testing.assert_array_equal(ours.test_labels, whole.test_labels)
    assert ours.federation == whole.federation
    for name in ("contents", "schema"):
        assert getattr(ours.data, name) == getattr(whole.data, name)


@pytest.fixture
def ran(monkeypatch):
    """Cells run in this process; the names of those that did."""
    names = []

    def here(tasks, _workers, **_how):
        for task in tasks:
            names.append(task.name)
            yield task.name, cell_worker.run_cell(task)

    monkeypatch.setattr(sweep_runner, "_run_tasks", here)
    return names


def test_cells_runs_and_sweeps_that_name_a_folder_prepare_once(tmp_path, monkeypatch, ran):
    made = []

    def preparing(job, *_):
        made.append(job)
        return prepare_data(job)

    monkeypatch.setattr(sweep_runner, "prepare_data", preparing)
    monkeypatch.setattr("parley.simulations.data.experiment_loading.prepare_data", preparing)
    kept = tmp_path / "kept"
    sweep = build_sweep(
        {**BASE, "run": {"prepared": str(kept)}, "sweep": {"grid": {"privacy.epsilon": [1, 2]}}},
        source="s.toml",
    )
    rows = run_cells(sweep, tmp_path / "one", workers=1)
    again = run_cells(sweep, tmp_path / "another", workers=1)
    load_experiment(sweep.cells[0].job)
    assert len(made) == len(list(kept.iterdir())) == 1
    assert {row["data"] for row in rows} == {each.name for each in kept.iterdir()}
    assert [row["loss"] for row in rows] == [row["loss"] for row in again]
    assert not (tmp_path / "one" / "data").exists()


def test_a_sweep_of_targets_tells_r2_and_no_accuracy(tmp_path, ran):
    sweep = _sweep(
        seeds=1,
        grid={"model.kind": ["ridge"], "privacy.epsilon": [1, 40]},
        **{"non-private": ["centralised", "aggregated"]},
    )
    rows = run_cells(sweep, tmp_path, workers=1)
    for row in rows:
        assert not [name for name in row if "accuracy" in name and row[name] is not None]
        assert row["baseline_r2"] >= row["r2"]
    for apart, there in ((1.1, False), (1 + 1e-5, True)):  # a few records more move it by little
        other = rows[1] | {"baseline_r2": rows[1]["baseline_r2"] * apart}
        drawn = draw_figures(summarise_rows([rows[0], other], sweep.axes), tmp_path)
        svg = next(figure.svg for figure in drawn if figure.name == "r2")
        assert ("centralised, not private" in svg) == there
    # The legend names the line. In the plot, its name would lie over curves.
    assert svg.index(">centralised, not private<") > svg.index("role-legend-entry")
    assert "axis from" not in svg
    assert re.search(r"linear scale with values from .1(\.0)? to 1", svg)


def test_cells_run_once_a_failed_one_does_not_stop_the_others(tmp_path, ran):
    sweep = _sweep(
        seeds=2,
        grid={"privacy.epsilon": [1, 4]},
        methods={"<b>good": {}, "<script>bad": {"parties.weights": "<img src=x>"}},
    )
    rows = run_cells(sweep, tmp_path, workers=1)
    good = [row for row in rows if row["method"] == "<b>good"]
    assert [row["status"] for row in good] == ["complete"] * 4
    assert all(row["status"] == "failed" and row["error"] for row in rows if row not in good)
    assert len(ran) == 4
    alone = simulate(sweep.cells[0].job, out=tmp_path / "alone").summary
    assert (rows[0]["loss"], rows[0]["epsilon"]) == (alone.loss, alone.primary.epsilon)
    # Killed between a cell's beginning and its row: that one runs again, and no other.
    (tmp_path / "cells" / sweep.cells[1].name / "row.json").unlink()
    again = run_cells(sweep, tmp_path, workers=1)
    assert ran[4:] == [sweep.cells[1].name]
    assert again[1]["loss"] == rows[1]["loss"]
    epsilon, delta, by = compute_total_charge(rows)
    # Gaussians of ε = 1, 1, 4, 4 in one composition, which is less than 10.
    assert (by, 5.5 < epsilon < 6.5) == ("exact", True)
    assert delta == pytest.approx(4e-5)
    unknown = [{key: value for key, value in row.items() if key != "spent"} for row in rows]
    assert compute_total_charge(unknown) == (pytest.approx(10), delta, "basic composition")
    assert compute_total_charge([*rows, *rows]) == (
        epsilon,
        delta,
        by,
    )  # one run, twice on the grid
    write_results(rows, sweep.axes, tmp_path)
    runs = pl.read_csv(tmp_path / "results.csv", infer_schema_length=None)
    assert runs["seed"].to_list() == [1, 2] * 4
    assert runs["accuracy"].to_list()[:4] == [row["accuracy"] for row in rows[:4]]
    assert (tmp_path / runs["run"][0] / "summary.json").is_file()
    assert runs["simulation_only"].all()
    cells = pl.read_csv(tmp_path / "summary.csv", infer_schema_length=None)
    means = cells.filter(pl.col("metric") == "accuracy")
    assert means["failed"].to_list() == [0, 0, 2, 2]
    assert means["runs"].to_list() == [2, 2, 0, 0]
    assert means["mean"][0] == pytest.approx((rows[0]["accuracy"] + rows[1]["accuracy"]) / 2)
    assert cells.filter(pl.col("metric") == "r2").is_empty()  # no run has it
    figures = draw_figures(summarise_rows(rows, sweep.axes), tmp_path / "figures")
    page = write_page(
        "sweep", tmp_path / "sweep.html", rows, sweep.axes, figures, title="<s>"
    ).read_text()
    assert "&lt;s&gt;" in page
    assert "Simulation only" in page
    assert "4 failed" in page
    assert page.count("<svg") == len(figures) == 3
    assert page.count("4 failed runs are not in it") == 3
    assert "prefers-color-scheme: dark" in page
    shown = SweepResult(
        folder=tmp_path, page=tmp_path / "sweep.html", rows=rows, cost="<b>", errors=("<b>",)
    )
    for text in (page, shown._repr_html_()):  # names of methods and errors are text
        assert not any(tag in text for tag in ("<b>", "<script", "<img"))
    sides = write_page(
        "comparison", tmp_path / "<c>.html", [tmp_path / "alone", tmp_path / "alone"]
    )
    assert "2 runs compared" in sides.read_text()
    told = json.loads(invoked("compare", tmp_path / "alone", tmp_path / "alone", "--json").stdout)
    assert [each["title"] for each in told["sections"]] == ["No setting differs", "Results"]
    assert list_run_names([tmp_path / "a" / "run", tmp_path / "b"]) == ["run", "b"]
    assert list_run_names(alike := [tmp_path / "a" / "run", tmp_path / "run"]) == [*map(str, alike)]
    assert {path.suffix for path in (tmp_path / "figures").iterdir()} == {".svg", ".pdf", ".json"}
    assert "No setting differs" in sides.read_text()
    settings, results = map(
        dict, compare_runs([tmp_path / "alone", tmp_path / "cells" / rows[2]["cell"] / "run"])
    )
    assert settings["privacy.epsilon"] == ["1", "4"]
    assert "run.out" not in settings
    assert "parties.count" not in settings
    assert all(
        "one record" in told or "per record" in told
        for told in results["spent, for releases fixed beforehand"]
    )


def test_accuracies_that_differ_by_two_thousandths_are_two_lines(tmp_path):
    rows = [
        {"privacy.epsilon": epsilon, "parties.count": parties, "status": "complete"}
        | {"epsilon": epsilon, "delta": 1e-5, "accuracy": accuracy}
        for parties, accuracy in ((5, 0.987), (50, 0.989))
        for epsilon in (1.0, 2.0)
    ]
    (figure,) = draw_figures(summarise_rows(rows, ["privacy.epsilon", "parties.count"]), tmp_path)
    spec = json.loads((tmp_path / "accuracy.vl.json").read_text())
    y = spec["layer"][1]["encoding"]["y"]
    assert y["scale"]["domain"] == [0.986, 0.99]
    assert "axis from 0.986" in y["title"]
    assert all(f">{tick}<" in figure.svg for tick in ("0.9870", "0.9890"))


def test_what_a_run_assumes_stands_beside_its_epsilon_in_sentence_table_and_file(tmp_path):
    told = {"status": "complete", "epsilon": 1.0, "delta": 0.0, "unit": "record",
            "neighbouring": "replace-one", "adversary": "readers", "error": ""}  # fmt: skip
    rows = [
        told | {"kind": kind, "cell": kind, "assumptions": list(said)}
        for kind, said in (("mlp", ()), ("cnn", (BATCH_INVARIANCE,)))
    ]
    assert f"; assuming: {BATCH_INVARIANCE})" in format_total_cost(rows)
    assert "assuming" not in format_total_cost(rows[:1])
    page = write_page("sweep", tmp_path / "sweep.html", rows, ["kind"], [], title="")
    shown = html.unescape(page.read_text())
    assert (shown.count("<td>1 [1]</td>"), shown.count("[1]")) == (1, 2)  # of one row, and the note
    assert shown.count(f"[1] assuming: {BATCH_INVARIANCE}</p>") == 1
    write_results(rows, ["kind"], tmp_path)
    assumed = pl.read_csv(tmp_path / "results.csv", infer_schema_length=None)["assumptions"]
    assert assumed.to_list() == ["", BATCH_INVARIANCE]
    table = format_latex_table(build_grid(rows, ["kind"]), rows, "loss", title="s", version="1")
    assert f"assuming: {BATCH_INVARIANCE}" in table.replace("\\", "")
    rows[1] |= {"adversary": "all-others"}
    table = format_latex_table(build_grid(rows, ["kind"]), rows, "loss", title="s", version="1")
    assert (
        "if everyone else is honest (kind mlp); the server and all other parties (kind cnn)"
        in table
    )
    assert r"$\varepsilon = 1$" in table
    assert "kind = cnn" in table  # a word, not a product of letters


def test_a_non_private_figure_that_differs_between_rows_is_not_shown_as_one():
    told = {"status": "complete", "epsilon": 1.0, "delta": 0.0, "unit": "record", "error": "",
            "neighbouring": "replace-one", "adversary": "readers", "assumptions": []}  # fmt: skip
    rows = [
        told | {"data.source": source, "cell": source, "accuracy": 0.5, "baseline_accuracy": own}
        | {"privacy.epsilon": 1}
        for source, own in (("a", 0.9), ("b", 0.6))
    ]  # fmt: skip
    assert build_grid(rows, ["data.source", "privacy.epsilon"]).list_baselines("accuracy") == []
    assert build_grid(rows[:1], ["privacy.epsilon"]).list_baselines("accuracy") == [0.9]


def test_a_point_lies_at_the_epsilon_that_was_charged_and_means_have_students_interval(tmp_path):
    rows = [
        {
            "privacy.epsilon": asked,
            "status": "complete",
            "epsilon": charged,
            "delta": 0.0,
            "excess_loss": loss,
        }
        for asked, charged, loss in ((0.5, 3, 1.0), (0.5, 3, 2.0), (0.5, 3, 3.0), (1, 1, 0.5))
    ]
    first, second = summarise_rows(rows, ["privacy.epsilon"])
    assert first["excess_loss ±95 %"] == pytest.approx(2.4841377)  # t(.975, 2)·1/√3
    assert second["excess_loss ±95 %"] is None
    (figure,) = draw_figures([first, second], tmp_path)
    spec = json.loads((tmp_path / f"{figure.name}.vl.json").read_text())
    points = spec["layer"][0]["data"]["values"]
    assert sorted(point["x"] for point in points) == [1.0, 3.0]


def test_the_command_runs_processes_and_says_what_failed(tmp_path, capsys):
    path = tmp_path / "s.toml"
    path.write_text(
        "[data]\nsource = 'synthetic'\nrecords = 60\n[parties]\ncount = 2\n[sweep.grid]\n"
        "'algorithm.rounds' = [1]\n'parties.min-records' = [10, 1000]\n"
    )
    command = ["sweep", str(path), "--out", str(tmp_path / "out"), "--workers", "1", "-q"]
    assert app([*command, "-v"], standalone_mode=False) == 1
    told = capsys.readouterr()
    assert "2 runs, simulation only. On real records" in told.out
    assert "min-records" in told.err
    assert (tmp_path / "out" / "sweep.html").exists()
    with pytest.raises(JobError, match="Cannot read sweep file"):
        load_sweep(tmp_path / "none.toml")


def test_the_example_has_the_cells_that_it_says():
    sweep = load_sweep(ROOT / "examples" / "kdd-sweep.toml")
    assert len(sweep.cells) == 3 * 4 * 5
    assert all(cell.job is not None for cell in sweep.cells)
    # What a sweep does not compare is left to the quick way, unless the file says otherwise.
    job = sweep.cells[0].job
    assert (job.run.noise_shares, job.secure_aggregation.masked_check) == ("deal", False)
    said = build_sweep(
        {**BASE, "run": {"noise-shares": "full"}, "sweep": {"seeds": 1}}, source="s.toml"
    )
    assert said.cells[0].job.run.noise_shares == "full"


def test_changed_data_are_prepared_and_learned_from_anew(tmp_path):
    rows = "x,y\n" + "".join(f"{k % 7},{k % 2}\n" for k in range(40))
    (tmp_path / "a.csv").write_text(rows)
    (tmp_path / "s.toml").write_text(
        "[columns]\nx = { kind = 'numeric', range = [0, 6] }\n"
        "y = { kind = 'label', positive = [1], negative = [0] }\n"
    )
    data = {"source": str(tmp_path / "a.csv"), "schema": str(tmp_path / "s.toml")}
    job = build_sweep({"data": data, "sweep": {"seeds": 1}}, source="s.toml").cells[0].job
    before = compute_data_key(job)
    assert compute_data_key(job) == before
    (tmp_path / "a.csv").write_text(rows + "3,1\n")
    assert compute_data_key(job) != before
    folder, row = tmp_path / "cell", '{"cell": "c", "data": "old", "status": "complete"}'
    folder.mkdir()
    for name, data, text, known in (
        ("c", "old", row, True),
        ("c", "new", row, False),
        ("d", "old", row, False),
        ("c", "old", row[:-8], False),
    ):
        (folder / "row.json").write_text(text)
        assert (cell_worker.read_row(folder, name=name, data=data) is not None) == known


def test_a_method_keeps_its_own_settings_and_one_run_is_run_once(tmp_path, ran):
    sweep = _sweep(
        grid={"parties.count": [3, 4]},
        methods={"one": {"parties.count": 1, "privacy.noise-point": "server"}, "many": {}},
        **{"non-private": ["aggregated"]},
    )
    rows = run_cells(sweep, tmp_path, workers=1)
    assert len(ran) == 3
    assert [(row["method"], row["parties.count"]) for row in rows] == [
        ("one", 3), ("one", 4), ("many", 3), ("many", 4)
    ]  # fmt: skip
    assert rows[0]["loss"] == rows[1]["loss"]
    assert rows[0]["aggregated_excess_loss"] == pytest.approx(0, abs=1e-9)
    assert rows[2]["aggregated_excess_loss"] > 0


def test_an_override_is_a_key_that_all_cells_share(tmp_path):
    file = tmp_path / "s.toml"
    file.write_text("[sweep]\nseeds = 2\n")
    sweep = load_sweep(file, overrides=["privacy.epsilon=3"])
    assert [cell.job.privacy.epsilon for cell in sweep.cells] == [3, 3]
    with pytest.raises(JobError, match=r"Did you mean privacy\.epsilon"):
        load_sweep(file, overrides=["privacy.epsilno=3"])
    with pytest.raises(JobError, match="non-private"):
        _sweep(**{"non-private": ["centralized"]})


def test_the_papers_comparison_has_its_methods():
    sweep = load_sweep(ROOT / "examples" / "paper.toml")
    assert [cell.error for cell in sweep.cells if cell.error] == []
    assert len(sweep.cells) == 1440
    assert len({cell.name for cell in sweep.cells}) == 1440 - 120  # one owner, whatever m is
    assert {cell.job.rounds for cell in sweep.cells} == {60, 1}


def test_equal_repetitions_have_no_half_width_from_rounding_errors():
    assert _format_mean(0.1762, 8.4e-17) == "0.1762 ±\u00a00"
    assert _format_mean(0.1762, 0.0001) == "0.1762 ±\u00a00.0001"
