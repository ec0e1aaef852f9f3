"""A party's ledger is opened once, and again where it is another file or another process."""

import shutil
import stat

from ledger_children import fork_while_it_is_open, in_child

from parley.client.party.kept_records import KeptLedger
from parley.privacy.accounting.guarantee import Neighbouring, Unit
from parley.privacy.ledger.budget import DatasetBudget
from parley.privacy.ledger.ledger import Ledger

WARD = DatasetBudget(
    name="ward",
    fingerprint="sha256:0c4a",
    unit=Unit.RECORD,
    neighbouring=Neighbouring.REPLACE_ONE,
    epsilon=1.0,
    delta=0.0,
)


def test_a_ledger_that_was_being_made_when_its_party_was_killed_is_made(tmp_path):
    path = tmp_path / "ledger.sqlite"
    path.touch()
    (tmp_path / ".ledger.sqlite.part").write_bytes(b"half of one")
    kept = KeptLedger(path)
    kept.opened().register(WARD)
    kept.close()
    assert [file.name for file in tmp_path.iterdir()] == ["ledger.sqlite"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with Ledger.open(path, read_only=True) as ledger:
        assert ledger.verify() == []


def test_a_service_opens_its_ledger_once_for_all_rounds(tmp_path, wired, monkeypatch):
    opened, original = [], Ledger.open
    monkeypatch.setattr(Ledger, "open", lambda *a, **k: opened.append(a) or original(*a, **k))
    world = wired.World(tmp_path, reopen=False)
    world.join()
    for number in (1, 2, 3):
        world.vectors(number, number, prepare=number + 1 if number < 3 else None)
        world.opened()
    assert len(opened) == 2 * world.count  # to make it, and once for all rounds
    for party in range(world.count):
        with original(world.folders[party] / "ledger.sqlite", read_only=True) as ledger:
            assert [each.entry.index for each in ledger.entries()] == [1, 2, 3]
            assert ledger.verify() == []
        wired.ok(world.ask(party, "finish", session=world.session))
        # Whoever copies the file between runs has all of it.
        left = {file.name for file in world.folders[party].glob("ledger*")}
        assert left == {"ledger.sqlite", "ledger.sqlite.key"}


def test_a_ledger_that_was_put_back_is_the_one_that_is_charged(tmp_path):
    path = tmp_path / "ledger.sqlite"
    kept = KeptLedger(path)
    kept.opened()
    kept.close()
    shutil.copy(path, tmp_path / "backup")
    kept.opened().register(WARD)
    kept.close()  # so that all of it is in the file
    first = kept.opened()
    assert len(first.totals()) == 1
    (tmp_path / "backup").replace(path)
    assert kept.opened() is not first
    assert kept.opened().totals() == ()
    kept.opened().register(WARD)
    kept.close()
    with Ledger.open(path, read_only=True) as ledger:
        assert len(ledger.totals()) == 1


def test_a_ledger_that_was_removed_is_begun_anew_and_never_written_unseen(tmp_path):
    kept = KeptLedger(tmp_path / "ledger.sqlite")
    kept.opened().register(WARD)
    for file in tmp_path.glob("ledger*"):
        file.unlink()
    assert kept.opened().totals() == ()
    kept.close()


def test_a_forked_process_opens_it_for_itself(tmp_path):
    child = in_child(fork_while_it_is_open, tmp_path / "ledger.sqlite")
    child.join(timeout=60)
    assert child.exitcode == 0


def test_only_its_owner_reads_the_ledger_and_the_files_beside_it(tmp_path):
    path = tmp_path / "ledger.sqlite"
    Ledger.open(path).close()
    path.chmod(0o644)
    kept = KeptLedger(path)
    kept.opened().register(WARD)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("ledger*")}
    assert set(modes.values()) == {0o600}
    assert "ledger.sqlite-wal" in modes
    kept.close()
