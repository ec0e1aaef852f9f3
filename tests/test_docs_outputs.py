"""README and the first pages show what the commands on them print, but for numbers and names."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parley.cli import app

_ROOT = Path(__file__).parents[1]
_FIRST_RUN = ("README.md", "docs/quickstart.md")


def printed(*words: object) -> list[str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def find_block(page: str, first_words: str) -> list[str]:
    """Return the lines of the page's block that begins with these words."""
    text = (_ROOT / page).read_text(encoding="utf-8")
    (block,) = re.findall(rf"```\n({re.escape(first_words)}.*?)```", text, re.DOTALL)
    return block.splitlines()


def mask(lines: list[str]) -> list[str]:
    """Replace what differs from run to run: run folders, figures after the decimal point."""
    text = re.sub(r"(?m)^(Saved +).*", r"\1RUN", "\n".join(lines))
    return re.sub(r"\d\.\d{3}", "0.000", text).splitlines()


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first") / "run"
    return printed("run", "--quiet", "--out", folder), folder


@pytest.mark.parametrize("page", _FIRST_RUN)
def test_the_first_run_prints_what_the_pages_show(first_run, page):
    lines, _ = first_run
    assert mask(lines) == mask(find_block(page, "5 parties, logistic"))
    assert len(lines) <= 15


def test_show_prints_what_the_quickstart_shows(first_run):
    shown = printed("show", first_run[1])
    assert shown[:3] == find_block("docs/quickstart.md", "Logistic regression on 30")[:3]
    assert shown[3].startswith("Strongest ")


def test_plan_prints_what_the_quickstart_shows():
    size = ("--set", "parties.count=100", "--set", "parties.min-records=500")
    assert printed("plan", *size) == find_block("docs/quickstart.md", "100 parties")
