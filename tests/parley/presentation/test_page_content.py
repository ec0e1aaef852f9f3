"""What a report says of one run: figures, noise, guarantees, who learns what, public ranges."""

import json
import re

import numpy as np
import polars as pl
import pytest
from pages import Page, interrupted, make_run, read

import parley
from parley.presentation.disclosure_tables import (
    build_disclosure_table,
    build_party_table,
    build_range_table,
)
from parley.presentation.run_page import write_report
from parley.server.jobs.job_file import load_job
from parley.server.records.run_reader import read_run
from parley.server.statements.number_format import format_number
from parley.simulations.engine.fast_engine import simulate


def test_entropy_noise_is_not_called_seeded(tmp_path):
    folder = make_run(tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text())
    summary["guarantees"][0]["noise"]["seeded"] = False
    (folder / "summary.json").write_text(json.dumps(summary))
    page = read(folder)
    assert "Seeded noise" not in page.text
    assert "operating system's entropy" in page.text


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
    assert "ledger may hold one more charge" in page.text
    assert "Rounded Gaussian noise" in page.text
    assert "Seeded noise therefore protects no one" in page.text
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
    assert "Contribution of each column" in read(folder).text
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    page = read(folder).text
    assert "this page shows nothing from it" in page
    assert "it was changed or damaged" in page
    assert str(tmp_path) not in page
    assert "Contribution of each column" not in page


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


def test_epsilon_is_rounded_up_never_down(tmp_path):
    page = read(make_run(tmp_path / "run", epsilon=1.98401))
    assert "1.985" in page.all("div", "card wide")[0]


def test_a_map_of_labels_and_quantiles_are_drawn_as_they_are_told(tmp_path):
    from parley.simulations.metrics.heterogeneity_figures import compute_label_distribution

    rng = np.random.default_rng(0)
    for parties, title, mark in (
        (12, "Labels by party", "fill-opacity"),
        (40, "Labels of the parties", ""),
    ):
        labels = rng.integers(0, 7, parties * 20)
        told = compute_label_distribution(labels, np.arange(0, len(labels) + 1, 20))
        facts = told.with_fields(kind="dirichlet", alpha=0.3).to_json()
        folder = make_run(tmp_path / str(parties), parties=parties, partition=facts)
        text = write_report(folder).read_text(encoding="utf-8")
        page = Page(text)
        shown = next(each for each in page.all("figure") if title in each)
        assert f"<h3>{title}" in text
        at = text.index(f"<h3>{title}")
        assert "simulation only" in text[at : at + 120]
        assert "α\u00a0=\u00a00.3" in shown or "α = 0.3" in shown
        assert mark in text


FRACTION = (
    *("algorithm.kind=fedavg", "model.kind=mlp", "model.hidden=[4]", "algorithm.rounds=2"),
    *("parties.count=3", "privacy.epsilon=8", "dp-sgd.clipped-fraction-share=0.05"),
)


def test_an_interrupted_run_tells_the_fraction_of_clipped_gradients_so_far(tmp_path):
    told = simulate(load_job(overrides=FRACTION), out=tmp_path / "run").summary.clipped_fraction
    (tmp_path / "run" / "summary.json").unlink()
    assert f"{format_number(told.last)} in the last round" in read(tmp_path / "run").text


def other_guarantee(point):
    return {
        **{"unit": "party", "neighbouring": "replace-one", "epsilon": 4.0, "delta": 1e-4},
        **{"epsilon_budget": 4.5, "delta_budget": 1e-4, "rho": 0.4, "conversion": "exact"},
        **{"epsilon_by_conversion": {"exact": 4.0}, "accounts": [], "clip_norm": 0.5},
        "noise": {
            **{"law": "gaussian", "scale": 0.6, "scale_of_sum": 3.0, "expected_norm": None},
            **{"sensitivity": 0.3, "point": point},
        },
    }


@pytest.mark.parametrize(
    ("point", "where"),
    [
        ("server", "The server adds the noise, so for a moment"),
        ("share", "Enough parties are honest"),
    ],
)
def test_a_record_that_is_charged_by_the_noise_on_the_sum_is_told_whom_that_holds_against(
    tmp_path, point, where
):
    """Charged by its party's own noise it is in a golden text."""
    page = read(
        make_run(
            tmp_path / "run",
            more_guarantees=[other_guarantee(point)],
            record_bounds={
                "charged": "outer",
                "inner": {"epsilon": 7.0, "conversion": "pld"},
                "outer": {"epsilon": 1.98, "conversion": "exact"},
            },
        )
    )
    text = page.text.replace("\u00a0", " ")
    assert "bound by the noise on the sum is charged" in text
    assert f"Per record: {where}" in text
    assert "A record's ε is 7 by only the DP-SGD" in text
    assert "ε = 4 at δ = 10⁻⁴" in text


SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 110] }
ward = { kind = "categorical", categories = ["north", "south"] }
hospital = { kind = "ignore" }
outcome = { kind = "label", positive = ["died"], negative = ["alive"] }
"""


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(2)
    age = rng.integers(20, 100, 360)
    return pl.DataFrame(
        {
            "age": age,
            "ward": rng.choice(["north", "south"], 360),
            "hospital": rng.choice(["Charité", "St <b>Mary</b>"], 360),
            "outcome": np.where(age + rng.normal(0, 20, 360) > 70, "died", "alive"),
        }
    )


def run_of(frame, folder, *overrides):
    folder.mkdir(exist_ok=True)
    (folder / "schema.toml").write_text(SCHEMA)
    frame.write_csv(folder / "rows.csv")
    job = parley.load_job(
        overrides=[
            *(f"data.source={folder}/rows.csv", f"data.schema={folder}/schema.toml"),
            *("data.partition=column", "data.partition-column=hospital", "parties.count=2"),
            *("algorithm.rounds=3", "secure-aggregation.masked-check=false", *overrides),
        ]
    )
    return parley.run(job, out=folder / "run")


def learns(result):
    (table,) = [build_disclosure_table(result.summary, of) for of in result.summary.guarantees]
    return {who: can for who, _, can in table.rows}


def test_each_noise_point_says_what_the_server_and_others_can_learn(frame, tmp_path):
    shared = run_of(frame, tmp_path / "share", "secure-aggregation.backend=masked")
    told = learns(shared)
    by = {row.adversary: row for row in shared.summary.primary.accounts}
    # Nobody is told less than what is proved against those who know as much.
    assert (
        f"ε = {shared.summary.primary.epsilon:.4g}" in told["the server"]
        or "= 1 " in told["the server"]
    )
    assert told["readers of the model"] != told["all other parties and the server together"]
    assert by["readers"].epsilon <= by["all-others"].epsilon
    assert "nothing about records" in told["outsiders on the network"]
    trusted = learns(run_of(frame, tmp_path / "server", "privacy.noise-point=server"))
    assert trusted["the server"] == "not bounded by any ε: it is trusted"
    assert trusted["readers of the model"].startswith("at most ε = ")
    assert "all other parties and the server together" not in trusted
    seeded = learns(run_of(frame, tmp_path / "seeded", "run.seed=1"))
    assert all("seed" in can for who, can in seeded.items() if "outsiders" not in who)


def test_the_page_has_names_and_ranges(frame, tmp_path):
    result = run_of(frame, tmp_path)
    page = (result.folder / "report.html").read_text()
    assert result.summary.partition.parties == ("Charité", "St <b>Mary</b>")
    assert result.summary.partition.labels == ("alive", "died")
    assert "Charité" in page
    assert "<b>Mary" not in page  # names are data, never markup
    ranges = build_range_table(result.folder)
    assert ["age", "numeric", "0 to 110"] in ranges.rows
    assert ranges.rows[-1] == ["outcome", "label", "alive, died"]
    shown = result._repr_html_()  # as a notebook has it
    assert "ε = 1 at δ = 1e-05, per record (replace-one)" in shown.partition("<details>")[0]
    assert "Exact: no noise was added to this score. Only a simulation can show it." in shown
    assert str(result.folder) in shown
    assert "&amp;lt;b&amp;gt;Mary" in shown  # the report, in a frame without scripts


def test_real_parties_are_named_as_they_enrolled(frame, tmp_path):
    folder = run_of(frame, tmp_path).folder
    assert "enrolled" not in (folder / "report.html").read_text()
    board = [
        {"name": "St <b>Mary</b>", "state": "unmasked", "reason": ""},
        {"name": "charite", "state": "declined", "reason": "budget-exhausted"},
    ]
    (folder / "parties.json").write_text(json.dumps({"parties": board}, allow_nan=False))
    assert build_party_table(folder).rows[1] == ["charite", "declined (budget-exhausted)"]
    page = write_report(folder).read_text()
    assert "St &lt;b&gt;Mary&lt;/b&gt;" in page
    assert "declined (budget-exhausted)" in page
    (folder / "parties.json").write_text('{"parties": 3}')
    assert build_party_table(folder) is None
