"""A model that is measured on records that the parties hold out, by a release after its rounds."""

from __future__ import annotations

import json

import numpy as np
import pytest
from quick_runs import StopAfter

from parley.client.contract.refusals import Declined, Reason
from parley.client.party.dataset_config import DatasetConfig
from parley.presentation.result_text import format_evaluation
from parley.presentation.run_page import write_report
from parley.privacy.ledger.ledger import Ledger
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.simulations.engine.fast_engine import simulate

JOB = (
    "evaluation.kind=federated",
    "algorithm.rounds=2",
    "secure-aggregation.masked-check=false",
)
SURE = ("evaluation.epsilon=30", "evaluation.edges=[0.1, 0.3]", "run.seed=1")


def measured(tmp_path, *more):
    job = load_job(overrides=[*JOB, *more])
    return job, simulate(job, out=tmp_path)


def test_its_figures_are_those_of_the_held_out_records_within_their_intervals(tmp_path):
    _, run = measured(tmp_path, *SURE)
    told, true = run.summary.evaluation, run.summary.judgement
    found = told.judgement
    assert (told.edges, len(told.counts)) == ((0.1, 0.3, 0.5), 4)
    assert found.labels == true.labels
    assert found.records == pytest.approx(true.records, abs=5)
    assert np.array(found.confusion) == pytest.approx(np.array(true.confusion), abs=3)
    for name in ("recall", "precision", "accuracy"):
        low, high = found.within[name]
        assert low <= getattr(true, name) <= high
        assert high - low < 0.06
    assert "per record" in format_evaluation(run.summary)
    assert (
        "Model quality on the parties&#39; held-out records" in write_report(run.folder).read_text()
    )


def test_it_is_a_release_of_its_own_in_the_ledger_and_in_what_was_spent(tmp_path):
    _, run = measured(tmp_path / "one", "run.seed=1")
    _, other = measured(tmp_path / "two", "run.seed=1", "evaluation.kind=none")
    assert np.array_equal(run.theta, other.theta)
    with Ledger.open(run.folder / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.verify() == []
        entries = [each.entry for each in ledger.list_entries()]
        (budget,) = ledger.list_accounts()
    assert [each.index for each in entries] == [1, 2, 3]
    assert entries[2].facts["mechanism"] == "held-out-counts"
    assert budget.budget.epsilon == 1.1
    spent, without = run.summary.primary, other.summary.primary
    assert without.epsilon < spent.epsilon <= without.epsilon + run.summary.evaluation.epsilon
    assert run.summary.evaluation.epsilon <= 0.1 * (1 + 1e-9)
    assert all(account.epsilon is not None for account in spent.accounts)


def test_a_run_that_was_stopped_before_it_goes_on_with_it(tmp_path):
    job, whole = measured(tmp_path / "whole", "run.seed=1")
    with pytest.raises(KeyboardInterrupt):
        simulate(job, out=tmp_path / "stopped", observer=StopAfter(2))
    folder = tmp_path / "stopped"
    for _ in range(2):  # once to make it, and once where nothing is left to be made
        again = simulate(None, resume=folder)
        assert again.summary.evaluation == whole.summary.evaluation
        assert np.array_equal(again.theta, whole.theta)
        assert again.summary.primary == whole.summary.primary


def test_too_few_parties_for_it_leave_the_model_and_say_so(tmp_path):
    _, run = measured(tmp_path, "run.faults=drop:0.6@3-3")
    assert (run.summary.status, run.summary.rounds_done) == ("complete", 2)
    assert run.summary.evaluation.counts == ()
    assert "evaluation" in format_evaluation(run.summary)
    assert len(json.loads((run.folder / "summary.json").read_text())["guarantees"]) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("evaluation.kind=none", "evaluation.epsilon"),
        ("model.kind=ridge", "predicts a label"),
        ("evaluation.edges=[0.2]\nmodel.kind=softmax\ndata.source=digits", "with 10 labels"),
        ("evaluation.edges=[1.5]", "evaluation.edges"),
        ("run.partial=true", "run.partial"),
        ("data.test-fraction=0", "held-out records"),
    ],
)
def test_jobs_that_it_would_say_nothing_of_are_refused(tmp_path, change, said):
    with pytest.raises(JobError, match=said):
        measured(tmp_path, "evaluation.epsilon=0.2", *change.splitlines())


def test_a_data_set_holds_out_other_records_than_it_learns_from():
    given = {"prepared": "ward.npz", "epsilon": 1.0, "delta": 1e-5, "held-out": "ward.npz"}
    with pytest.raises(ValueError, match="other records"):
        DatasetConfig.model_validate(given)


def test_a_party_that_holds_nothing_out_declines():
    given = {"prepared": "ward.npz", "epsilon": 1.0, "delta": 1e-5}
    with pytest.raises(Declined) as declined:
        DatasetConfig.model_validate(given).to_held_out()
    assert declined.value.reason is Reason.DATA_UNREADABLE
    other = DatasetConfig.model_validate({**given, "held-out": "others.npz"}).to_held_out()
    assert (other.prepared, other.held_out) == ("others.npz", "")
