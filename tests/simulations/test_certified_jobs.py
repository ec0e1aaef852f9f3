"""Jobs that share a ledger: charged by the certificate that the first of them named."""

import pytest

from parley.privacy.accounting.account_admission import AccountCertificate
from parley.privacy.accounting.gaussian_curve import compute_cks20_epsilon, compute_gaussian_epsilon
from parley.privacy.accounting.privacy_events import PlannedSteps
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import LedgerConflict
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.simulations.engine.fast_engine import simulate


def job_on(tmp_path, *overrides, rounds=3):
    return load_job(
        overrides=[
            f"privacy.ledger={tmp_path / 'ward.sqlite'}",
            "privacy.dataset-epsilon=3",
            "privacy.epsilon=1",
            "parties.count=3",
            f"algorithm.rounds={rounds}",
            "run.baseline=false",
            *overrides,
        ]
    )


def account_in(tmp_path):
    with Ledger.open(tmp_path / "ward.sqlite", create=False) as ledger:
        assert ledger.verify() == []
        (found,) = ledger.list_accounts()
        return found


@pytest.mark.parametrize("named", ["auto", "gaussian", "zcdp"])
def test_jobs_are_charged_by_the_certificate_that_opened_the_account(tmp_path, named):
    expected = AccountCertificate.ZCDP if named == "zcdp" else AccountCertificate.GAUSSIAN
    first = job_on(tmp_path, f"privacy.certificate={named}")
    simulate(first, out=tmp_path / "a")
    spent = account_in(tmp_path)
    assert spent.budget.certificate is expected
    # The noise of a job is such that its account charges what the job asks for.
    assert spent.epsilon == pytest.approx(1.0, rel=1e-6)
    simulate(job_on(tmp_path), out=tmp_path / "b")  # auto: as the account is
    both = account_in(tmp_path)
    mu = both.spent.mu
    assert both.epsilon == pytest.approx(
        compute_cks20_epsilon(mu**2 / 2, 9.9e-6)
        if expected is AccountCertificate.ZCDP
        else compute_gaussian_epsilon(mu, 9.9e-6),
        rel=1e-6,
    )
    other = "gaussian" if named == "zcdp" else "zcdp"
    with pytest.raises(LedgerConflict, match=f"certificate {expected}; got .*certificate {other}"):
        simulate(job_on(tmp_path, f"privacy.certificate={other}"), out=tmp_path / "c")
    assert account_in(tmp_path).spent == both.spent


@pytest.mark.parametrize("certificate", ["auto", "zcdp"])
def test_a_job_of_sampled_steps_is_charged_whole_on_a_shared_ledger(tmp_path, certificate):
    sampled = [
        "algorithm.kind=fedavg",
        "model.kind=mlp",
        "model.hidden=[4]",
        "dp-sgd.sampling-rate=0.1",
        "dp-sgd.local-steps=2",
    ]
    named = f"privacy.certificate={certificate}"
    simulate(job_on(tmp_path, *sampled, named, rounds=2), out=tmp_path / "a")
    spent = account_in(tmp_path)
    (job,) = spent.spent.counts
    assert isinstance(job, PlannedSteps)
    assert job.count == 2
    assert spent.budget.reserved_delta == pytest.approx(1e-6)
    assert job.delta == pytest.approx(5e-7)
    assert 0.99 < spent.epsilon <= 1.0 * (1 + 1e-6)


def test_a_plan_holds_for_one_run_and_shares_no_ledger(tmp_path):
    with pytest.raises(JobError, match="holds for only one run"):
        job_on(tmp_path, "privacy.certificate=plan")
    run = simulate(
        load_job(overrides=["parties.count=3", "algorithm.rounds=2"]), out=tmp_path / "a"
    )
    with Ledger.open(run.folder / "ledger.sqlite", create=False) as ledger:
        (own,) = ledger.list_accounts()
        assert own.budget.certificate is AccountCertificate.PLAN
        (event,) = own.spent.counts
        with pytest.raises(LedgerConflict, match="holds only for the plan"):
            ledger.hold("another", {own.key: ((event, 1),)})
