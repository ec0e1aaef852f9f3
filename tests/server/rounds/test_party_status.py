"""Whoever watches a run sees where its parties stand, also while nothing more is heard."""

import json
import time

from parley.server.rounds.party_status import PartyBoard, PartyStatus


def test_what_came_last_before_a_long_wait_is_shown(tmp_path):
    board = PartyBoard(tmp_path / "parties.json", ["north", "south", "east"])
    board.stage("inspect", round_number=0)
    board.party(0, PartyStatus.ONLINE)
    board.party(1, PartyStatus.ONLINE)

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
    board = PartyBoard(home / "parties.json", ["north", "south"])
    board.stage("inspect", round_number=0)
    board.party(0, PartyStatus.ONLINE)
    later = board._later
    (home / "parties.json").unlink()
    home.rmdir()
    later.join()
    assert not home.exists()
