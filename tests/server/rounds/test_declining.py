"""What parties decline, and what real parties cannot do."""

import json

import numpy as np
import pytest
from in_process import InProcessTransport
from scenes import BASE, FEDAVG, Scene, counts

from parley.client.party.owner_policy import load_policy
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.records.run_folder import RunFolder
from parley.server.rounds.party_facts import format_served_name
from parley.server.rounds.run_coordinator import coordinate


def test_a_party_declines_by_its_policy_and_the_rest_goes_on(tmp_path):
    scene = Scene(tmp_path)
    scene.policy(1, laws=("laplace-l1",))
    assert scene.run().status == "complete"
    assert [counts(line) for line in scene.lines()] == [(4, 1, 0, 4)] * 3
    assert scene.lines()[0]["reasons"] == {"mechanism": 1}
    assert scene.board()["party-1"] == ("declined", "mechanism")
    assert not (scene.homes[1] / "ledger.sqlite").exists() or scene.party_entries(1) == ()


def allow_ten(scene):
    name = format_served_name(scene.job)
    for party in range(5):
        own = load_policy(scene.homes[party] / "party.toml").data[name]
        scene.policy(
            party, data={name: own.model_copy(update={"epsilon": 10.0, "certificate": "auto"})}
        )


def test_a_job_run_again_without_a_party_is_charged_by_itself_and_completes(tmp_path):
    scene = Scene(tmp_path)
    allow_ten(scene)
    scene.run()
    scene.folder = RunFolder.create(scene.job, tmp_path / "another run")
    scene.lost = {("round", 4)}
    assert scene.run().status == "complete"
    assert [entry.entry.index for entry in scene.party_entries(0)] == [1, 2, 3] * 2


def test_a_release_that_was_opened_and_lost_is_not_opened_without_a_party_and_says_what_helps(
    tmp_path,
):
    scene = Scene(tmp_path)
    allow_ten(scene)

    class NothingArrives(InProcessTransport):
        def exchange(self, requests, **options):
            for index, reply in super().exchange(requests, **options):
                if self.exchanges[-1] != ("confirmations",):
                    yield index, reply

    assert scene.run(transport=NothingArrives(scene.homes)).status == "too-few-survivors"
    scene.lost = {("round", 4)}
    summary = scene.run()
    # It is the same release: the difference of both sums would be party 4's vector.
    assert summary.status == "too-few-survivors"
    assert "start the job as a new run" in json.dumps(summary.to_json())
    assert "A new run of the job" in (scene.homes[0] / "party.log").read_text()
    assert "epsilon" not in (scene.folder.path / "rounds.jsonl").read_text()


def test_a_party_whose_budget_bears_one_job_declines_the_second_before_its_first_round(tmp_path):
    scene = Scene(tmp_path)
    name = format_served_name(scene.job)
    for party, total in enumerate([3.0, 3.0, 1.2, 3.0, 3.0]):
        own = load_policy(scene.homes[party] / "party.toml").data[name]
        # The noise is seeded: both runs ask for the very same contributions, of fewer parties.
        changed = {name: own.model_copy(update={"epsilon": total, "certificate": "auto"})}
        scene.policy(party, data=changed, insist_on_one_list=False)
    scene.run()
    scene.folder = RunFolder.create(scene.job, tmp_path / "another run")
    scene.run()
    lines = scene.lines()
    assert [counts(line) for line in lines] == [(4, 1, 0, 4)] * 3
    assert [line["reasons"] for line in lines] == [{"budget-exhausted": 1}] * 3
    assert [entry.entry.index for entry in scene.party_entries(2)] == [1, 2, 3]
    log = (scene.homes[2] / "party.log").read_text()
    assert "1 of the 3 would fit" in log or "0 of the 3 would fit" in log


def test_a_party_declines_a_job_that_costs_more_than_it_allows_one_job(tmp_path):
    scene = Scene(tmp_path)
    name = format_served_name(scene.job)
    own = load_policy(scene.homes[2] / "party.toml").data[name]
    scene.policy(2, data={name: own.model_copy(update={"epsilon_per_job": 0.9})})
    scene.run()
    assert scene.lines()[0]["reasons"] == {"budget-exhausted": 1}
    assert not (scene.homes[2] / "ledger.sqlite").exists() or scene.party_entries(2) == ()


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("run.faults=drop:0.1", "run.faults"),
        ("parties.count=4", r"parties\.count = 5"),
    ],
)
def test_what_real_parties_cannot_do_is_said_before_they_are_asked(tmp_path, override, said):
    scene = Scene(tmp_path)
    scene.folder = RunFolder.create(scene.job, tmp_path / "run")
    with pytest.raises(JobError, match=said):
        coordinate(
            load_job(overrides=[*BASE, override]),
            transport=scene.transport,
            deployment=scene.deployment,
            folder=scene.folder,
        )
    assert scene.transport.exchanges == []


def test_different_columns_at_the_parties_are_named(tmp_path):
    scene = Scene(tmp_path)
    path = scene.homes[3] / "records.npz"
    with np.load(path) as arrays:
        features, labels = arrays["features"], arrays["labels"]
    np.savez(path, features=features[:, 1:], labels=labels)
    with pytest.raises(JobError, match=r"same columns .* party-3: 29 features"):
        scene.run()


def test_a_party_keeps_a_budget_for_all_that_it_holds(tmp_path):
    both = ("privacy.unit=both", "privacy.party-epsilon=8", "parties.min-records=20")
    scene = Scene(tmp_path, (*FEDAVG, *both))
    name = format_served_name(scene.job)
    own = load_policy(scene.homes[2] / "party.toml").data[name]
    assert (own.party_epsilon, own.party_delta) == (8, own.delta)
    scene.policy(2, data={name: own.model_copy(update={"party_epsilon": 7.0})})
    scene.run()
    # The second budget can't bear both rounds: the job is declined before its first.
    assert [line["reasons"] for line in scene.lines()] == [{"budget-exhausted": 1}] * 2
    assert scene.party_entries(2) == ()


@pytest.mark.parametrize(
    ("unit", "epsilon", "delta", "why"),
    [("both", None, None, "unit"), ("record", 8.0, 1e-5, "sizes-not-disclosed")],
)
def test_two_budgets_take_jobs_with_two_guarantees_alone(tmp_path, unit, epsilon, delta, why):
    more = ("privacy.party-epsilon=8", "parties.min-records=20") if unit == "both" else ()
    scene = Scene(tmp_path, (*FEDAVG, f"privacy.unit={unit}", *more))
    name = format_served_name(scene.job)
    own = load_policy(scene.homes[0] / "party.toml").data[name]
    changed = own.model_copy(update={"party_epsilon": epsilon, "party_delta": delta})
    scene.policy(0, data={name: changed})
    scene.run()
    assert scene.lines()[0]["reasons"] == {why: 1}


@pytest.mark.parametrize("unit", ["party", "both"])
def test_a_job_that_hides_parties_names_a_public_number_and_asks_nobody_for_theirs(tmp_path, unit):
    scene = Scene(tmp_path, (*FEDAVG, f"privacy.unit={unit}"))
    with pytest.raises(JobError, match=r"parties.min-records, a public number"):
        scene.run()
    assert scene.transport.exchanges == []
