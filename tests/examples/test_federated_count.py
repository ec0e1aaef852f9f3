"""A federated count, in one file that touches no other: what a new algorithm takes."""

import json
from pathlib import Path

import numpy as np
import pytest

from parley.client.algorithms.own_algorithm import OwnAlgorithmError, build_own_spec
from parley.client.contract.refusals import Declined
from parley.client.party.owner_policy import load_policy
from parley.client.party.run_validation import build_accepted_algorithm
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.simulations.engine.fast_engine import simulate
from parley.simulations.engine.party_folders import prepare_parties

FILE = Path(__file__).parents[2] / "examples" / "federated_count.py"
PLACE = f"{FILE}:FederatedCount"
RECORDS = 455  # breast-cancer without the held-out fifth
COUNT = (
    f"algorithm.kind={PLACE}",
    "algorithm.rounds=1",
    "algorithm.settings.most=1000",
    "model.kind=none",
    "parties.count=4",
    "parties.min-records=50",
    "privacy.neighbouring=add-or-remove-one",
    "privacy.epsilon=2",
    "run.seed=5",
)


def job_of(*overrides):
    return load_job(overrides=[*COUNT, *overrides])


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    return simulate(job_of(), out=tmp_path_factory.mktemp("runs"))


def test_the_count_is_the_number_of_records_and_some_noise(counted):
    summary = counted.summary
    noise = 4 * summary.primary.noise.scale
    assert 0 < abs(4 * counted.theta[0] - RECORDS) < 8 * noise
    assert summary.primary.epsilon == pytest.approx(2, rel=1e-6)
    assert (summary.algorithm, summary.status) == ("federated_count.py:FederatedCount", "complete")
    assert summary.algorithm_title == "federated count"
    assert summary.primary.noise.sensitivity == pytest.approx(1 / 4, rel=1e-3)
    assert summary.loss is None
    assert summary.accuracy is None


def test_real_parties_give_the_same_count_and_their_ledgers_say_so(counted, among_parties):
    summary, folder, theta = among_parties(job_of())
    (line,) = [json.loads(row) for row in (folder / "rounds.jsonl").read_text().splitlines()]
    assert line["parties"]["summed"] == 4
    assert summary.primary.epsilon == pytest.approx(counted.summary.primary.epsilon)
    np.testing.assert_array_equal(theta, counted.theta)


def test_a_party_runs_no_algorithm_that_its_owner_does_not_list(tmp_path):
    job = job_of()
    prepare_parties(job, tmp_path / "parties")
    consent = load_policy(tmp_path / "parties" / "party-0" / "party.toml")
    task = {
        "kind": "federated_count.py:FederatedCount",
        "settings": {"features": 30, "classes": 2, "most": 1000},
    }
    assert build_accepted_algorithm(consent, task).most == 1000
    for kind, policy in (
        (PLACE, consent),  # a path is no name: what travels says nothing of folders
        ("os:getcwd", consent),
        (task["kind"], consent.model_copy(update={"algorithms": ("fedavg",)})),
    ):
        with pytest.raises(Declined, match="algorithm"):
            build_accepted_algorithm(policy, {**task, "kind": kind})
    with pytest.raises(Declined, match="protocol"):
        build_accepted_algorithm(consent, {**task, "settings": {**task["settings"], "most": "all"}})


@pytest.mark.parametrize(
    ("overrides", "error"),
    [
        (["algorithm.settings.least=1"], "Unknown key algorithm.settings.least"),
        (["algorithm.settings.most='all'"], "algorithm.settings"),
        (["privacy.neighbouring=replace-one"], "privacy.neighbouring = 'add-or-remove-one'"),
        (["privacy.unit=party"], "privacy.unit = 'record'"),
        (["parties.weights=size"], "parties.weights = 'uniform'"),
        ([f"algorithm.kind={FILE.parent}/nowhere.py:Count"], "file at"),
        (["model.kind=logistic"], "model.kind"),
        (["algorithm.kind=count"], "algorithm.kind"),
        (["dp-sgd.sampling-rate=0.5"], "dp-sgd.sampling-rate"),
    ],
)
def test_a_job_that_does_not_fit_the_algorithm_is_refused_by_name(tmp_path, overrides, error):
    with pytest.raises((JobError, OwnAlgorithmError), match=error):
        simulate(job_of(*overrides), out=tmp_path)


def test_a_class_that_is_known_by_another_name_is_refused(tmp_path):
    copy = tmp_path / "renamed.py"
    copy.write_text(FILE.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(OwnAlgorithmError, match=r"renamed\.py:FederatedCount"):
        build_own_spec(f"{copy}:FederatedCount").build({}, 3, 2)


def test_the_page_on_extending_shows_the_file_as_it_is():
    page = (FILE.parents[1] / "docs" / "extending-learning.md").read_text(encoding="utf-8")
    shown = FILE.read_text(encoding="utf-8").partition("@dataclass")[2]
    assert shown in page
