"""A deployment carried by Flower: its processes are kept alive."""

from __future__ import annotations

import pytest

from parley.deploy.processes import wait_until


@pytest.fixture
def carrier():
    return "flower"


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
