"""Docstrings, comments and pages are in plain English: counts of words and lengths of sentences.

The figures are means over the whole project, so a good sentence that breaks a rule stays.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

_ROOT = Path(__file__).parents[1]


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(_ROOT / "docs")
    return importlib.import_module("measure_language")


def test_docstrings_and_comments_use_few_words_of_the_list(measure: ModuleType) -> None:
    caps = {
        "where for if": 6,
        "nobody, nothing": 12,
        "say, tell": 6,
        "alone": 2,
        "beside": 2,
    }
    figures = measure.measure_code()
    assert {name: figures[name] for name in caps if figures[name] > caps[name]} == {}


def test_pages_have_short_sentences_and_address_the_reader(measure: ModuleType) -> None:
    figures = measure.measure_pages()
    assert figures["words per sentence"] <= 17
    assert figures["sentences over 30 words, %"] <= 7
    assert figures["you"] >= 80
    assert figures["examples"] >= 5
    assert figures["numbers without their zero"] == 0


def test_figures_count_what_they_name(measure: ModuleType) -> None:
    source = '"""Return it where there is one. Nobody says so."""\n# It stands alone beside .5\n'
    counts = measure.count_words(measure.list_prose(source), measure.CODE_WORDS)
    assert [round(counts[name] * 15 / 1e4) for name in measure.CODE_WORDS] == [1, 1, 1, 1, 1]
    page = "# Title\n\nYou add .5 of it, for example. `x`\n\n| You | .5 |\n\n```\nyour .5\n```\n"
    text = measure.strip_markup(page)
    counts = measure.count_words([text], measure.PAGE_WORDS)
    assert {round(count * len(text.split()) / 1e4) for count in counts.values()} == {1}
    assert list(measure.list_sentence_lengths(text)) == [8]
