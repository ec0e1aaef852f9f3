"""What a report says of one run: figures, noise, rounds, guarantees."""

import json
import re

import numpy as np
import pytest
from pages import Page, interrupted, make_run, read

import parley
from parley.report.page import write_report
from parley.server.jobs.file import load_job
from parley.server.records.reading import read_run
from parley.simulations.engine.fast import simulate


def test_a_complete_run_tells_who_learned_what_at_which_cost(tmp_path):
    page = read(make_run(tmp_path / "run"))
    assert page.all("h1") == ["Logistic regression on breast-cancer, learned by 5 parties"]
    assert "Complete: all 12 rounds ran." in page.all("p", "status")
    titles = [text.split(" simulation")[0] for text in page.all("h3")]
    assert titles == ["Loss by round", "Accuracy by round", "ε by round", "Records by party"]
    assert "exact 1.98, charged" in page.text
    assert {"CKS20", "zCDP", "budget 2"} <= {
        word for text in page.all("li") for word in (text, text.split()[0])
    }
    assert "identical to the last bit" in page.text
    assert "2.43 × 10⁻⁵" not in page.text
    assert "0.00243 %" in page.text
    assert "With noise from a seed this run promises nothing" in page.text
    assert "for a moment the server holds the sum without noise" in page.text


def test_entropy_noise_is_not_called_seeded(tmp_path):
    folder = make_run(tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text())
    summary["guarantees"][0]["noise"]["seeded"] = False
    (folder / "summary.json").write_text(json.dumps(summary))
    page = read(folder)
    assert "Seeded noise" not in page.text
    assert "operating system's entropy" in page.text


def dp_sgd_run(folder, *overrides):
    """A run of DP-SGD, from its job to its page."""
    job = [
        "algorithm.kind=fedavg",
        "model.kind=mlp",
        "model.hidden=[4]",
        "algorithm.rounds=3",
        "parties.count=3",
        "dp-sgd.sampling-rate=0.25",
        "privacy.epsilon=8",
        "run.seed=1",
    ]
    summary = simulate(load_job(overrides=[*job, *overrides]), out=folder).summary.to_json()
    return summary, read(folder).text


def test_a_released_fraction_of_clipped_gradients_is_told_with_its_noise(tmp_path):
    summary, text = dp_sgd_run(tmp_path / "run", "dp-sgd.clipped-fraction-share=0.05")
    told = summary["clipped_fraction"]
    assert "Fraction of clipped gradients by round Released, and charged" in text
    for value, spread in (("mean", "mean_deviation"), ("last", "deviation")):
        noise = f"(standard deviation of the noise: {told[spread]:.2g})"
        assert f"{told[value]:.3g} {noise}" in text
    assert "one number for all parties" in text
    assert "A share of 0.05 of every step's privacy" in text
    assert f"gradients σ′{summary['dp_sgd']['gradient_multiplier']:.4g}" in text
    assert "doesn't tell how many gradients" not in text
    (tmp_path / "run" / "summary.json").unlink()  # as an interrupted run is
    assert f"{told['last']:.3g} in the last round" in read(tmp_path / "run").text


def test_without_a_release_the_report_names_the_key_that_makes_it(tmp_path):
    _, text = dp_sgd_run(tmp_path / "run")
    assert "The run doesn't tell how many gradients it clipped" in text
    assert "dp-sgd.clipped-fraction-share makes it" in text
    assert "Fraction of clipped" not in text


def test_a_run_of_one_round_has_bars_and_no_curves(tmp_path):
    page = read(make_run(tmp_path / "run", one=True))
    titles = [text.split(" simulation")[0] for text in page.all("h3")]
    assert titles == ["Loss", "Accuracy", "ε by conversion", "Records by party"]
    assert "δ = 0" in page.all("div", "card wide")[0].replace("\u00a0", " ")
    assert "plus at most δ" not in page.text


