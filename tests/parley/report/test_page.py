"""A report says what the run's folder says, safely, completely, and with its marks in place."""

import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from parley.report.page import write_report
from parley.report.plots import Palette
from parley.server.jobs.file import load_job
from parley.server.records.reading import read_run
from parley.server.records.run_folder import RunFolderError
from parley.server.records.summary import RunSummary
from parley.simulations.engine.fast import simulate

pytestmark = pytest.mark.filterwarnings("error")

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """A page as blocks of text, each with the text of everything inside it."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.stack, self.blocks, self.styles = [], [], [], [], ""
        self.feed(text)
        assert not self.stack, f"unclosed: {[tag for tag, _, _ in self.stack]}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.stack.append((tag, dict(attrs), []))

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        opened, attributes, words = self.stack.pop()
        assert opened == tag
        text = "".join(words)
        self.blocks.append((tag, attributes, " ".join(text.split())))
        if tag == "style":
            self.styles = text
        elif self.stack:
            self.stack[-1][2].append(f" {text} " if tag in {"p", "li", "td", "th", "h3"} else text)

    def handle_data(self, data):
        if self.stack:
            self.stack[-1][2].append(data)

    def all(self, tag, name=""):
        wanted = set(name.split())
        return [
            text
            for found, attributes, text in self.blocks
            if found == tag and wanted <= set((attributes.get("class") or "").split())
        ]

    @property
    def text(self):
        return self.all("body")[0]


def make_run(folder, *, parties=5, rounds=12, sizes=None, one=False, faults=False, **changes):
    """A run folder as the fast engine leaves it, with figures of a plausible run."""
    folder.mkdir(parents=True)
    sizes = sizes or [91] * parties
    rounds = 1 if one else rounds
    kind = "output-perturbation" if one else "gradient-perturbation"
    epsilon, delta = changes.pop("epsilon", 1.98), 0.0 if one else 1e-5
    job = changes.pop("job", "")
    (folder / "job.toml").write_text(
        f"""[parties]\ncount = {parties}\nmin-records = {min(sizes)}\nweights = "uniform"\n
