"""Numbers and words about one thing are the same wherever they stand, or the page says why not."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from commands import invoked
from ledgers import ADULT

from parley.owner.approval_requests import _ApprovalCost
from parley.planning.plan_job import plan
from parley.presentation.run_paragraphs import format_headline
from parley.privacy.accounting.composition import Composition
from parley.privacy.accounting.privacy_events import GaussianEvent
from parley.privacy.ledger.ledger import Ledger
from parley.safe_io.attribute_docstrings import describe_fields
from parley.safe_io.plurals import format_noun
from parley.server.jobs.gradient_perturbation_section import GradientPerturbationSection
from parley.server.jobs.job_file import load_job
from parley.server.statements import guarantee_text


def test_a_plan_says_one_length_of_the_noise():
    outlook = plan(load_job(overrides=["parties.count=5"]))
    (own,) = outlook.guarantees
    length = own.noise.expected_norm
    assert outlook.noise_laws[own.noise.law].expected_norm == pytest.approx(length, rel=1e-4)
    assert outlook.calibrations["exact"].expected_norm == pytest.approx(length, rel=1e-4)
    (row,) = (
        row
        for row in outlook.alternatives
        if (row.parties, row.min_records) == (outlook.parties, outlook.min_records)
    )
    assert row.expected_norm == pytest.approx(length, rel=1e-4)


def test_a_ledger_and_a_plan_speak_of_the_same_honest_parties(tmp_path):
    folder = tmp_path / "r"
    said = invoked("run", "-v", "--out", folder, "-q", "--set", "algorithm.rounds=1").stdout
    shown = invoked("ledger", "show", folder).stdout
    assert "shares 3 of 5 are charged (1 may collude" in " ".join(said.split())
    joined = " ".join(shown.split())
    assert (
        "charged for the noise of 3 honest parties (1 more may collude with the server)" in joined
    )
    assert "3 shares of 4" not in joined


@pytest.mark.parametrize(
    ("deployment", "said"),
    [("ab" * 32, "each party charges this run to its own"), (None, "only for this run; other")],
)
def test_a_real_runs_ledgers_are_the_parties(deployment, said):
    assert guarantee_text.format_ledger(
        SimpleNamespace(ledger="", deployment=deployment)
    ).startswith(said)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("*.csv", " on several files,"),
        ("wards/*.csv", " on wards,"),
        ("wards/north-?.parquet", " on wards,"),
        ("./[ab].csv", " on several files,"),
        ("wards/all.csv", " on all.csv,"),
    ],
)
def test_a_title_names_the_data_and_no_pattern(source, said):
    title = format_headline(SimpleNamespace(data=source, parties=1, model="logistic"))
    assert said in title
    assert "*" not in title


def test_an_owner_is_told_why_two_minus_one_is_not_one(tmp_path):
    claims = ((GaussianEvent(mu=0.2), 1),)
    spent = Composition.from_events([GaussianEvent(mu=0.2)])
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.register(replace(ADULT, epsilon=2.0, delta=1e-5))
        account = ledger.list_accounts()[0]

        def cost(before):
            after = before.with_hold("r-2", claims, ())
            return _ApprovalCost(spent=spent, before=before, after=after, plans=(), blocks=())

        first = cost(account).sentence
        later = cost(account.with_hold("r-1", claims, ())).sentence
    assert "less than the job's own ε" not in first
    assert "The difference is less than the job's own ε: releases together cost less" in later


def test_what_a_rule_chooses_says_so_in_its_description():
    descriptions = describe_fields(GradientPerturbationSection)
    for key in ("rounds", "learning_rate", "momentum", "nesterov", "clip_norm", "average"):
        assert "rule" in descriptions[key], key


@pytest.mark.parametrize(("count", "said"), [(0, "rounds"), (1, "round"), (2, "rounds")])
def test_a_noun_stands_as_its_number_asks(count, said):
    assert format_noun(count, "round") == said


def test_a_plan_of_one_of_everything_has_no_plural():
    said = invoked(
        "plan",
        *("--set", "parties.count=1", "--set", "algorithm.rounds=1"),
        *("--set", "secure-aggregation.corrupt=0"),
    )
    assert said.exit_code == 0, said.stderr
    assert not re.search(r"\b1 (parties|records|rounds|releases|shares)\b", said.stdout)