def test_an_interrupted_run_is_reported_from_its_rounds_and_its_ledger(tmp_path):
    folder = tmp_path / "run"
    job = load_job(overrides=["algorithm.rounds=7", "run.seed=1"])
    ended = simulate(job, out=folder).summary
    (folder / "summary.json").unlink()
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    (folder / "rounds.jsonl").write_text("\n".join(lines[:5]) + "\n")
    page = read(folder)
    assert "Interrupted after 5 of 7 rounds" in page.text
    assert "parley run --resume" in page.text
    assert "ledger may hold one charge more" in page.text
    assert "Rounded Gaussian noise" in page.text
    assert "Seeded noise protects nobody" in page.text
    assert "ε by round" in page.text
    so_far = read_run(folder).summary
    assert (so_far.status, so_far.rounds_done, so_far.rounds) == ("interrupted", 5, 7)
    (spent,) = json.loads(lines[4])["guarantees"]
    for name in ("run_id", "algorithm", "min_records", "weights"):
        assert getattr(so_far, name) == getattr(ended, name)
    assert so_far.secure_aggregation.scale_bits == ended.secure_aggregation.scale_bits
    so_far, ended = so_far.primary, ended.primary
    assert so_far.epsilon == spent["epsilon_charged"] < ended.epsilon
    for name in ("law", "point", "seeded"):
        assert getattr(so_far.noise, name) == getattr(ended.noise, name)
    assert so_far.noise.scale == pytest.approx(ended.noise.scale)
    assert so_far.noise.scale_of_sum == pytest.approx(ended.noise.scale_of_sum)
    for name in ("unit", "neighbouring", "calibration"):
        assert getattr(so_far, name) == getattr(ended, name)
    assert so_far.accounts[0].epsilon == so_far.epsilon


def test_a_torn_last_line_is_left_out_and_said(tmp_path):
    folder = interrupted(tmp_path / "run", rounds=7)
    rounds = folder / "rounds.jsonl"
    rounds.write_text(rounds.read_text() + '{"round": 8, "par')
    page = read(folder)
    assert "Interrupted after 7 of" in page.text
    assert "line 8" in page.text


def test_a_model_file_that_was_changed_is_said_and_nothing_taken_from_it(tmp_path):
    folder = parley.run(
        parley.load_job(overrides=["algorithm.rounds=1", "secure-aggregation.masked-check=false"]),
        out=tmp_path / "run",
    ).folder
    assert "Coefficients" in read(folder).text
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    page = read(folder).text
    assert "nothing here is from it" in page
    assert "changed or damaged since" in page
    assert str(tmp_path) not in page
    assert "Coefficients" not in page


def test_a_round_logged_twice_counts_once(tmp_path):
    folder = interrupted(tmp_path / "run", rounds=3)
    rounds = folder / "rounds.jsonl"
    rounds.write_text(rounds.read_text() + rounds.read_text().splitlines()[-1] + "\n")
    assert "Interrupted after 3 of 3 rounds" in read(folder).text


def test_many_parties_become_a_histogram_that_counts_each_once(tmp_path):
    sizes = [50 + i % 90 for i in range(1000)]
    page = read(make_run(tmp_path / "run", parties=1000, sizes=sizes))
    table = next(text for text in page.all("figure") if text.startswith("Records by party"))
    rows = re.findall(r"(\d+) to (\d+) +(\d+)", table.split("parties", 2)[-1])
    assert sum(int(count) for _, _, count in rows) == 1000
    assert len(rows) <= 21


def test_losses_of_parties_are_shown_when_there_were_any(tmp_path):
    page = read(make_run(tmp_path / "run", faults=True, rounds=240))
    figure = page.all("figure")[-1]
    assert "80 dropped out and 80 declined, in 80 of 240 rounds" in figure
    assert "Parties lost" not in read(make_run(tmp_path / "quiet")).text


