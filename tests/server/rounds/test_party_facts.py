"""What parties say of themselves must agree; whoever watches sees where each of them stands."""

import json
import time
from itertools import product

import pytest

from parley.client.contract.message_frames import build_response, encode_frame
from parley.client.contract.refusals import Reason
from parley.client.contract.roster import Deployment, RosterParty
from parley.secure_agg.primitives import derive_signing_public_key
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.rounds.connected_parties import ConnectedParties
from parley.server.rounds.party_facts import PartyFacts, build_data_head, build_federation
from parley.server.rounds.party_status import PartyStates, PartyStatus

NAMES = ("north", "south", "west", "east", "centre")
DEPLOYMENT = Deployment(
    server_address="",
    parties=tuple(
        RosterParty(name=name, identity=derive_signing_public_key(bytes([i + 1]) * 32))
        for i, name in enumerate(NAMES)
    ),
)


class Fake:
    """A transport whose parties answer what they are made to."""

    def __init__(self, facts):
        self.facts = facts

    def online(self):
        return tuple(range(len(self.facts)))

    def exchange(self, requests, *, timeout_s, largest, **more):
        for i in requests:
            yield i, encode_frame(build_response({"party": i, **self.facts[i]}))


def asked(tmp_path, facts):
    asked = ("parties.count=5", "secure-aggregation.min-survivors=4", "model.features=none")
    job = load_job(overrides=asked)
    board = PartyStates(tmp_path / "parties.json", list(NAMES))
    there = ConnectedParties(
        transport=Fake(facts),
        deployment=DEPLOYMENT,
        party_states=board,
        data_head=build_data_head(job),
        needed=4,
        timeout_s=job.run.stage_timeout,
    ).find(run_id="r-1", sizes=True)
    return there.facts, there.declined


def facts(**changes):
    given = {"features": 4, "classes": 0, "records": 40, "schema": "ab" * 32, "clock": 0.0}
    given |= {"map": "", "asks": False}
    return given | changes


@pytest.mark.parametrize(("what", "said"), [("schema", "schema"), ("map", "feature map")])
def test_parties_with_other_schemas_or_maps_are_named_and_nothing_is_asked_of_them(
    tmp_path, what, said
):
    one, other = facts(**{what: "ab" * 32}), facts(**{what: "cd" * 32})
    with pytest.raises(
        JobError, match=rf"the same {said} .*north: abab.*; south: cdcd.*; west: abab"
    ):
        asked(tmp_path, [one, other, *[one] * 3])


@pytest.mark.parametrize(
    ("what", "digest"),
    [
        ("map", "AB" * 32),
        *product(["schema"], [None, 7, 10**63, "", "AB" * 32, "ab" * 31, "ab" * 33, ["ab" * 32]]),
    ],
)
def test_a_digest_that_is_none_costs_its_party_alone(tmp_path, what, digest):
    known, declined = asked(tmp_path, [facts(), facts(**{what: digest}), *[facts()] * 3])
    assert (sorted(known), declined) == ([0, 2, 3, 4], {1: Reason.PROTOCOL})


def test_a_party_with_too_few_records_is_named():
    job = load_job(overrides=["parties.count=5", "parties.min-records=50"])
    facts = {
        i: PartyFacts(features=3, classes=0, schema="0" * 64, records=records)
        for i, records in enumerate((50, 49, 60, 7, 90))
    }
    with pytest.raises(JobError, match=r"= 50 records, east holds 7\."):
        build_federation(job, DEPLOYMENT, facts)
    enough = {i: own for i, own in facts.items() if i not in (1, 3)}
    assert build_federation(job, DEPLOYMENT, enough).min_records == 50


def test_what_came_last_before_a_long_wait_is_shown(tmp_path):
    board = PartyStates(tmp_path / "parties.json", ["north", "south", "east"])
    board.set_stage("inspect", round_number=0)
    board.set_party(0, PartyStatus.ONLINE)
    board.set_party(1, PartyStatus.ONLINE)

    def shown():
        parties = json.loads((tmp_path / "parties.json").read_text())["parties"]
        return [party["state"] for party in parties]

    until = time.monotonic() + 30
    while shown() != ["online", "online", "offline"]:
        assert time.monotonic() < until, shown()
        time.sleep(0.02)


def test_a_run_whose_folder_is_gone_has_nobody_to_show_anything(tmp_path):
    home = tmp_path / "run"
    home.mkdir()
    board = PartyStates(home / "parties.json", ["north", "south"])
    board.set_stage("inspect", round_number=0)
    board.set_party(0, PartyStatus.ONLINE)
    later = board._later
    (home / "parties.json").unlink()
    home.rmdir()
    later.join()
    assert not home.exists()
