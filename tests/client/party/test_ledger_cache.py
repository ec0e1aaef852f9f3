"""A party's ledger and its memory of openings: opened once, kept whole, found again."""

import shutil
import stat
from dataclasses import replace
from unittest.mock import Mock

import pytest
from ledger_children import fork_while_it_is_open, in_child
from ledgers import ADULT

from parley.client.party import release_charge
from parley.client.party.ledger_cache import LedgerCache, has_ledger
from parley.client.party.unmasking_log import OtherSurvivorsUnmasked, UnmaskingLog, hash_survivors
from parley.deploy.party_check import check_items
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import LedgerUnavailable
from parley.secure_agg.interface import RemoteProtocolError

WARD = replace(ADULT, name="ward")


def test_a_ledger_that_was_being_made_when_its_party_was_killed_is_made(tmp_path):
    path = tmp_path / "ledger.sqlite"
    path.touch()
    (tmp_path / ".ledger.sqlite.part").write_bytes(b"half of one")
    kept = LedgerCache(path)
    kept.get_ledger().register(WARD)
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
            assert [each.entry.index for each in ledger.list_entries()] == [1, 2, 3]
            assert ledger.verify() == []
        wired.ok(world.ask(party, "finish", session=world.session))
        # Whoever copies the file between runs has all of it.
        left = {file.name for file in world.folders[party].glob("ledger*")}
        assert left == {"ledger.sqlite", "ledger.sqlite.key"}


def test_a_ledger_that_was_put_back_is_the_one_that_is_charged(tmp_path):
    path = tmp_path / "ledger.sqlite"
    kept = LedgerCache(path)
    kept.get_ledger()
    kept.close()
    shutil.copy(path, tmp_path / "backup")
    kept.get_ledger().register(WARD)
    kept.close()  # so that all of it is in the file
    first = kept.get_ledger()
    assert len(first.list_accounts()) == 1
    (tmp_path / "backup").replace(path)
    assert kept.get_ledger() is not first
    assert kept.get_ledger().list_accounts() == ()
    kept.get_ledger().register(WARD)
    kept.close()
    with Ledger.open(path, read_only=True) as ledger:
        assert len(ledger.list_accounts()) == 1


def test_a_ledger_that_was_removed_is_begun_anew_and_never_written_unseen(tmp_path):
    kept = LedgerCache(tmp_path / "ledger.sqlite")
    kept.get_ledger().register(WARD)
    for file in tmp_path.glob("ledger*"):
        file.unlink()
    assert kept.get_ledger().list_accounts() == ()
    kept.close()


def test_a_ledger_that_is_gone_while_its_key_is_there_is_not_begun_anew(tmp_path, wired):
    world = wired.World(tmp_path)
    world.join()
    for file in world.folders[0].glob("ledger.sqlite*"):
        if file.suffix != ".key":
            file.unlink()
    assert wired.reason(world.ask(0, "join", **world.join_head())) == "error"
    assert not (world.folders[0] / "ledger.sqlite").exists()
    with pytest.raises(LedgerUnavailable, match="missing, and with it the record of all releases"):
        has_ledger(world.folders[0] / "ledger.sqlite")


def test_an_older_ledger_that_is_put_back_is_not_taken_for_what_was_released(tmp_path, wired):
    world = wired.World(tmp_path)
    path, other = world.folders[0] / "ledger.sqlite", {"run": "r-2"}
    other["plan"] = world.plan.with_run_id("r-2").to_json()
    world.join()
    world.services[0].close()
    shutil.copy(path, tmp_path / "backup")
    world.vectors(1)
    world.opened()
    wired.ok(world.ask(0, "finish", session=world.session))
    shutil.copy(tmp_path / "backup", path)
    assert wired.reason(world.ask(0, "propose", **world.join_head(**other))) == "error"
    assert "an older copy was put back" in (world.folders[0] / "party.log").read_text()
    (world.folders[0] / "state" / "ledger-head").unlink()  # its owner says so
    assert wired.ok(world.ask(0, "propose", **world.join_head(**other)))
    other["run"] = "r-3"  # and says so once: neither contributions nor openings object afterwards
    other["plan"] = world.plan.with_run_id("r-3").to_json()
    assert wired.ok(world.ask(0, "propose", **world.join_head(**other)))


def ask_next(world, wired, kind):
    """One more request of that kind to party 0, in or after its second round; why it is refused."""
    if kind == "round":
        return wired.reason(world.vectors(3, 3)[0])
    if kind == "survivors":
        listed = world.server.close()
        return wired.reason(world.ask(0, "survivors", [listed], session=world.session))
    if kind == "finish":
        return wired.reason(world.ask(0, "finish", session=world.session))
    other = {"run": "r-2", "plan": world.plan.with_run_id("r-2").to_json()}
    return wired.reason(world.ask(0, "propose", **world.join_head(**other)))


