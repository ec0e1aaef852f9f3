"""A deployment from its commands alone: init, server, party, …"""

from __future__ import annotations

import json
import re
import shutil

import pytest
from commands import NAMES

from parley.client.contract.roster import load_deployment
from parley.deploy.process_errors import wait_until

"""So many that a run can be stopped in between."""


@pytest.mark.heavy
def test_a_consortium_trains_from_its_commands_alone(ground, parley, consortium, tmp_path):
    server = parley.serve(consortium)
    assert "north OFFLINE" in parley("status", consortium)
    parties = parley.everybody(consortium, server)
    summary = json.loads(
        parley("submit", tmp_path / "job.toml", "--to", consortium, "--json", "-q")
    )
    assert summary["status"] == "complete"
    assert summary["secure_aggregation"]["backend"] == "masked"
    status = parley("status", consortium)
    assert "north online, south online, east online" in status
    assert "complete" in status
    assert parley("stop", consortium) == ""
    for name in NAMES:
        assert parley("ledger", "verify", consortium / "parties" / name / "ledger.sqlite")
    wrong = parley("submit", "--to", consortium, "--set", "parties.count=4", expect=2)
    assert "Expected parties.count = 3" in wrong
    assert "north is ready for" in parley.said(parties[0])
    assert parley.end() == [130, 130, 130, 130]


@pytest.mark.heavy
def test_a_run_waits_for_an_owners_yes_and_goes_on_without_who_says_no(parley, consortium):
    for name in NAMES:
        policy = consortium / "parties" / name / "party.toml"
        text = policy.read_text()
        # A simulation's account admits a single run.
        edits = {'certificate = "plan"\n': 'certificate = "auto"\n'}
        if name != "east":
            edits["# approval-above =\n"] = "approval-above = 0\n"
            edits["colluders-at-least = 1\n"] = "colluders-at-least = 0\n"
        for before, after in edits.items():
            assert before in text
            text = text.replace(before, after)
        policy.write_text(text)
    parley.everybody(consortium, parley.serve(consortium))
    job = consortium.parent / "job.toml"
    small = ("--set", "privacy.epsilon=0.4")
    submitted = parley.start("submit", job, "--to", consortium, "--json", "-q", *small)
    wait_until(
        lambda: parley("status", consortium).count("waiting for approval") == 2,
        what="two owners who are asked",
        timeout_s=120,
    )
    north, south = (consortium / "parties" / name for name in ("north", "south"))
    (offer,) = json.loads(parley("owner", "pending", north, "--json"))
    price = " ".join(parley("owner", "status", north).split())
    # Just below the 0.4 that the job asks for: noise stands on a grid.
    assert re.search(r"Approval spends ε = 0\.(4|399\d*) per record", price)
    parley("owner", "accept", north, offer["name"])
    (same,) = json.loads(parley("owner", "pending", south, "--json"))
    assert same["name"] == offer["name"]
    assert "is approved" in parley("owner", "accept", south, same["name"])
    assert parley.running[submitted][0].wait(120) == 0
    assert json.loads(parley.said(submitted))["status"] == "complete"
    assert "Nothing waits" in parley("owner", "pending", north)
    refused = parley.start("submit", job, "--to", consortium, "-q", *small)
    wait_until(
        lambda: json.loads(parley("owner", "pending", south, "--json")),
        what="another question",
        timeout_s=120,
    )
    (other,) = json.loads(parley("owner", "pending", south, "--json"))
    assert "is refused" in parley("owner", "refuse", south, other["name"], "--reason", "enough")
    assert parley.running[refused][0].wait(120) == 1
    said = parley.said(refused)
    assert "south declines (refused-by-owner)" in said
    assert "enough" not in said
    for home in (north, south):
        assert parley("ledger", "verify", home / "ledger.sqlite")
    parley.running.pop(refused)[1].close()
    parley.running.pop(submitted)[1].close()
    assert parley.end() == [130, 130, 130, 130]


def test_a_party_that_starts_before_its_server_waits_and_says_so(ground, parley, consortium):
    """Some seconds: two processes, each from its start."""
    party = parley.start("party", consortium / "parties" / "north")
    parley.until(party, "Waiting for as long as it takes")
    assert "Cannot reach the server at 127.0.0.1" in parley.said(party)
    parley.start("server", consortium / "server")
    parley.until(party, "Connected to")
    assert parley.end() == [130, 130]


@pytest.mark.heavy
def test_what_is_wrong_is_said_on_the_machine_where_it_is(ground, parley, consortium):
    north = consortium / "parties" / "north"
    assert "Cannot reach the server" in parley("submit", "--to", consortium, expect=1)
    parley.serve(consortium)
    assert "Expected to be the only server" in parley("server", consortium, expect=1)
    shutil.copytree(consortium / "server", consortium.parent / "copy")
    assert "Cannot listen on 0.0.0.0" in parley("server", consortium.parent / "copy", expect=1)
    assert "NOT" not in parley("party", north, "--check")
    other = consortium.parent / "other"
    parley("deploy", "init", other, "--host", "127.0.0.1", "--parties", 2)
    address = load_deployment(consortium / "server" / "deployment.toml").server_address
    refused = parley("party", other / "parties" / "site-1", "--server", address, expect=2)
    assert "is not valid for" in refused
    (north / "records.npz").unlink()
    assert "Expected a file at" in parley("party", north, expect=2)
    assert parley.end() == [130]
