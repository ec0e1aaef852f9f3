"""What docs/backup.md states about copies that are put back: of a party, a server, an owner."""

import shutil
import threading

import numpy as np
import pytest
from attending import NAMES

from parley.client.contract.message_frames import decode_frame
from parley.deploy.party_check import check_items
from parley.deploy.stream.party_client import build_answer_request
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_copy import copy_ledger
from parley.privacy.ledger.ledger_errors import LedgerCorrupt


def find_faults(folder):
    """What `parley party DIR --check` finds wrong, but for the server that is not asked."""
    return [each.line for each in check_items(folder) if each.status and each.what != "server"]


def count_releases(folder):
    with Ledger.open(folder / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.verify() == []
        return len(ledger.list_entries())


def restart(consortium):
    """A new server process, and new processes of all parties, from their folders."""
    for party in consortium.attending:
        party.end(EOFError("stopped"))
    consortium.attending.clear()
    consortium.shut()
    consortium.said.clear()
    serving = consortium.serve()
    consortium.everybody()
    return serving


def remove_ledger(folder):
    for path in folder.glob("ledger.sqlite*"):
        path.unlink()


def test_a_partys_ledger_is_put_back_alone_with_its_folder_and_elsewhere(consortium, tmp_path):
    serving = consortium.serve()
    consortium.everybody()
    north, south = consortium.home("north"), consortium.home("south")
    consortium.submit()
    assert serving.run_next().state == "complete"
    copy_ledger(north / "ledger.sqlite", tmp_path / "older.sqlite")
    shutil.copytree(south, tmp_path / "older-folder")
    consortium.submit()
    assert serving.run_next().state == "complete"
    copy_ledger(north / "ledger.sqlite", tmp_path / "newest.sqlite")

    # An older ledger in a newer folder: noticed by the check and by the next job.
    remove_ledger(north)
    copy_ledger(tmp_path / "older.sqlite", north / "ledger.sqlite")
    (fault,) = find_faults(north)
    assert "an older copy was put back" in fault
    serving = restart(consortium)
    refused = consortium.submit()
    assert serving.run_next().state == "failed"
    assert count_releases(north) == 3
    assert not (consortium.runs / refused / "model.safetensors").exists()

    # The newest one: the party goes on.
    remove_ledger(north)
    copy_ledger(tmp_path / "newest.sqlite", north / "ledger.sqlite")
    assert find_faults(north) == []
    serving = restart(consortium)
    consortium.submit()
    assert serving.run_next().state == "complete"
    assert count_releases(north) == 9

    # Another machine: the whole folder, and nothing else.
    moved = tmp_path / "moved"
    shutil.copytree(north, moved)
    assert find_faults(moved) == []
    assert count_releases(moved) == 9

    # No ledger at all is no empty one.
    (moved / "ledger.sqlite").unlink()
    for rest in moved.glob("ledger.sqlite-*"):
        rest.unlink()
    assert any("ledger" in fault for fault in find_faults(moved))
    remove_ledger(moved)  # its key, too: the head in `state/` still shows that there was one
    (fault,) = find_faults(moved)
    assert "which had" in fault
    assert "Restore it" in fault

    # The whole folder of before is not noticed, as the page says: only a head kept elsewhere is.
    assert find_faults(tmp_path / "older-folder") == []
    with Ledger.open(south / "ledger.sqlite", read_only=True) as ledger:
        kept = ledger.get_head()
    with Ledger.open(tmp_path / "older-folder" / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.verify() == []
        with pytest.raises(LedgerCorrupt, match="older copy was put back"):
            ledger.check_contains(kept)

    # An owner who accepts the older ledger says so by deleting the head.
    remove_ledger(north)
    copy_ledger(tmp_path / "older.sqlite", north / "ledger.sqlite")
    (north / "state" / "ledger-head").unlink()
    assert find_faults(north) == []


def snapshot_at_round(consortium, number, target):
    """Run a job, and copy the server's folder while round `number` is open."""
    counted = threading.Semaphore(0)

    def answers(folder):
        own = build_answer_request(folder)
        rounds = iter(range(1, 100))

        def answer(request):
            if decode_frame(request).kind == "round":
                if next(rounds) == number and folder == consortium.home("north"):
                    shutil.copytree(consortium.root / "server", target)
                counted.release()
            return own(request)

        return answer

    serving = consortium.serve()
    consortium.everybody(answers)
    name = consortium.submit()
    assert serving.run_next().state == "complete"
    return name


@pytest.mark.parametrize(("number", "state"), [(3, "complete"), (2, "too-few-survivors")])
def test_a_server_put_back_from_between_two_rounds_resumes_or_is_refused(
    consortium, tmp_path, number, state
):
    name = snapshot_at_round(consortium, number, tmp_path / "between")
    before = consortium.model(name)
    shutil.rmtree(consortium.root / "server")
    shutil.copytree(tmp_path / "between", consortium.root / "server")
    serving = restart(consortium)
    assert serving.run_next().state == state
    # Either way nothing was charged twice.
    for party in NAMES:
        assert count_releases(consortium.home(party)) == 3
    if state == "complete":
        assert np.array_equal(consortium.model(name), before)
        return
    # What the page advises: the job again, as a new run.
    consortium.submit()
    assert serving.run_next().state == "complete"
    assert [count_releases(consortium.home(party)) for party in NAMES] == [6, 6, 6]


def test_a_whole_deployment_moves_to_another_folder_and_goes_on(consortium, tmp_path):
    serving = consortium.serve()
    consortium.everybody()
    consortium.submit()
    assert serving.run_next().state == "complete"
    moved = tmp_path / "elsewhere" / "consortium"
    shutil.copytree(consortium.root, moved)
    for party in consortium.attending:
        party.end(EOFError("stopped"))
    consortium.attending.clear()
    consortium.shut()
    consortium.said.clear()
    shutil.rmtree(consortium.root)
    consortium.root = moved
    serving = consortium.serve()
    consortium.everybody()
    consortium.submit()
    assert serving.run_next().state == "complete"
    for entries in consortium.ledgers():
        assert [index for index, _ in entries] == [1, 2, 3, 1, 2, 3]


def test_an_approval_is_in_the_ledger_and_in_no_copy_from_before_it(consortium, tmp_path):
    serving = consortium.serve()
    consortium.everybody()
    consortium.submit()
    assert serving.run_next().state == "complete"
    path = consortium.home("north") / "ledger.sqlite"
    copy_ledger(path, tmp_path / "before.sqlite")
    with Ledger.open(path) as ledger:
        key = ledger.list_accounts()[0].budget.key
        decided = ledger.decide(key, run_id="next", proposals=("0a" * 32,), accepted=True)
    copy_ledger(path, tmp_path / "after.sqlite")
    for copy, decisions in (("before", ()), ("after", (decided,))):
        with Ledger.open(tmp_path / f"{copy}.sqlite", read_only=True) as ledger:
            assert ledger.list_decisions("next") == decisions
