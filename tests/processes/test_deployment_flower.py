"""A deployment carried by Flower, from its commands alone: init, server, party, submit, stop."""

from __future__ import annotations

import json

import pytest
from commands import NAMES

from parley.deploy.processes import wait_until
from parley.privacy.ledger.ledger import Ledger


@pytest.fixture
def carrier():
    return "flower"


@pytest.mark.heavy
def test_a_consortium_trains_from_its_commands_alone(ground, parley, consortium, tmp_path):
    server = parley.start("server", consortium / "server")
    wait_until(lambda: "Listening on" in parley.said(server), what="the server", timeout_s=60)
    assert "north: offline" in parley("status", consortium)
    parties = [parley.start("party", consortium / "parties" / name) for name in NAMES]
    wait_until(lambda: "(3 of 3)" in parley.said(server), what="the parties", timeout_s=90)
    summary = json.loads(
        parley("submit", tmp_path / "job.toml", "--to", consortium, "--json", "-q")
    )
    assert summary["status"] == "complete"
    assert summary["secure_aggregation"]["mode"] == "masked"
    assert "north: online" in parley("status", consortium)
    assert "completed" in parley("status", consortium)
    assert parley("stop", consortium) == ""
    for name in NAMES:
        assert parley("ledger", "verify", consortium / "parties" / name / "ledger.sqlite")
    wrong = parley("submit", "--to", consortium, "--set", "parties.count=4", expect=2)
    assert "Expected parties.count = 3" in wrong
    assert "north is ready for" in parley.said(parties[0])
    assert parley.end() == [130, 130, 130, 130]


@pytest.mark.heavy
def test_a_run_that_is_stopped_goes_on_when_it_is_submitted_again(ground, parley, consortium):
    server = parley.start("server", consortium / "server")
    wait_until(lambda: "Listening on" in parley.said(server), what="the server", timeout_s=60)
    for name in NAMES:
        parley.start("party", consortium / "parties" / name)
    wait_until(lambda: "(3 of 3)" in parley.said(server), what="the parties", timeout_s=90)
    job = consortium.parent / "job.toml"
    submitted = parley.start("submit", job, "--to", consortium, "-q", "--set", "algorithm.rounds=8")
    runs = consortium / "server" / "runs"
    wait_until(
        lambda: any(path.stat().st_size for path in runs.glob("*/rounds.jsonl")),
        what="a round",
        timeout_s=120,
    )
    (run,) = runs.iterdir()
    assert f"{run.name}: stopping." in parley("stop", consortium)
    assert parley.running[submitted][0].wait(60) == 130
    done = len((run / "rounds.jsonl").read_text().splitlines())
    assert 1 <= done < 8
    summary = json.loads(parley("submit", "--to", consortium, "--resume", run.name, "--json", "-q"))
    assert (summary["status"], summary["rounds_done"]) == ("complete", 8)
    for ledger in (run / "ledger.sqlite", consortium / "parties" / "south" / "ledger.sqlite"):
        with Ledger.open(ledger, read_only=True) as opened:
            assert [entry.entry.index for entry in opened.entries()] == list(range(1, 9))
    parley.running.pop(submitted)[1].close()
    assert parley.end() == [130, 130, 130, 130]


@pytest.mark.heavy
def test_what_is_wrong_is_said_on_the_machine_where_it_is(ground, parley, consortium):
    north = consortium / "parties" / "north"
    assert "Cannot reach the server at 127.0.0.1" in parley("party", north, expect=1)
    assert "Cannot reach the server" in parley("submit", "--to", consortium, expect=1)
    server = parley.start("server", consortium / "server")
    wait_until(lambda: "Listening on" in parley.said(server), what="the server", timeout_s=60)
    assert "Cannot listen on 0.0.0.0" in parley("server", consortium, expect=1)
    assert "NOT" not in parley("party", north, "--check")
    parley(
        "deploy",
        "init",
        consortium.parent / "other",
        "--host",
        "127.0.0.1",
        "--parties",
        2,
        "--transport",
        "flower",
    )
    stranger = consortium.parent / "other" / "parties" / "site-1"
    address = (consortium / "server" / "deployment.toml").read_text().split('server = "')[1]
    address = address.split('"')[0]
    refused = parley("party", stranger, "--server", address, expect=2)
    assert "is not the one that" in refused
    (north / "records.npz").unlink()
    assert "there is no such file" in parley("party", north, expect=2)
    assert parley.end() == [130]


@pytest.mark.heavy
def test_what_is_killed_is_started_again_and_it_is_said(ground, parley, consortium):
    server = parley.start("server", consortium / "server")
    wait_until(lambda: "Listening on" in parley.said(server), what="the server", timeout_s=60)
    north = parley.start("party", consortium / "parties" / "north")
    wait_until(lambda: "(1 of 3)" in parley.said(server), what="north", timeout_s=90)
    for word, says in (
        ("superlink_process", (server, "the SuperLink ended with status -9")),
        ("parley.deploy.flower.executor", (server, "the server's executor ended with status -9")),
        ("party_process", (north, "north's SuperNode ended with status -9")),
    ):
        ground.kill(word)
        number, line = says
        wait_until(lambda n=number, x=line: x in parley.said(n), what=line, timeout_s=30)
        assert "it is started again in" in parley.said(number)
        assert "Traceback" not in parley.said(number)

    def back():
        try:
            shown = parley("status", consortium)
        except AssertionError:
            return False  # it is starting
        return "north: online" in shown and all_run(ground)

    wait_until(back, what="north to be back", timeout_s=120, poll_s=2)
    assert parley.end() == [130, 130]


def all_run(ground):
    """Whether each of the three kinds of process runs."""
    lines = " ".join(ground.running())
    words = ("superlink_process", "parley.deploy.flower.executor", "party_process")
    return all(word in lines for word in words)
