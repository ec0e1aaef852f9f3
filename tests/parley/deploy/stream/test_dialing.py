"""How long a party waits before it dials again."""

from pathlib import Path

import pytest

from parley.deploy.processes import free_ports
from parley.deploy.stream.caller import CallError
from parley.deploy.stream.party import Attending


class _Dialing(Attending):
    """A party whose connections end as listed, True for one that held; it keeps its waits."""

    def __init__(self, ends):
        (port,) = free_ports(1)
        super().__init__(
            Path(), address=f"127.0.0.1:{port}", answers=lambda _: b"", say=self._heard
        )
        self.said, self.waits, self._ends = [], [], iter(ends)
        self._over.wait = self._wait

    def _wait(self, timeout):
        self.waits.append(timeout)

    def _heard(self, event):
        self.said.append(str(event))

    def _connect(self):
        end = next(self._ends)
        if isinstance(end, Exception):
            raise end
        self._attended = end


def test_waits_grow_to_three_seconds_and_start_anew_after_a_connection_that_held():
    lost, refused = [OSError("lost")] * 9, CallError("no such party", lasting=True)
    party = _Dialing([*lost, True, *lost[:2], refused])
    with pytest.raises(CallError, match="no such party"):
        party.forever()
    longest = [*(min(0.1 * 1.6**k, 3.0) for k in range(9)), 0.1, 0.16, 0.256]
    assert len(party.waits) == len(longest)
    for wait, most in zip(party.waits, longest, strict=True):
        assert most / 2 <= wait <= most * 1.0001
    assert len({wait / most for wait, most in zip(party.waits, longest, strict=True)}) > 6
    assert [line.split(": ")[1] for line in party.said] == [
        "lost. Trying again.",
        "the server ended it. Trying again.",
        "lost. Trying again.",
    ]
