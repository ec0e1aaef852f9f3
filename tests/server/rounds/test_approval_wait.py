"""A server that waits for owners: what it sees, and how a wait ends."""

import json

import pytest
from asked import ask_owners, left_waiting, meanwhile, say
from query_parties import charged, make_parties, open_session
from scenes import FEDAVG, Scene, counts

from parley.owner.approval_requests import open_party
from parley.privacy.accounting.threat_model import Unit
from parley.server.rounds.round_release import NotApproved
from parley.server.run_launcher import open_run

ALL_STAGES = (
    *FEDAVG,
    "model.kind=pca-mlp",
    "model.components=3",
    "evaluation.kind=federated",
    "run.approval-timeout=60",
)


def test_a_job_waits_for_a_yes_and_nothing_is_charged_anywhere_until_then(tmp_path, monkeypatch):
    scene, seen = Scene(tmp_path), []
    ask_owners(scene, [0, 3])

    def decide():
        seen.append((scene.board(), scene.party_entries(0)))
        assert not (scene.folder.path / "run-id").exists()
        assert not (scene.folder.path / "ledger.sqlite").exists()
        assert say(scene.homes[0 if len(seen) == 1 else 3]) == 1

    meanwhile(monkeypatch, decide)
    assert scene.run().status == "complete"
    waits = ("waiting for approval", "")
    assert [(board["party-0"], board["party-3"]) for board, _ in seen] == [
        (waits, waits),
        (("online", ""), waits),
    ]
    assert all(board["party-1"] == ("online", "") and not paid for board, paid in seen)
    assert len(scene.party_entries(0)) == 3
    # Who is not asked has no more messages than before.
    assert scene.asked["propose", 0] >= 2
    assert ("propose", 1) not in scene.asked


def test_a_no_ends_one_partys_part_and_the_rest_goes_on(tmp_path, monkeypatch):
    scene = Scene(tmp_path)
    ask_owners(scene, [2])
    meanwhile(monkeypatch, lambda: say(scene.homes[2], accepted=False, reason="a secret reason"))
    assert scene.run().status == "complete"
    assert [counts(line) for line in scene.lines()] == [(4, 1, 0, 4)] * 3
    assert scene.lines()[0]["reasons"] == {"refused-by-owner": 1}
    assert scene.party_entries(2) == ()
    for file in scene.folder.path.rglob("*"):
        assert not file.is_file() or b"a secret reason" not in file.read_bytes()


def test_too_few_yeses_end_a_run_with_their_reasons_and_it_costs_nothing(tmp_path):
    scene = Scene(tmp_path, overrides=("run.approval-timeout=0",))
    left_waiting(scene)
    say(scene.homes[0], accepted=False)
    with pytest.raises(NotApproved) as ended:
        scene.run()
    assert "party-0 declines (refused-by-owner); party-1 declines (waiting-for-appr" in str(
        ended.value
    )
    assert [scene.party_entries(party) for party in range(5)] == [()] * 5
    for home in scene.homes[1:]:
        say(home)
    # The same run goes on, also in another process: its yeses stand.
    named, scene.folder = scene.folder.run_id, open_run(scene.folder.path)[0]
    assert scene.folder.run_id == named
    assert scene.run().status == "complete"


@pytest.mark.heavy  # a network and its components: 8 s
def test_one_yes_is_for_all_stages_of_a_job(tmp_path, monkeypatch):
    scene, asked = Scene(tmp_path, overrides=ALL_STAGES), []
    ask_owners(scene, [1], epsilon=20.0)

    def decide():
        with open_party(scene.homes[1]) as party:
            asked.extend(party.list_requests())
        say(scene.homes[1])

    meanwhile(monkeypatch, decide)
    assert scene.run().status == "complete"
    (offer,) = asked
    computed = [fact.value for fact in offer.facts if fact.name == "Computation"]
    assert len(computed) == 3
    assert [entry.entry.index for entry in scene.party_entries(1)] == [0, 1, 2, 3]


def test_queries_wait_too_and_an_owner_reads_what_is_asked(tmp_path, monkeypatch):
    made = make_parties(tmp_path / "parties", data="approval-above = 0")
    said = []

    def decide():
        for place in range(3):
            home = made[1] / f"party-{place}"
            with open_party(home) as party:
                said.extend(party.list_requests())
            say(home)

    meanwhile(monkeypatch, decide)
    with open_session(made, tmp_path / "out") as session:
        answer = session.where("sex == 'Male'").histogram("age", bins=4, epsilon=0.25)
    assert answer.survivors == 3
    facts = {fact.name: fact.value for fact in said[0].facts}
    assert facts["Computation"].startswith("histogram age where sex")
    assert "4 numbers" in facts["Computation"]
    assert facts["Input"] == "the records of ward, columns: age, sex"
    assert "Approval spends ε = 0.25 per record" in said[0].price
    assert charged(made, Unit.RECORD) == [0.25] * 3
    assert json.loads(json.dumps(said[0].to_json()))["dataset"] == "ward"
