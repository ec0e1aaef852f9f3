"""Certificates in the ledger: written first, kept, and what each admits, holds and gives back."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from ledgers import ADULT, an_entry, messages
from typer.testing import CliRunner

from parley.commands.ledger import ledger_app
from parley.privacy.accounting import privacy_filters, subsampled_gaussian
from parley.privacy.accounting.account_admission import AccountCertificate
from parley.privacy.accounting.gaussian_curve import compute_cks20_epsilon, compute_gaussian_epsilon
from parley.privacy.accounting.privacy_events import (
    Approximate,
    GaussianEvent,
    PlannedSteps,
    PoissonSampledGaussian,
    Pure,
    Repeated,
)
from parley.privacy.accounting.subsampled_gaussian import build_planned_steps
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.calibration.inverse_curves import compute_gaussian_mu
from parley.privacy.ledger import registration, reservations
from parley.privacy.ledger.account import BudgetAccount
from parley.privacy.ledger.budget import DatasetBudget, compute_account_epsilon
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_copy import upgrade_ledger
from parley.privacy.ledger.ledger_errors import BudgetExceeded, LedgerConflict, LedgerCorrupt
from parley.privacy.ledger.recorded_entries import EntryState

OLD = Path(__file__).parents[2] / "vectors" / "ledger-version-6.sql"
SHARED = replace(ADULT, delta=1e-5, certificate=AccountCertificate.GAUSSIAN, reserved_delta=1e-6)
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
    (found,) = ledger.list_accounts()
    return found


def reserve(ledger, index, event, run="run-1"):
    return ledger.reserve((an_entry(index, event=event, run_id=run),))[0]


def test_a_certificate_is_in_the_first_record_and_never_another(path):
    with opened(path) as ledger:
        assert account(ledger).budget.certificate is AccountCertificate.GAUSSIAN
        other = replace(SHARED, certificate=AccountCertificate.ZCDP, reserved_delta=1e-7)
        assert ledger.register(other) == (SHARED,)  # nothing was asked for by name
        with pytest.raises(LedgerConflict, match=r"certificate gaussian; got .*certificate zcdp"):
            ledger.register(replace(other, insists=True))
        raised = ledger.raise_budget(KEY, epsilon=2.0, reason="asked for")
        assert (raised.certificate, raised.reserved_delta) == (AccountCertificate.GAUSSIAN, 1e-6)
        with pytest.raises(ValueError, match="lowest-bound"):
            ledger.register(
                replace(
                    SHARED, name="b", fingerprint="b", certificate=AccountCertificate.LOWEST_BOUND
                )
            )
        assert ledger.verify() == []


@pytest.mark.parametrize("certificate", [AccountCertificate.GAUSSIAN, AccountCertificate.ZCDP])
def test_a_pure_release_after_a_gaussian_one_is_refused_with_what_is_left(path, certificate):
    mu = compute_gaussian_mu(0.69, 1e-5 * 0.99)
    with opened(path, certificate=certificate, reserved_delta=1e-7) as ledger:
        reserve(ledger, 1, GaussianEvent(mu=mu))
        spent = account(ledger).epsilon
        assert 0.69 * (1 - 1e-6) <= spent < 0.76
        with pytest.raises(BudgetExceeded, match="is spent") as refused:
            reserve(ledger, 2, Pure(epsilon=0.28))
        assert refused.value.left == pytest.approx(1 - spent)
        assert account(ledger).epsilon == spent


def test_a_gaussian_account_is_used_up_at_the_delta_that_is_not_kept_back(path):
    most = compute_gaussian_mu(1.0, 1e-5 - 1e-6)
    with opened(path) as ledger:
        with pytest.raises(BudgetExceeded):
            reserve(ledger, 1, GaussianEvent(mu=most * (1 + 1e-6)))
        ledger.hold("run-1", {KEY: ((GaussianEvent(mu=most / 2), 4),)})
        assert account(ledger).remaining == 0
        reserve(ledger, 1, GaussianEvent(mu=most / 2))
        ledger.end_hold("run-1")  # the rounds that it did not make
        ledger.hold("run-2", {KEY: ((GaussianEvent(mu=most / 2), 3),)})


def test_a_job_of_sampled_steps_is_charged_whole_when_it_begins_and_gives_nothing_back(path):
    with opened(path) as ledger:
        ledger.hold("run-1", {KEY: ((ROUND, 5),)})
        whole = build_planned_steps(ROUND, 5, 5e-7 * (1 - 1e-12))
        (event,) = account(ledger).spent.counts
        assert isinstance(event, PlannedSteps)
        assert (event.event, event.count) == (ROUND, 5)
        assert event.delta == pytest.approx(5e-7, rel=1e-6)
        assert event.mu == pytest.approx(whole.mu, rel=1e-5)
        charged = account(ledger).epsilon
        assert charged == pytest.approx(compute_gaussian_epsilon(event.mu, 9e-6), rel=1e-9)
        assert charged < 0.5 * compute_gaussian_epsilon((50 * 1.0) ** 0.5, 9e-6)  # without sampling
        for index in (1, 2):
            ledger.commit((reserve(ledger, index, ROUND).id,), outcome={})
        ledger.void((reserve(ledger, 3, ROUND).id,), "too few")
        assert account(ledger).epsilon == charged
        ledger.end_hold("run-1")
        assert (account(ledger).epsilon, account(ledger).held_counts) == (charged, {})
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


def test_a_voided_step_moves_nothing_that_the_run_holds_of_other_blocks(path):
    old, new = ("2025",), ("2026",)
    half = GaussianEvent(mu=compute_gaussian_mu(1.0, 9e-6) / 2)
    with opened(path) as ledger:
        ledger.hold("run-1", {KEY: ((ROUND, 1),)}, new)
        entry = an_entry(1, event=ROUND, run_id="run-1", blocks=new)
        (step,) = ledger.reserve((entry,))
        ledger.hold("run-1", {KEY: ((half, 3),)}, old)
        ledger.void((step.id,), "too few")
        # It holds these of the old block: in the new one there is no room for three more.
        ledger.hold("run-2", {KEY: ((half, 3),)}, new)
        for index in (2, 3, 4):
            with pytest.raises(BudgetExceeded):
                ledger.reserve((an_entry(index, event=half, run_id="run-1", blocks=new),))
            ledger.reserve((an_entry(index, event=half, run_id="run-1", blocks=old),))
        assert ledger.verify() == []


def test_a_job_of_sampled_steps_in_a_zcdp_account_costs_half_its_squared_mu(path):
    with opened(path, certificate=AccountCertificate.ZCDP) as ledger:
        ledger.hold("run-1", {KEY: ((ROUND, 5),)})
        reserve(ledger, 1, GaussianEvent(mu=0.1), run="run-2")
        (job,) = (e for e in account(ledger).spent.counts if isinstance(e, PlannedSteps))
        rho = job.mu**2 / 2 + 0.1**2 / 2
        assert account(ledger).epsilon == pytest.approx(compute_cks20_epsilon(rho, 9e-6), rel=1e-9)
        assert ledger.verify() == []


def test_units_are_charged_by_their_own_certificates_in_one_step(path):
    party = replace(SHARED, unit=Unit.PARTY, certificate=AccountCertificate.ZCDP, epsilon=2.0)
    with Ledger.open(path) as ledger:
        ledger.register(SHARED, party)
        record = an_entry(1, event=ROUND, run_id="run-1")
        mu = compute_gaussian_mu(2.0, 9e-6) / 2
        facts = {**record.facts, "unit": "party"}
        both = (record, replace(record, event=GaussianEvent(mu=mu), facts=facts))
        ledger.hold("run-1", {KEY: ((ROUND, 3),), party.key: ((GaussianEvent(mu=mu), 3),)})
        ledger.reserve(both)
        ledger.end_hold("run-1")
        spent = {each.budget.unit: each for each in ledger.list_accounts()}
        assert spent[Unit.PARTY].epsilon == pytest.approx(compute_cks20_epsilon(mu**2 / 2, 9e-6))
        (job,) = spent[Unit.RECORD].spent.counts
        assert (job.count, spent[Unit.RECORD].spent.releases) == (3, 3)
        assert ledger.verify() == []


@pytest.mark.parametrize("refused", ["another budget", "its own budget", "one is left out"])
def test_a_refused_step_of_no_plan_leaves_no_charge_next_to_the_commit_before_it(path, refused):
    party = replace(SHARED, unit=Unit.PARTY, epsilon=0.5)
    small, large = GaussianEvent(mu=0.01), GaussianEvent(mu=compute_gaussian_mu(2.0, 9e-6))
    dear = replace(ROUND, event=Repeated(event=replace(STEP, sampling_rate=0.9), count=10))

    def entries(index, event, of_party):
        record = an_entry(index, event=event, run_id="run-1")
        facts = {**record.facts, "unit": "party"}
        return (replace(record, event=of_party, facts=facts), record)

    following = {
        "another budget": entries(2, ROUND, large),
        "its own budget": entries(2, dear, small),
        "one is left out": entries(2, ROUND, small)[1:],
    }[refused]
    with Ledger.open(path) as ledger:
        ledger.register(SHARED, party)
        first = [each.id for each in ledger.reserve(entries(1, small, small))]
        before = [each.spent for each in ledger.list_accounts()]
        with pytest.raises(LedgerConflict if "left out" in refused else BudgetExceeded):
            ledger.commit_and_reserve(first, outcome={}, entries=following)
        assert [each.state for each in ledger.list_entries("run-1")] == [EntryState.COMMITTED] * 2
        assert [each.spent for each in ledger.list_accounts()] == before
        assert all(not each.held for each in ledger.list_accounts())
        assert ledger.verify() == []
        ledger.reserve(entries(2, ROUND, small))
        assert ledger.verify() == []


@pytest.mark.parametrize(("of_mu", "of_delta"), [(0.99, 1.0), (1.0, 1e-3), (0.5, 0.0)])
def test_a_planned_job_with_a_mu_that_does_not_hold_is_found_by_verify(
    path, monkeypatch, of_mu, of_delta
):
    """The log of somebody who charges less, with hashes and totals that are consistent."""

    def charged_less(event, count, delta):
        job = build_planned_steps(event, count, delta)
        return replace(job, mu=job.mu * of_mu, delta=job.delta * of_delta)

    with opened(path) as ledger:
        with monkeypatch.context() as theirs:
            theirs.setattr(subsampled_gaussian, "build_planned_steps", charged_less)
            theirs.setattr(subsampled_gaussian, "check_planned", lambda _: None)
            ledger.hold("run-1", {KEY: ((ROUND, 5),)})
            assert ledger.verify() == []
        (found, *_) = messages(ledger)
        assert "is not valid here: Expected μ ≥ " in found
        with pytest.raises(LedgerCorrupt, match="Expected μ ≥"):
            ledger.check()


@pytest.mark.parametrize("spent_first", ["2025", "2026"])
def test_a_release_on_several_blocks_needs_room_in_each_of_them(path, spent_first):
    most = compute_gaussian_mu(1.0, 9e-6)
    with opened(path) as ledger:
        first = an_entry(
            1, event=GaussianEvent(mu=0.9 * most), run_id="run-1", blocks=(spent_first,)
        )
        ledger.reserve((first,))
        both, half = ("2025", "2026"), GaussianEvent(mu=0.5 * most)
        with pytest.raises(BudgetExceeded):
            ledger.reserve((an_entry(2, event=half, run_id="run-1", blocks=both),))
        with pytest.raises(BudgetExceeded):
            ledger.hold("run-2", {KEY: ((half, 1),)}, both)
        assert ledger.verify() == []


def test_a_hold_without_its_planned_job_makes_no_sense(path):
    with opened(path) as ledger:
        ledger.hold("run-1", {KEY: ((ROUND, 5),)})
        first = account(ledger)
        (job,) = first.spent.counts
    with pytest.raises(ValueError, match="every planned job"):
        first.with_hold("run-2", ((ROUND, 5),), planned=())
    with pytest.raises(ValueError, match="every planned job"):
        first.with_hold("run-2", ((ROUND, 5),), planned=(replace(job, count=4),))
    with pytest.raises(ValueError, match="every planned job"):
        first.with_hold("run-2", (), planned=(job,))


def test_a_planned_job_on_several_blocks_takes_the_part_of_delta_that_each_of_them_has(path):
    old, both = ("2025",), ("2025", "2026")
    weak = replace(ROUND, event=Repeated(event=replace(STEP, noise_multiplier=8.0), count=10))
    with opened(path) as ledger:
        ledger.hold("run-1", {KEY: ((weak, 5),)}, old)
        ledger.hold("run-2", {KEY: ((weak, 5),)}, both)
        spent = account(ledger).charged.get_compositions(both)
        parts = {
            block: sorted(job.delta for job, n in each.counts.items() for _ in range(n))
            for block, each in spent.items()
        }
        assert parts["2026"] == pytest.approx([1e-6 / 6], rel=1e-3)
        assert parts["2025"] == pytest.approx([1e-6 / 6, 5e-7], rel=1e-3)
        assert ledger.verify() == []


def test_verify_finds_a_second_run_in_the_account_of_a_plan(path, monkeypatch):
    plan = {"certificate": AccountCertificate.PLAN, "reserved_delta": None}
    with opened(path, **plan) as ledger:
        ledger.hold("run-1", {KEY: ((GaussianEvent(mu=0.05), 1),)})
        with monkeypatch.context() as theirs:
            theirs.setattr(BudgetAccount, "is_closed_to", lambda *_: False)
            reserve(ledger, 1, GaussianEvent(mu=0.05), run="run-2")
        (found, *_) = messages(ledger)
        assert "Expected the run that budget" in found


def test_raises_keep_the_certificate_and_what_is_spent_and_the_command_says_their_delta(path):
    with opened(path) as ledger:
        reserve(ledger, 1, GaussianEvent(mu=0.2))
        spent = account(ledger).spent
    for times, epsilon in ((2, 2.0), (3, 3.0)):
        asked = ["raise", str(path), "adult", "--epsilon", str(epsilon), "--reason", "asked for"]
        shown = CliRunner().invoke(ledger_app, asked)
        assert shown.exit_code == 0, shown.output
        assert f"holds at δ = {times}e-05: {times} times δ" in shown.output
    with Ledger.open(path) as ledger:
        after = account(ledger)
        assert (after.spent, after.budget.certificate) == (spent, AccountCertificate.GAUSSIAN)
        # The new promise is of everything that was ever released, not of a fresh budget.
        most = compute_gaussian_mu(3.0, 9e-6)
        with pytest.raises(BudgetExceeded):
            reserve(ledger, 2, GaussianEvent(mu=most))
        reserve(ledger, 2, GaussianEvent(mu=(most**2 - 0.2**2) ** 0.5 * (1 - 1e-9)))
        assert ledger.verify() == []


def test_a_plan_admits_one_run(path):
    plan = {"certificate": AccountCertificate.PLAN, "reserved_delta": None}
    with opened(path, **plan) as ledger:
        ledger.hold("run-1", {KEY: ((GaussianEvent(mu=0.05), 3),)})
        reserve(ledger, 1, GaussianEvent(mu=0.05))
        for other in (
            lambda: ledger.hold("run-2", {KEY: ((GaussianEvent(mu=0.01), 1),)}),
            lambda: reserve(ledger, 1, GaussianEvent(mu=0.01), run="run-2"),
        ):
            with pytest.raises(LedgerConflict, match="holds only for the plan"):
                other()
        ledger.end_hold("run-1")
        with pytest.raises(LedgerConflict, match="holds only for the plan"):
            reserve(ledger, 1, GaussianEvent(mu=0.01), run="run-2")
        reserve(ledger, 2, GaussianEvent(mu=0.05))
        assert ledger.verify() == []


def test_a_ledger_of_before_continues_under_its_old_rule_and_says_what_that_holds_for(path):
    with sqlite3.connect(path) as connection:
        connection.executescript(OLD.read_text(encoding="utf-8"))
    connection.close()
    upgrade_ledger(path)
    with Ledger.open(path) as ledger:
        assert ledger.verify() == []
        old = account(ledger)
        assert old.budget.certificate is AccountCertificate.LOWEST_BOUND
        assert old.budget.certificate.description.startswith(
            "if kinds and sizes were not chosen by answers"
        )
        assert old.epsilon == old.spent.compute_lowest_epsilon(1e-5)[1]
        (same,) = ledger.register(replace(SHARED, certificate=None))
        assert same.certificate is AccountCertificate.LOWEST_BOUND
        (open_one,) = ledger.list_entries("run-3")
        (resumed,) = ledger.reserve((open_one.entry,))
        assert resumed.resumed
        ledger.reserve((replace(open_one.entry, index=2),))
        grown = account(ledger).spent
        assert dict(grown.counts)[STEP] == 20
        ledger.register(replace(SHARED, name="new", fingerprint="new"))
        assert ledger.verify() == []
    with Ledger.open(path) as ledger:
        certificates = {
            each.budget.name: each.budget.certificate for each in ledger.list_accounts()
        }
        assert certificates == {
            "adult": AccountCertificate.LOWEST_BOUND,
            "new": AccountCertificate.GAUSSIAN,
        }
        assert ledger.get_account("new", Unit.RECORD).remaining == 1.0


def without_certificate(budget):
    values = vars(budget) | {"unit": str(budget.unit), "neighbouring": str(budget.neighbouring)}
    hidden = ("contents", "rows", "reads", "insists", "certificate", "reserved_delta")
    return {name: value for name, value in values.items() if name not in hidden}


def refunding(account, run_id, event, blocks=()):
    (job,) = (each for each in account.charged.get_compositions(()).popitem()[1].counts)
    return replace(account, charged=account.charged.remove(job, blocks))


@pytest.mark.parametrize(
    ("test", "rule", "name", "weakened"),
    [
        # The certificate is in the first record, and no other is taken afterwards.
        ("in_the_first_record", DatasetBudget, "to_json", without_certificate),
        ("in_the_first_record", registration, "_check_terms", lambda *_: None),
        ("in_the_first_record", registration, "_open_account", lambda _, budget, *__: budget),
        # Sampled steps are charged whole, once, and nothing of them comes back.
        ("of_sampled_steps_is_charged", BudgetAccount, "must_plan", lambda *_: False),
        ("of_sampled_steps_is_charged", BudgetAccount, "compute_planned_charges", lambda *_: ()),
        ("of_sampled_steps_is_charged", BudgetAccount, "with_voided", refunding),
        ("of_sampled_steps_is_charged", reservations, "_unplanned", lambda *_: ()),
        (
            "of_sampled_steps_is_charged",
            DatasetBudget,
            "compute_next_delta",
            lambda own, _: own.reserved_delta,
        ),
        ("of_sampled_steps_is_charged", privacy_filters, "get_planned_delta", lambda _: 0.0),
        # Other runs give back the rounds that they did not make.
        ("gaussian_account_is_used_up", Ledger, "end_hold", lambda *_: None),
        ("gaussian_account_is_used_up", BudgetAccount, "is_within_budget", lambda *_: True),
        # A plan's account is of one run; an old account keeps its rule.
        ("plan_admits_one_run", BudgetAccount, "is_closed_to", lambda *_: False),
        (
            "raises_keep",
            BudgetAccount,
            "with_raised_budget",
            lambda own, **terms: BudgetAccount(budget=replace(own.budget, **terms)),
        ),
        ("ledger_of_before", BudgetAccount, "must_plan", lambda *_: True),
    ],
)
def test_a_rule_of_the_ledger_that_is_weakened_is_found_out(
    path, monkeypatch, test, rule, name, weakened
):
    (found,) = (f for key, f in globals().items() if key.startswith("test_") and test in key)
    monkeypatch.setattr(rule, name, weakened)
    compute_account_epsilon.cache_clear()
    try:
        found(path)
    except (Exception, pytest.fail.Exception):
        return
    finally:
        compute_account_epsilon.cache_clear()
    pytest.fail(f"{found.__name__} passes without {name}")
