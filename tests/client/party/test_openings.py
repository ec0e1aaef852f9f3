"""The memory of what was opened in which sum: kept whole, found again, the same in any order."""

import pytest

from parley.client.party.openings import OpenedOtherwise, Openings, listed_parties
from parley.secure_agg.interface import RemoteProtocolError

KEYS = [bytes([n]) * 32 for n in range(1, 9)]
HERE, THERE = b"h" * 32, b"t" * 32


def test_a_contribution_is_opened_with_the_list_that_it_was_first_opened_with(tmp_path):
    memory = Openings(path=tmp_path / "openings")
    memory.check(KEYS[0], HERE)
    for release, listed in ((0, HERE), (1, HERE), (0, HERE), (2, THERE)):
        memory.keep(KEYS[release], listed)
    assert memory.path.stat().st_size == 3 * 64
    assert memory.path.stat().st_mode & 0o777 == 0o600
    for release, listed in ((0, THERE), (1, THERE), (2, HERE)):
        for either in (memory.check, memory.keep):
            with pytest.raises(OpenedOtherwise, match="A new run"):
                either(KEYS[release], listed)
    assert memory.path.stat().st_size == 3 * 64


def test_what_a_crash_cut_short_was_not_answered_for_and_is_cut_off(tmp_path):
    memory = Openings(path=tmp_path / "openings")
    memory.keep(KEYS[0], HERE)
    with memory.path.open("ab") as file:
        file.write(KEYS[1] + THERE[:20])
    memory.check(KEYS[1], THERE)
    memory.keep(KEYS[1], HERE)
    assert memory.path.stat().st_size == 2 * 64
    with pytest.raises(OpenedOtherwise):
        memory.check(KEYS[1], THERE)


def test_bytes_within_a_record_are_no_key(tmp_path):
    memory = Openings(path=tmp_path / "openings")
    memory.keep(KEYS[0], KEYS[1])
    memory.keep(KEYS[2], KEYS[3])
    for name in (KEYS[1], KEYS[0][:16] + KEYS[1][:16], KEYS[3]):
        memory.check(name, HERE)


def test_a_list_names_parties_whatever_their_places_in_a_roster():
    first = listed_parties((b"a", b"b", b"c"), b"\xc0")
    assert first == listed_parties((b"c", b"b", b"a"), b"\x60")
    assert first != listed_parties((b"a", b"b", b"c"), b"\xa0")
    with pytest.raises(RemoteProtocolError):
        listed_parties((b"a", b"b", b"c"), b"\xff")
