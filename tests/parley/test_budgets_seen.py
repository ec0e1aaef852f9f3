"""What a data set has spent and has left is told before a run, after it, and by its ledger."""

import re
import sqlite3

import pytest

import parley
from parley.cli import app
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import BudgetExceeded, LedgerConflict
from parley.server.jobs.job_file import load_job
from parley.server.statements.data_account_text import format_data_account
from parley.simulations.engine.fast_engine import simulate

QUICK = [
    *("run.seed=3", "parties.count=2", "algorithm.rounds=4", "privacy.epsilon=1"),
    "secure-aggregation.masked-check=false",
]


def _job(folder, *overrides, budget=2.5):
    ledger = f"privacy.ledger={folder / 'all.sqlite'}"
    return load_job(overrides=[*QUICK, ledger, f"privacy.dataset-epsilon={budget}", *overrides])


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A ledger of which one job of four rounds is spent."""
    folder = tmp_path_factory.mktemp("shared")
    return folder, simulate(_job(folder), out=folder / "first")


def test_plan_and_result_say_how_many_such_jobs_still_fit_and_that_many_do(shared, tmp_path):
    folder, first = shared
    (told,) = first.summary.data_accounts
    (planned,) = parley.plan(_job(folder)).data_accounts
    assert planned == told
    assert told.releases == 4
    # The charge is composed: four jobs of ε = 1 cost less than 2.5 together. As many as are told
    # fit, and one more does not.
    with Ledger.open(folder / "all.sqlite", read_only=True) as ledger:
        (totals,) = ledger.list_accounts()
        (event, count) = next(iter(totals.spent.counts.items()))
    total = totals.spent.add(event, count=told.jobs * count)
    assert told.jobs >= 1
    assert totals.budget.can_admit(total)
    assert not totals.budget.can_admit(total.add(event, count=count))
    sentence = format_data_account(told)
    for part in ("'breast-cancer' has spent ε = ", "one record", "in 4 releases", "left ε = "):
        assert part in sentence


def test_plan_says_where_nothing_is_known_or_the_run_would_be_refused(shared, tmp_path):
    folder, _ = shared
    assert "there is no ledger" in parley.plan(_job(tmp_path)).data_note
    assert (
        "the ledger has no data set" in parley.plan(_job(folder, "privacy.dataset=other")).data_note
    )
    assert parley.plan(_job(folder)).refusal is None
    assert parley.plan(load_job(overrides=QUICK)).data_accounts is None


@pytest.mark.parametrize(
    ("budget", "more", "said"),
    [
        (9, (), "as it was registered.*ε = 2.5.*got .*ε = 9"),
        (2.5, ("privacy.neighbouring=add-or-remove-one", "parties.min-records=9"), "as it was reg"),
        (2.5, ("privacy.certificate=zcdp",), "as it was registered"),
        (2.5, ("privacy.epsilon=2.4",), "0 of the 4 would fit|[123] of the 4 would fit"),
    ],
)
def test_a_plan_refuses_what_the_ledger_refuses_its_run(budget, more, said, shared, tmp_path):
    folder, _ = shared
    job = _job(folder, *more, budget=budget)
    refusal = parley.plan(job).refusal
    assert re.search(said, refusal)
    with pytest.raises((LedgerConflict, BudgetExceeded)) as refused:
        simulate(job, out=tmp_path / "run")
    registered = "as it was registered"
    assert (registered in str(refused.value)) == (registered in refusal)
    if "would fit" in refusal:
        assert str(refused.value).startswith(refusal)
        assert parley.plan(_job(folder, *more, "run.partial=true")).refusal is None


def test_a_job_that_cannot_finish_is_refused_unless_partial(tmp_path):
    simulate(_job(tmp_path), out=tmp_path / "first")
    long = _job(tmp_path, "algorithm.rounds=40", "privacy.epsilon=2.4")
    refused = r"of the 40 would fit. Nothing was released. `--partial` .* starts"
    with pytest.raises(BudgetExceeded, match=refused):
        simulate(long, out=tmp_path / "whole")
    assert not (tmp_path / "whole").exists()
    partial = _job(tmp_path, "algorithm.rounds=40", "privacy.epsilon=2.4", "run.partial=true")
    ended = simulate(partial, out=tmp_path / "part").summary
    assert ended.status == "budget-exhausted"
    assert 0 < ended.rounds_done < 40
    with Ledger.open(tmp_path / "all.sqlite") as ledger:
        (totals,) = ledger.list_accounts()
        assert totals.spent.releases == 4 + ended.rounds_done
        assert totals.budget.can_admit(totals.spent)
        assert ledger.verify() == []
    with pytest.raises(BudgetExceeded):
        simulate(partial, out=tmp_path / "none")


def test_a_budget_is_raised_with_a_reason_that_the_chain_keeps(tmp_path, capsys):
    place = tmp_path / "all.sqlite"
    simulate(_job(tmp_path, budget=1), out=tmp_path / "first")
    with pytest.raises(BudgetExceeded):
        simulate(_job(tmp_path, budget=1), out=tmp_path / "second")
    command = ["ledger", "raise", str(place), "breast-cancer", "--reason", "board, 3 May"]
    for wrong in (["--epsilon", "0.5"], ["--epsilon", "1"], [], ["--delta", "0"]):
        with pytest.raises(LedgerConflict, match="Expected a budget above"):
            app([*command, *wrong], standalone_mode=False)
    with pytest.raises(LedgerConflict, match="Expected a reason"):
        app([*command[:-1], " ", "--epsilon", "3"], standalone_mode=False)
    with pytest.raises(LedgerConflict, match=r"'breast-cancer' \(unit record\)\), got 'wards'"):
        app([*command[:3], "wards", *command[4:], "--epsilon", "3"], standalone_mode=False)
    app([*command, "--epsilon", "3"], standalone_mode=False)
    simulate(_job(tmp_path, budget=3), out=tmp_path / "second")
    capsys.readouterr()
    app(["ledger", "show", str(tmp_path / "second")], standalone_mode=False)  # the job's ledger
    shown = " ".join(capsys.readouterr().out.split())
    assert "8 releases" in shown
    assert "raised to ε = 3 at δ = 1e-05 at" in shown
    assert "board, 3 May" in shown
    app(["ledger", "verify", str(tmp_path / "second")], standalone_mode=False)
    with sqlite3.connect(place) as database:
        database.execute(
            "UPDATE parley_ledger_records SET body = replace(body, 'board', 'chair') "
            "WHERE kind = 'raise'"
        )
    with Ledger.open(place, read_only=True) as ledger:
        assert ledger.verify() != []