@pytest.mark.parametrize(
    ("kind", "put_back"),
    [
        ("round", ["ledger.sqlite"]),
        ("survivors", ["ledger.sqlite"]),
        ("finish", ["ledger.sqlite"]),
        ("propose", ["ledger.sqlite"]),
        # The contribution that is kept still knows of its charge.
        ("round", ["ledger.sqlite", "state/ledger-head"]),
        ("finish", ["ledger.sqlite", "state/ledger-head"]),
        ("propose", ["ledger.sqlite", "state/ledger-head"]),
        # Of all that is kept, `openings` alone is newer.
        ("finish", ["ledger.sqlite", "state"]),
        ("propose", ["ledger.sqlite", "state"]),
    ],
)
def test_a_ledger_put_back_between_two_rounds_is_refused_at_the_next_request(
    tmp_path, wired, kind, put_back
):
    world = wired.World(tmp_path, reopen=False)
    folder, backup = world.folders[0], tmp_path / "backup"
    world.join()
    world.vectors(1, 1)
    world.opened()
    world.services[0].close()  # so that all of it is in the file
    shutil.copytree(folder, backup)
    world.vectors(2, 2)
    world.services[0].close()
    for name in put_back:
        if (backup / name).is_dir():
            shutil.rmtree(folder / name)
            shutil.copytree(backup / name, folder / name)
        else:
            shutil.copy(backup / name, folder / name)
    assert ask_next(world, wired, kind) == "error"
    assert "an older copy was put back" in (folder / "party.log").read_text()
    (item,) = [each for each in check_items(folder) if each.what == "ledger"]
    assert item.status


def test_two_consortia_on_the_same_records_spend_one_budget(tmp_path, wired, monkeypatch):
    """The second folder's ledger is a link. Neither server has what the other's run paid for."""
    worlds = []
    for keys, name in ((1, "one"), (9, "other")):
        (tmp_path / name).mkdir()
        worlds.append(wired.World(tmp_path / name, keys=keys))
    one, other = worlds
    ledger = one.folders[0] / "ledger.sqlite"
    (other.folders[0] / "ledger.sqlite").symlink_to(ledger)
    for world in worlds:  # of the same run, by its name, plan and model
        world.join()
    settled = release_charge.commit_charge
    monkeypatch.setattr(
        release_charge, "commit_charge", Mock(side_effect=OSError)
    )  # the disk is full
    assert {wired.reason(each) for each in one.vectors(1).values()} == {"error"}
    monkeypatch.setattr(release_charge, "commit_charge", settled)
    assert wired.ok(other.vectors(1)[0])
    one.join("0b" * 16)
    again = one.vectors(1)
    assert wired.reason(again[0]) == "plan-changed"
    assert wired.ok(again[1])
    assert other.folders[0].joinpath("ledger.sqlite").is_symlink()
    assert not (other.folders[0] / "ledger.sqlite.key").exists()
    with Ledger.open(ledger, read_only=True) as opened:
        assert len(opened.list_entries()) == 1
        assert opened.verify() == []


def test_a_forked_process_opens_it_for_itself(tmp_path):
    child = in_child(fork_while_it_is_open, tmp_path / "ledger.sqlite")
    child.join(timeout=60)
    assert child.exitcode == 0


def test_only_its_owner_reads_the_ledger_and_the_files_beside_it(tmp_path):
    path = tmp_path / "ledger.sqlite"
    Ledger.open(path).close()
    path.chmod(0o644)
    kept = LedgerCache(path)
    kept.get_ledger().register(WARD)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("ledger*")}
    assert set(modes.values()) == {0o600}
    assert "ledger.sqlite-wal" in modes
    kept.close()


KEYS = [bytes([n]) * 32 for n in range(1, 9)]
HERE, THERE = b"h" * 32, b"t" * 32


def test_a_contribution_is_opened_with_the_list_that_it_was_first_opened_with(tmp_path):
    memory = UnmaskingLog(path=tmp_path / "openings")
    memory.check(KEYS[0], HERE)
    for release, listed in ((0, HERE), (1, HERE), (0, HERE), (2, THERE)):
        memory.record(KEYS[release], listed)
    assert memory.path.stat().st_size == 3 * 64
    assert memory.path.stat().st_mode & 0o777 == 0o600
    for release, listed in ((0, THERE), (1, THERE), (2, HERE)):
        for either in (memory.check, memory.record):
            with pytest.raises(OtherSurvivorsUnmasked, match="A new run"):
                either(KEYS[release], listed)
    assert memory.path.stat().st_size == 3 * 64


def test_what_a_crash_cut_short_was_not_answered_for_and_is_cut_off(tmp_path):
    memory = UnmaskingLog(path=tmp_path / "openings")
    memory.record(KEYS[0], HERE)
    with memory.path.open("ab") as file:
        file.write(KEYS[1] + THERE[:20])
    memory.check(KEYS[1], THERE)
    memory.record(KEYS[1], HERE)
    assert memory.path.stat().st_size == 2 * 64
    with pytest.raises(OtherSurvivorsUnmasked):
        memory.check(KEYS[1], THERE)


def test_bytes_within_a_record_are_no_key(tmp_path):
    memory = UnmaskingLog(path=tmp_path / "openings")
    memory.record(KEYS[0], KEYS[1])
    memory.record(KEYS[2], KEYS[3])
    for name in (KEYS[1], KEYS[0][:16] + KEYS[1][:16], KEYS[3]):
        memory.check(name, HERE)


def test_a_list_names_parties_whatever_their_places_in_a_roster():
    first = hash_survivors((b"a", b"b", b"c"), b"\xc0")
    assert first == hash_survivors((b"c", b"b", b"a"), b"\x60")
    assert first != hash_survivors((b"a", b"b", b"c"), b"\xa0")
    with pytest.raises(RemoteProtocolError):
        hash_survivors((b"a", b"b", b"c"), b"\xff")