[data]\nsource = "breast-cancer"\n\n[model]\nkind = "logistic"\nlambda = 0.01\n
[algorithm]\nkind = "{kind}"\nrounds = {max(rounds, 2)}\n
[privacy]\nepsilon = 2.0\ndelta = {delta}\nnoise = "default"\ncalibration = "exact"
unit = "record"\nneighbouring = "replace-one"\n
[secure-aggregation]\nbackend = "ideal"\n\n[run]\nseed = 7\n{job}""",
        encoding="utf-8",
    )
    lines = []
    for number in range(1, rounds + 1):
        spent = epsilon * math.sqrt(number / rounds)
        proved = {"pure": spent} if one else {"exact": spent}
        proved |= {} if one else {"cks20": spent * 1.08, "zcdp": spent * 1.21}
        lost = (number % 3 == 0) if faults else 0
        lines.append(
            {
                "round": number,
                "parties": {
                    "asked": parties,
                    "answered": parties - 2 * lost,
                    "declined": int(lost),
                    "dropped": int(lost),
                    "summed": parties - 2 * lost,
                },
                "reasons": {},
                "stages": 5,
                "bytes_up": parties * 124,
                "bytes_down": parties * 248,
                "seconds": 0.0064,
                "rho": 0.04 * number / rounds,
                "epsilon": proved,
                "epsilon_charged": spent,
                "conversion": "pure" if one else "exact",
                "delta": delta,
                "simulation_only": {
                    "loss": 0.14 + 0.55 * math.exp(-number / 18),
                    "accuracy": 0.956 - 0.3 * math.exp(-number / 9),
                },
            }
        )
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = {
        "format": 1,
        "run_dir": str(folder),
        "ledger": "",
        "ledger_head": None,
        "reason": "",
        "metric": "accuracy",
        "weights": "uniform",
        "dimension": 31,
        "epsilon_by_conversion": {},
        "run_id": f"{folder.name}-0123456789abcdef",
        "created": "2026-02-11T09:41:07+00:00",
        "parley_version": "0.1.0",
        "engine": "fast",
        "status": "complete",
        "algorithm": kind,
        "model": "logistic",
        "data": "breast-cancer",
        "parties": parties,
        "records_by_party": sizes,
        "min_records": min(sizes),
        "rounds": rounds,
        "rounds_done": rounds,
        "epsilon": epsilon,
        "delta": delta,
        "epsilon_budget": 2.0,
        "delta_budget": delta,
        "rho": 0.0401,
        "conversion": "pure" if one else "exact",
        "accounts": [
            {"adversary": "readers", "charged": True, "epsilon": epsilon, "delta": delta},
        ],
        "unit": "record",
        "neighbouring": "replace-one",
        "calibration": "exact",
        "noise": {
            "law": "l2-laplace" if one else "gaussian",
            "scale": 0.0216,
            "scale_of_sum": 0.108,
            "expected_norm": 0.1203,
            "sensitivity": 0.0043956,
            "point": "server",
            "seeded": True,
        },
        "secure_aggregation": {
            "backend": "ideal",
            "min_survivors": 4,
            "bytes_up": parties * 124 * rounds,
            "bytes_down": parties * 248 * rounds,
            "ring_bits": 32,
            "scale_bits": 20,
            "inflation": 2.43e-5,
            "masked_check": "round 1: 5 contributions, identical to the last bit",
        },
        "loss": 0.1421,
        "baseline_loss": 0.1043,
        "excess_loss": 0.0378,
        "accuracy": 0.9561,
        "baseline_accuracy": 0.9737,
        "majority_accuracy": 0.6228,
        "seconds": 1.31,
        "seconds_per_round": 0.0064,
        "simulation_only": [
            "loss",
            "baseline_loss",
            "excess_loss",
            "accuracy",
            "baseline_accuracy",
            "majority_accuracy",
            "records_by_party",
        ],
        "advice": ["Twice ε halves the noise.", "`parley plan` shows it."],
    } | changes
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return folder


def interrupted(folder, **options):
    folder = make_run(folder, **options)
    (folder / "summary.json").unlink()
    return folder


def read(folder):
    return Page(write_report(folder).read_text(encoding="utf-8"))


KINDS = {
    "curves": {},
    "faults": {"faults": True, "rounds": 240},
    "one-round": {"one": True},
    "many-parties": {"parties": 1000, "sizes": [50 + i % 90 for i in range(1000)]},
    "equal-parties": {"parties": 1000, "sizes": [50] * 1000},
    "one-party": {"parties": 1, "sizes": [455]},
    "ridge": {"model": "ridge", "metric": "r2", "accuracy": 0.41},
    "exhausted": {"status": "budget-exhausted", "rounds_done": 12, "rounds": 40},
    "unlucky": {"status": "too-few-survivors", "reason": "Expected 4 parties, got 3."},
    "one-figure": {"loss": 0.2, "accuracy": None},
}


@pytest.fixture(scope="module", params=[*KINDS, "interrupted"])
def page(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "run"
    if request.param == "interrupted":
        return read(interrupted(folder, rounds=7))
    return read(make_run(folder, **KINDS[request.param]))


def test_the_page_stands_alone(page):
    assert not {"script", "link", "img", "iframe", "object", "base", "form"} & set(page.tags)
    for _, name, value in page.attributes:
        assert name not in {"src", "href", "srcset", "action", "data", "xlink:href"}
        assert not name.startswith("on")
        assert "//" not in value
    assert "url(" not in page.styles
    assert "@import" not in page.styles
    policy = [v for tag, name, v in page.attributes if tag == "meta" and name == "content"]
    assert any(value.startswith("default-src 'none'") for value in policy)


def test_every_epsilon_has_its_unit_and_relation_beside_it(page):
    numbers = page.all("p", "figure")  # a card's number; its unit is in the card, checked as such
    places = [text for text in page.all("p") if text not in numbers]
    places += page.all("div", "card") + page.all("figure") + page.all("caption")
    places += page.all("section", "section")
    said = [place for place in places if "ε" in place and "job.toml" not in place]
    assert len(said) >= 4
    for place in said:
        assert "per record" in place.lower() or "same unit" in place, place
        assert "replacing one record" in place or "same unit and relation" in place, place


def test_loss_and_accuracy_are_marked_simulation_only_wherever_they_are_shown(page):
    words = re.compile(r"\bloss\b|accuracy|R²", re.IGNORECASE)
    places = page.all("div", "card") + page.all("figure")
    shown = [place for place in places if words.search(place.replace("bounded by the loss", ""))]
    assert len(shown) >= 2
    assert all("simulation only" in place.lower() for place in shown)


def test_every_plot_is_labelled_and_has_a_table(page):
    plots = [v for tag, name, v in page.attributes if tag == "svg" and name == "aria-label"]
    assert len(plots) >= 2
    assert all(len(label) > 20 for label in plots)
    assert all("As a table" in figure for figure in page.all("figure"))
    beside = [text for text in page.all("table") if text.startswith("What each can learn")]
    assert len(beside) in {1, 2}  # one a guarantee
    assert len(page.all("table")) >= len(page.all("figure")) + len(beside)


def test_every_colour_of_a_plot_is_known_to_the_dark_scheme(page):
    drawn = {(name, v) for _, name, v in page.attributes if name in {"fill", "stroke"}}
    for name, value in drawn - {("fill", "none"), ("stroke", "none")}:
        assert value in set(Palette)
        assert f'[{name}="{value}"]' in page.styles


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
    summary["noise"]["seeded"] = False
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


EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>{{ run }}{% raw %}<b>'


def test_no_text_that_a_run_leaves_behind_becomes_markup(tmp_path):
    """Names of data sets, columns, labels, laws, parties in a reason, notes: all of them."""
    folder = make_run(tmp_path / "<b>run", job="# " + EVIL + "\n", reason=f"party {EVIL} failed")
    path = folder / "summary.json"
    known = RunSummary.parse(path.read_text(), path)
    accounts = [
        {"adversary": EVIL, "charged": charged, "epsilon": 1.0, "delta": 1e-5}
        for charged in (True, False)
    ]
    noise = facts_of(known.primary.noise, law=EVIL)
    own = facts_of(known.primary, noise=noise, accounts=accounts)
    facts = known.to_json() | {
        "guarantees": [own, own | {"unit": EVIL, "neighbouring": EVIL}],
        "partition": {
            "kind": "column",
            "column": EVIL,
            "labels": [EVIL, "1"],
            "numeric": False,
            "overall": [0.5, 0.5],
            "skew": {"mean": 0.1, "largest": 0.2},
            "quantiles": [0, 0.5, 1],
            "commonest": [0.5, 0.5, 0.5, 0.5, 0.6],
            "sizes": [91, 91, 91],
            "counts": [[40, 51]] * 5,
        },
        "secure_aggregation": facts_of(known.secure_aggregation, backend=EVIL, masked_check=EVIL),
    }
    texts = {key for key, value in facts.items() if isinstance(value, str)}
    facts |= dict.fromkeys(texts - {"metric", "run_dir"}, EVIL) | {"advice": [EVIL]}
    path.write_text(json.dumps(facts))
    lines = (folder / "rounds.jsonl").read_text().replace('"cks20"', json.dumps(EVIL))
    (folder / "rounds.jsonl").write_text(lines + '{"round": 13, "par')
    text = write_report(folder).read_text(encoding="utf-8")
    page = Page(text)
    assert not {"script", "img", "b"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert text.count("&lt;script&gt;") > 20
    assert "{{ run }}{% raw %}" in page.text  # data is never a template
    assert "line 13" in page.all("header")[0]


def facts_of(part, **changes):
    return part.adding(**changes).to_json()


def test_a_name_that_a_template_does_not_know_is_an_error():
    from jinja2 import UndefinedError

    from parley.report.parts import environment

    page = environment("parley.report")
    assert page.autoescape is True
    with pytest.raises(UndefinedError, match="nobody"):
        page.from_string("{{ nobody }}").render()
    assert page.from_string("{{ name }}").render(name="<script>") == "&lt;script&gt;"
    assert page.from_string("{{ name|prose }}").render(name="`<b>`") == "<code>&lt;b&gt;</code>"


def test_several_accounts_of_one_guarantee_are_shown_side_by_side(tmp_path):
    rows = [
        {"adversary": "the server and 3 parties", "charged": True, "epsilon": 2.0, "delta": 1e-5},
        {"adversary": "readers", "charged": False, "epsilon": 1.23401, "delta": 1e-5},
    ]
    page = read(make_run(tmp_path / "run", accounts=rows))
    table = next(text for text in page.all("table") if text.startswith("Against whom"))
    assert "per record; neighbours differ by replacing one record" in table
    table = table.replace("\u00a0", " ")
    assert "against the server and 3 parties ε = 2 at δ = 10⁻⁵ (charged)" in table
    readers = "against whoever sees what the run released, if everyone else is honest"
    assert f"{readers} ε = 1.235 at δ = 10⁻⁵" in table


def test_a_password_in_the_job_is_not_shown(tmp_path):
    job = '[ledger]\nurl = "postgresql://me:s3cret@host/db"\n'
    text = write_report(make_run(tmp_path / "run", job=job)).read_text()
    assert "s3cret" not in text
    assert "postgresql://me:…@host/db" in text


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


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda f: (f / "job.toml").unlink(), "Expected job.toml"),
        (lambda f: (f / "job.toml").write_text("= ="), "Expected TOML"),
        (lambda f: (f / "job.toml").write_bytes(b"\xff\xfe"), "Expected to read"),
        (lambda f: (f / "summary.json").write_text('{"loss": 1'), "Expected RunSummary as JSON"),
        (lambda f: (f / "summary.json").write_text("[1]"), "Expected RunSummary as JSON"),
        (lambda f: (f / "summary.json").write_text('{"format": 1}'), "summary.json"),
        (lambda f: (f / "rounds.jsonl").write_text('nonsense\n{"round": 1}\n'), "line 1"),
        (lambda f: (f / "rounds.jsonl").write_text('{"round": "x"}\n{"round": 1}\n'), "line 1"),
    ],
)
def test_a_folder_that_is_no_run_is_refused_with_the_file_named(tmp_path, break_it, message):
    folder = make_run(tmp_path / "run")
    break_it(folder)
    with pytest.raises(RunFolderError, match=re.escape(message)):
        write_report(folder)
    assert not (folder / "report.html").exists()


def test_no_folder_and_no_finished_round_are_refused(tmp_path):
    with pytest.raises(RunFolderError, match="not a directory"):
        write_report(tmp_path / "nowhere")
    folder = interrupted(tmp_path / "run")
    (folder / "rounds.jsonl").write_text("")
    with pytest.raises(RunFolderError, match="got neither"):
        write_report(folder)
    (folder / "rounds.jsonl").unlink()
    with pytest.raises(RunFolderError, match="got neither"):
        write_report(folder)


def test_a_report_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path):
    folder = make_run(tmp_path / "run")
    assert write_report(folder) == folder / "report.html"
    write_report(folder)
    assert {path.name for path in folder.iterdir()} == {
        "job.toml",
        "rounds.jsonl",
        "summary.json",
        "report.html",
    }


def test_importing_the_report_loads_nothing_heavy():
    code = "import sys, parley.report.page; print(sorted({'torch', 'polars'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


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
    for charged in ("inner", "outer"):
        folder = make_run(
            tmp_path / charged,
            unit="record",
            party_level={
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
                    "point": "server",
                },
            },
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
            assert "Per record: The noise is added where the sum is" in text
            assert "a record's ε is 7;" in text