def test_several_accounts_of_one_guarantee_are_shown_side_by_side(tmp_path):
    rows = [
        {"adversary": "server-and-colluders", "charged": True, "epsilon": 2.0, "delta": 1e-5},
        {"adversary": "readers", "charged": False, "epsilon": 1.23401, "delta": 1e-5},
    ]
    page = read(make_run(tmp_path / "run", accounts=rows))
    table = next(text for text in page.all("table") if text.startswith("Against whom"))
    assert "per record; neighbours differ by replacing one record" in table
    table = table.replace("\u00a0", " ")
    assert (
        "the server and the parties that may collude with it ε = 2 at δ = 10⁻⁵ (charged)" in table
    )
    readers = "whoever sees what was released, if everyone else is honest"
    assert f"{readers} ε = 1.235 at δ = 10⁻⁵" in table


def test_epsilon_is_rounded_up_never_down(tmp_path):
    page = read(make_run(tmp_path / "run", epsilon=1.98401))
    assert "1.985" in page.all("div", "card wide")[0]


def test_a_real_run_without_simulated_figures_has_no_marks(tmp_path):
    folder = make_run(tmp_path / "run", simulation_only=[], engine="flower", records_by_party=[])
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for line in lines:
        line["simulation_only"] = {}
    (folder / "rounds.jsonl").write_text("\n".join(map(json.dumps, lines)))
    summary = json.loads((folder / "summary.json").read_text())
    for name in list(summary):
        if "loss" in name or "accuracy" in name:
            summary[name] = None
    (folder / "summary.json").write_text(json.dumps(summary))
    page = read(folder)
    assert "simulation only" not in page.text
    assert "ε by round" in page.text


def test_a_map_of_labels_and_quantiles_are_drawn_as_they_are_told(tmp_path):
    from parley.simulations.data.spread import spread

    rng = np.random.default_rng(0)
    for parties, title, mark in ((12, "Labels by party", "fill-opacity"), (40, "Labels over", "")):
        labels = rng.integers(0, 7, parties * 20)
        told = spread(labels, np.arange(0, len(labels) + 1, 20))
        facts = told.adding(kind="dirichlet", alpha=0.3).to_json()
        folder = make_run(tmp_path / str(parties), parties=parties, partition=facts)
        text = write_report(folder).read_text(encoding="utf-8")
        page = Page(text)
        shown = next(each for each in page.all("figure") if title in each)
        assert f"<h3>{title}" in text
        at = text.index(f"<h3>{title}")
        assert "simulation only" in text[at : at + 120]
        assert "α\u00a0=\u00a00.3" in shown or "α = 0.3" in shown
        assert mark in text


def test_two_guarantees_are_told_with_unit_and_relation_each(tmp_path):
    where = {"server": "The noise is added where the sum is", "share": "Enough parties are honest"}
    for charged, point in (("inner", "server"), ("outer", "server"), ("outer", "share")):
        folder = make_run(
            tmp_path / charged / point,
            unit="record",
            more_guarantees=[
                {
                    "unit": "party",
                    "neighbouring": "replace-one",
                    "epsilon": 4.0,
                    "delta": 1e-4,
                    "epsilon_budget": 4.5,
                    "delta_budget": 1e-4,
                    "rho": 0.4,
                    "epsilon_by_conversion": {"exact": 4.0},
                    "conversion": "exact",
                    "accounts": [],
                    "clip_norm": 0.5,
                    "noise": {
                        "law": "gaussian",
                        "scale": 0.6,
                        "scale_of_sum": 3.0,
                        "expected_norm": None,
                        "sensitivity": 0.3,
                        "point": point,
                    },
                }
            ],
            record_bounds={
                "charged": charged,
                "inner": {"epsilon": 1.98 if charged == "inner" else 7.0, "conversion": "pld"},
                "outer": {"epsilon": 4.0 if charged == "inner" else 1.98, "conversion": "exact"},
            },
        )
        page = Page(write_report(folder).read_text(encoding="utf-8"))
        text = page.text.replace("\u00a0", " ")
        assert "per record; neighbours differ by replacing one record" in text
        assert "per party; neighbours differ by replacing one party" in text
        assert "ε = 4 at δ = 10⁻⁴" in text
        assert ("the bound by the noise on the sum" in text) == (charged == "outer")
        if charged == "outer":
            assert f"Per record: {where[point]}" in text
            assert "a record's ε is 7;" in text
