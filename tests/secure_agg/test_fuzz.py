"""Whole rounds in which every message may be damaged, replayed, swapped or lost on its way.

Whatever arrives, the outcome is a typed error or an answer; never a crash, and the sum, if there
is one, is the survivors' sum unless somebody's own message was altered in a way it cannot see.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.secure_agg.interface import ProtocolError, TooFewSurvivors


class _Wire:
    """Delivers a message as it is, or tampered with, or an older one, or nothing."""

    def __init__(self, script):
        self.script, self.seen, self.tampered = list(script), [], 0

    def __call__(self, message):
        message = bytes(message)
        self.seen.append(message)
        action, where, value = self.script.pop(0) if self.script else ("pass", 0, 0)
        if action != "pass":
            self.tampered += 1
        if action == "flip":
            at = where % len(message)
            return message[:at] + bytes([message[at] ^ (value or 1)]) + message[at + 1 :]
        if action == "cut":
            return message[: where % len(message)]
        if action == "grow":
            return message + bytes(where % 200)
        if action == "replay":
            return self.seen[where % len(self.seen)]
        return None if action == "lose" else message


_ACTIONS = st.tuples(
    st.sampled_from(["pass"] * 12 + ["flip", "flip", "cut", "grow", "replay", "lose"]),
    st.integers(0, 10**6),
    st.integers(0, 255),
)


def _try(call, message):
    if message is None:
        return None
    try:
        return call(message)
    except (ProtocolError, TooFewSurvivors) as error:
        if "Expected" not in str(error):
            raise
        return None


def _play(d, drill, wire):
    server = d.server
    for party in d.parties.values():
        _try(server.handle_advertise, wire(party.advertise()))
    for i, message in server.build_rosters().items():
        _try(d.parties[i].handle_roster, wire(message))
    for number in (1, 2):
        for party in d.parties.values():
            shares = _try(party.prepare, number)
            if shares:
                _try(server.handle_shares, wire(shares))
        plans = server.plan(number, dimension=6, context=d.context)
        for i, plan in plans.items():
            vector = _try(
                lambda p, i=i: d.parties[i].handle_plan(p, d.vectors[i], context=d.context),
                wire(plan),
            )
            if vector is not None:
                _try(server.handle_vector, wire(vector))
        listed = server.close()
        for i in server.survivors:
            confirm = _try(d.parties[i].handle_survivors, wire(listed))
            if confirm:
                _try(server.handle_confirm, wire(confirm))
        for i, message in server.build_confirmations().items():
            reveal = _try(d.parties[i].handle_confirmations, wire(message))
            if reveal:
                _try(server.handle_reveal, wire(reveal))
        survivors = server.survivors
        total = server.finish()
        yield survivors, total


def _fuzz(drill, script):
    d, wire = drill.build(), _Wire(script)
    try:
        for survivors, total in _play(d, drill, wire):
            assert total.shape == (6,)
            if not wire.tampered:
                expected = np.add.reduce(d.vectors[list(survivors)], axis=0, dtype=np.uint32)
                assert np.array_equal(total, expected)
    except TooFewSurvivors as error:
        if "Expected" not in str(error):
            raise


@settings(max_examples=60, deadline=None)
@given(script=st.lists(_ACTIONS, min_size=5, max_size=70))
def test_a_damaged_wire_gives_typed_errors_only(drill, script):
    _fuzz(drill, script)


@pytest.mark.heavy
@settings(max_examples=2000, deadline=None)
@given(script=st.lists(_ACTIONS, min_size=5, max_size=70))
def test_a_damaged_wire_gives_typed_errors_only_at_length(drill, script):
    _fuzz(drill, script)
