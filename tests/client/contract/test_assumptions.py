"""What an ε rests on beyond its proof is said by every algorithm, and beside every ε."""

import json
from pathlib import Path

import pytest
from make_golden import JOBS, MORE, known

from parley.client.algorithms.registry import ALGORITHMS, get_assumption
from parley.client.contract.assumptions import (
    BATCH_INVARIANCE,
    OWN_CLAIM,
    OWN_FEATURE_MAP,
    PERSON_IDENTIFIERS,
    select_assumptions,
)
from parley.client.queries.registry import QUERIES
from parley.privacy.accounting.threat_model import Unit


class _Own:
    kind = "sums.py:Mine"
    assumption = "nothing at all"


def test_code_of_ones_own_cannot_say_that_it_assumes_nothing():
    assert get_assumption(_Own()) == OWN_CLAIM


def test_what_a_record_does_to_others_is_no_matter_to_what_hides_its_party():
    said = [BATCH_INVARIANCE, "", OWN_FEATURE_MAP, BATCH_INVARIANCE, OWN_CLAIM]
    assert select_assumptions(Unit.RECORD, said) == (BATCH_INVARIANCE, OWN_FEATURE_MAP, OWN_CLAIM)
    assert select_assumptions(Unit.PARTY, said) == (OWN_CLAIM,)


@pytest.mark.parametrize("name", [f"job-{each}" for each in (*JOBS, *MORE) if each != "file"])
def test_plan_result_page_model_and_certificate_say_the_same_assumptions(name):
    text = known(name)
    stated = [
        json.loads(line.removeprefix("parley.assumptions: "))
        for line in text.splitlines()
        if line.startswith("parley.assumptions: ")
    ]
    assert stated
    assumed = stated[0]
    assert all(each == assumed for each in stated)
    line = f"assuming  {'; '.join(assumed)}"
    # Tables wrap nothing in golden texts; a plan and a result have a line each.
    assert text.count(line) == (0 if not assumed else text.count("assuming  "))
    if assumed:
        assert f"Assumed, not proved: {'; '.join(assumed)}." in text
        assert f"It assumes: {'; '.join(assumed)}." in text or "no privacy guarantee" in text


def test_answers_about_persons_say_who_says_what_a_person_is():
    text = known("session-persons")
    assert f"assuming: {PERSON_IDENTIFIERS}" in text
    assert f"It assumes: {PERSON_IDENTIFIERS}" in text


def _rows(title):
    """Name → cells, of the table below a title of the page."""
    page = (Path(__file__).parents[3] / "docs" / "privacy-proof.md").read_text(encoding="utf-8")
    table = page.split(f"## {title}\n")[1].split("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines() if line[:3] == "| `"]
    return {own[0].strip("`"): own for own in cells}


def test_the_page_has_a_row_for_every_algorithm_and_every_query():
    assert set(_rows("Each algorithm")) == set(ALGORITHMS)
    assert set(_rows("Each query")) == set(QUERIES)


@pytest.mark.parametrize("name", [*JOBS, *MORE])
def test_the_page_says_what_a_run_assumed(name):
    keys = dict(each.split("=", 1) for each in (JOBS | MORE)[name])
    kind = keys.get("algorithm.kind", "gradient-perturbation")
    said = [line for line in known(f"job-{name}").splitlines() if line.startswith("assuming  ")]
    if kind in ALGORITHMS:  # of code of one's own the page has a sentence
        page = _rows("Each algorithm")[kind][-1]
        assert all(line.removeprefix("assuming  ") in page for line in said)
