"""Certificates in the ledger: written first, kept, and what each admits, holds and gives back."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from ledgers import ADULT, an_entry

from parley.privacy.accounting.certificates import Certificate
from parley.privacy.accounting.events import (
    Approximate,
    Gaussian,
    PlannedSteps,
    PoissonSampledGaussian,
    Pure,
    Repeated,
)
from parley.privacy.accounting.gaussian_curve import gaussian_epsilon
from parley.privacy.accounting.guarantee import Unit
from parley.privacy.accounting.subsampled import planned_steps
from parley.privacy.calibration.inverses import gaussian_mu
from parley.privacy.ledger.errors import BudgetExceeded, LedgerConflict
from parley.privacy.ledger.ledger import Ledger

OLD = Path(__file__).parents[2] / "vectors" / "ledger-version-6.sql"
SHARED = replace(ADULT, delta=1e-5, certificate=Certificate.GAUSSIAN, reserved_delta=1e-6)
KEY = SHARED.key
STEP = PoissonSampledGaussian(sampling_rate=0.01, noise_multiplier=2.0, neighbouring="replace-one")
ROUND = Approximate(event=Repeated(event=STEP, count=10), delta=2.0**-70)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


def opened(path, **terms):
    ledger = Ledger.open(path)
    ledger.register(replace(SHARED, **terms))
    return ledger


def account(ledger):
    (found,) = ledger.totals()
    return found


def reserve(ledger, index, event, run="run-1"):
    return ledger.reserve((an_entry(index, event=event, run_id=run),))[0]


def test_a_certificate_is_in_the_first_record_and_never_another(path):
    with opened(path) as ledger:
        assert account(ledger).budget.certificate is Certificate.GAUSSIAN
        other = replace(SHARED, certificate=Certificate.ZCDP, reserved_delta=1e-7)
        assert ledger.register(other) == (SHARED,)  # nothing was asked for by name
        with pytest.raises(LedgerConflict, match=r"certificate gaussian; got .*certificate zcdp"):
            ledger.register(replace(other, insists=True))
        raised = ledger.raise_budget(KEY, epsilon=2.0, reason="asked for")
        assert (raised.certificate, raised.reserved_delta) == (Certificate.GAUSSIAN, 1e-6)
        with pytest.raises(ValueError, match="lowest-bound"):
            ledger.register(
                replace(SHARED, name="b", fingerprint="b", certificate=Certificate.LOWEST_BOUND)
            )
        assert ledger.verify() == []


@pytest.mark.parametrize("certificate", [Certificate.GAUSSIAN, Certificate.ZCDP])
def test_a_pure_release_after_a_gaussian_one_is_refused_with_what_is_left(path, certificate):
    mu = gaussian_mu(0.69, 1e-5 * 0.99)
    with opened(path, certificate=certificate, reserved_delta=1e-7) as ledger:
        reserve(ledger, 1, Gaussian(mu=mu))
        spent = account(ledger).epsilon
        assert 0.69 * (1 - 1e-6) <= spent < 0.76
        with pytest.raises(BudgetExceeded, match="is spent") as refused:
            reserve(ledger, 2, Pure(epsilon=0.28))
        assert refused.value.left.epsilon == pytest.approx(1 - spent)
        assert account(ledger).epsilon == spent


def test_a_gaussian_account_is_used_up_at_the_delta_that_is_not_kept_back(path):
    most = gaussian_mu(1.0, 1e-5 - 1e-6)
    with opened(path) as ledger:
        with pytest.raises(BudgetExceeded):
            reserve(ledger, 1, Gaussian(mu=most * (1 + 1e-6)))
        ledger.hold("run-1", {KEY: ((Gaussian(mu=most / 2), 4),)})
        assert account(ledger).remaining.epsilon == 0
        reserve(ledger, 1, Gaussian(mu=most / 2))
        ledger.give_back("run-1")  # the rounds that it did not make
        ledger.hold("run-2", {KEY: ((Gaussian(mu=most / 2), 3),)})


def test_a_job_of_sampled_steps_is_charged_whole_when_it_begins_and_gives_nothing_back(path):
    with opened(path) as ledger:
        ledger.hold("run-1", {KEY: ((ROUND, 5),)})
        whole = planned_steps(ROUND, 5, 5e-7 * (1 - 1e-12))
        (event,) = account(ledger).spent.counts
        assert isinstance(event, PlannedSteps)
        assert (event.event, event.count) == (ROUND, 5)
        assert event.delta == pytest.approx(5e-7, rel=1e-6)
        assert event.mu == pytest.approx(whole.mu, rel=1e-5)
        charged = account(ledger).epsilon
        assert charged == pytest.approx(gaussian_epsilon(event.mu, 9e-6), rel=1e-9)
        assert charged < 0.5 * gaussian_epsilon((50 * 1.0) ** 0.5, 9e-6)  # without sampling
        for index in (1, 2):
            ledger.commit((reserve(ledger, index, ROUND).id,), outcome={})
        ledger.void((reserve(ledger, 3, ROUND).id,), "too few")
        assert account(ledger).epsilon == charged
        ledger.give_back("run-1")
        assert (account(ledger).epsilon, account(ledger).holders) == (charged, {})
        ledger.hold("run-1", {KEY: ((ROUND, 3),)})  # resumed
        for index in (3, 4, 5):
            ledger.commit((reserve(ledger, index, ROUND).id,), outcome={})
        assert account(ledger).epsilon == charged
        assert ledger.verify() == []
    with Ledger.open(path) as ledger:
        reserve(ledger, 6, ROUND)  # of no plan: a job of one release
        assert account(ledger).epsilon > charged
        assert account(ledger).spent.releases == 6
        ledger.hold("run-2", {KEY: ((ROUND, 5),)})
        jobs = [e.delta for e, n in account(ledger).spent.counts.items() for _ in range(n)]
        assert sum(jobs) < 1e-6
        assert ledger.verify() == []


def test_a_plan_admits_one_run(path):
    plan = {"certificate": Certificate.PLAN, "reserved_delta": None}
    with opened(path, **plan) as ledger:
        ledger.hold("run-1", {KEY: ((Gaussian(mu=0.05), 3),)})
        reserve(ledger, 1, Gaussian(mu=0.05))
        for other in (
            lambda: ledger.hold("run-2", {KEY: ((Gaussian(mu=0.01), 1),)}),
            lambda: reserve(ledger, 1, Gaussian(mu=0.01), run="run-2"),
        ):
            with pytest.raises(LedgerConflict, match="for whose plan alone"):
                other()
        ledger.give_back("run-1")
        with pytest.raises(LedgerConflict, match="for whose plan alone"):
            reserve(ledger, 1, Gaussian(mu=0.01), run="run-2")
        reserve(ledger, 2, Gaussian(mu=0.05))
        assert ledger.verify() == []


def test_a_ledger_of_before_continues_under_its_old_rule_and_says_what_that_holds_for(path):
    with sqlite3.connect(path) as connection:
        connection.executescript(OLD.read_text(encoding="utf-8"))
    connection.close()
    with Ledger.open(path) as ledger:
        assert ledger.verify() == []
        old = account(ledger)
        assert old.budget.certificate is Certificate.LOWEST_BOUND
        assert old.budget.promise.startswith("if kinds and sizes were not chosen by answers")
        assert old.epsilon == old.spent.epsilon(1e-5)[1]
        (same,) = ledger.register(replace(SHARED, certificate=None))
        assert same.certificate is Certificate.LOWEST_BOUND
        (open_one,) = ledger.entries("run-3")
        (resumed,) = ledger.reserve((open_one.entry,))
        assert resumed.resumed
        ledger.reserve((replace(open_one.entry, index=2),))
        grown = account(ledger).spent
        assert dict(grown.counts)[STEP] == 20
        ledger.register(replace(SHARED, name="new", fingerprint="new"))
        assert ledger.verify() == []
    with Ledger.open(path) as ledger:
        certificates = {each.budget.name: each.budget.certificate for each in ledger.totals()}
        assert certificates == {
            "adult": Certificate.LOWEST_BOUND,
            "new": Certificate.GAUSSIAN,
        }
        assert ledger.remaining("new", Unit.RECORD).epsilon == 1.0
