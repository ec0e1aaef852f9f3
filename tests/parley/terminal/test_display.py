"""What the terminal shows of a plan and of a run's end."""

from dataclasses import replace

import pytest
from ledgers import ADULT

from parley.client.contract.assumptions import CERTIFIED
from parley.planning import plan
from parley.privacy.accounting.events import Approximate, Gaussian, Pure
from parley.privacy.ledger.account import Account, Held
from parley.privacy.ledger.blocks import Spent
from parley.privacy.ledger.entry import Entry
from parley.privacy.ledger.replay import EntryState, RecordedEntry
from parley.server.jobs.file import load_job
from parley.simulations.engine.fast import simulate
from parley.terminal.ledger import LedgerContent, print_ledger, read_ledger
from parley.terminal.result import print_outlook, print_result

GAUSSIAN = {
    **{"mechanism": "gradient-perturbation", "neighbouring": "replace-one", "norm": "L2"},
    **{"sensitivity": 1.0, "accountant": "a", "accountant_version": "1"},
    **{"noise_law": "gaussian", "noise_parameter": 1.0},
}


def test_a_plan_and_its_run_say_the_same_noise_of_the_clipped_fraction(tmp_path, capsys):
    job = load_job(
        overrides=[
            *("algorithm.kind=fedavg", "model.kind=mlp", "model.hidden=[4]", "algorithm.rounds=2"),
            *("dp-sgd.clipped-fraction-share=0.04", "parties.count=3", "privacy.epsilon=8"),
        ]
    )
    steps = plan(job).dp_sgd
    assert steps.gradient_multiplier / steps.noise_multiplier == pytest.approx(0.96**-0.5)
    result = simulate(job, out=tmp_path / "r")
    told = result.summary.clipped_fraction
    assert told.deviation == pytest.approx(steps.clipped_fraction_deviation)
    # A deployment's server does not know what its parties came to; the noise is theirs too.
    print_result(replace(result, summary=result.summary.adding(dp_sgd=None)))
    assert "in every step" in " ".join(capsys.readouterr().out.split())


def test_a_long_ledger_shows_its_last_entries_and_says_how_many_there_are(capsys) -> None:
    entry = Entry(
        run_id="r",
        dataset="d",
        party="server",
        index=1,
        event=Approximate(event=Gaussian(mu=1.0), delta=1e-20),
        facts={"unit": "record", **GAUSSIAN},
    )
    recorded = tuple(
        RecordedEntry(
            reservation_id=index,
            entry=replace(entry, index=index),
            state=EntryState.COMMITTED,
            reserved_at="",
            outcome={"survivors": 3},
        )
        for index in range(1, 1001)
    )
    print_ledger(LedgerContent(datasets=(), entries=recorded))
    shown = capsys.readouterr().out
    assert "The last 200 of 1000 entries; --json shows all of them." in shown
    assert " 1000 " in shown
    assert " gaussian  0.5 " in shown
    assert " 800 " not in shown


def test_a_plan_tells_the_hours_of_a_stated_step(capsys) -> None:
    job = load_job(
        overrides=[
            "algorithm.kind=distributed-dp-sgd", "model.kind=mlp", "parties.count=10",
            "parties.min-records=100", "dp-sgd.sampling-rate=0.1", "privacy.epsilon=8",
            "dp-sgd.local-steps=20", "algorithm.rounds=10",
        ]
    )  # fmt: skip
    told = plan(job, seconds_a_step=4.5).distributed
    assert told is not None
    assert (told.steps, told.seconds_a_step, told.hours) == (200, 4.5, 0.25)
    print_outlook(plan(job, seconds_a_step=36.0))
    shown = " ".join(capsys.readouterr().out.split())
    assert "about 2 h, at 36 s a step; T <= 150 is advised there" in shown
    with pytest.raises(ValueError, match="seconds_a_step > 0"):
        plan(job, seconds_a_step=0.0)


def test_a_budget_is_shown_with_what_is_left_rounded_down(capsys) -> None:
    budget = replace(ADULT, name="[/b] adult")  # a name is no markup
    third, none = Spent().adding(Pure(epsilon=1 / 3), ()), Pure(epsilon=0.0)
    totals = Account(budget=budget, charged=third, held={"r2": Held(((none, 4),), ())})
    print_ledger(LedgerContent(datasets=(totals,), entries=()))
    shown = " ".join(capsys.readouterr().out.split())
    assert "[/b] adult: 1 releases, spent ε = 0.3334 of ε = 1 at δ = 0, per record; " in shown
    assert "neighbours differ by replacing one record; left ε = 0.6666" in shown
    assert "r2 holds 4 releases to come" in shown


def test_a_ledger_says_where_no_bound_is_proved(tmp_path, capsys):
    given = ["privacy.noise=laplace-l1", "algorithm.rounds=2", "parties.count=5"]
    print_ledger(read_ledger(str(simulate(load_job(overrides=given), out=tmp_path / "r").folder)))
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("per record, charged for 3 shares of 4:") == 1
    whole = shown[shown.index("against the server and all other parties: ") :]
    assert "no bound is proved (ε = ∞)" in whole


def test_a_ledger_says_what_a_run_s_epsilon_rests_on(tmp_path, capsys):
    given = ["algorithm.kind=output-perturbation", "algorithm.rounds=1", "parties.count=5"]
    print_ledger(read_ledger(str(simulate(load_job(overrides=given), out=tmp_path / "r").folder)))
    assert capsys.readouterr().out.count(f"assuming: {CERTIFIED}") == 1
