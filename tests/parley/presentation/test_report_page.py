"""The page of a run stands alone, and marks what is simulated."""

import re

import pytest
from pages import interrupted, make_run, read

from parley.presentation.plots import Palette
from parley.presentation.run_page import write_report
from parley.server.records.run_folder import RunFolderError

pytestmark = pytest.mark.filterwarnings("error")


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


def test_every_colour_of_the_palette_has_a_form_for_the_dark_as_fill_and_as_line(page):
    for value in Palette:
        assert f'svg [fill="{value}"]' in page.styles, value
        assert f'svg [stroke="{value}"]' in page.styles, value


def test_a_negative_number_in_a_cell_has_a_minus_and_a_unit_stays_with_its_number():
    from parley.presentation.html_renderer import build_environment

    page = build_environment().from_string("{{ text|cell }}")
    assert page.render(text="-1,400.5") == "−1,400.5"
    assert page.render(text="-m x") == "-m x"
    assert page.render(text="8.5 % in 1.1 s, 5 sites") == "8.5\u00a0% in 1.1\u00a0s, 5 sites"


def test_a_name_that_a_template_does_not_know_is_an_error():
    from jinja2 import UndefinedError

    from parley.presentation.html_renderer import build_environment

    page = build_environment()
    assert page.autoescape is True
    with pytest.raises(UndefinedError, match="nobody"):
        page.from_string("{{ nobody }}").render()
    assert page.from_string("{{ name }}").render(name="<script>") == "&lt;script&gt;"
    assert page.from_string("{{ name|prose }}").render(name="`<b>`") == "<code>&lt;b&gt;</code>"


def test_a_password_in_the_job_is_not_shown(tmp_path):
    job = '[ledger]\nurl = "postgresql://me:s3cret@host/db"\n'
    text = write_report(make_run(tmp_path / "run", job=job)).read_text()
    assert "s3cret" not in text
    assert "postgresql://me:…@host/db" in text


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
    files = {"job.toml", "rounds.jsonl", "summary.json", "report.html"}
    assert {path.name for path in folder.iterdir()} == files
