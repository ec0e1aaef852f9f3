"""Tests of run parameters and party policies."""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.secure_agg.interface import DropoutPolicy, RemoteProtocolError
from parley.secure_agg.parameters import Policy, RunParameters

BASE = RunParameters.choose(parties=10, min_survivors=7, run_id=b"r" * 16, corrupt=1)


def test_the_chosen_parameters_are_what_the_bounds_say():
    assert (BASE.degree, BASE.threshold, BASE.min_survivors, BASE.stages) == (9, 6, 7, 3)
    assert RunParameters.from_bytes(BASE.to_bytes()) == BASE
    assert "rrrr" not in repr(BASE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"min_survivors": 5},
            "Expected min_survivors from 6 (m = 10, corrupt 1, confirm_survivors True)",
        ),
        ({"min_survivors": 11}, "to m, got 11."),
        ({"min_survivors": 0}, "got 0."),
        ({"corrupt": 10}, "Expected corrupt and dropped from 0 to m - 1 = 9, got 10, 1."),
        ({"ring_bits": 2}, "Expected ring_bits 16, 32 or 64, got 2."),
        ({"run_id": b""}, "got 0, 32 and 32"),
        ({"corrupt": 9}, "Expected a threshold <= 8"),
        ({"dropped": 4}, "Expected a threshold <= 5"),
        ({"rounds": 0}, "Expected rounds from 1 to 2^32 - 2, got 0."),
        (
            {"dropouts": DropoutPolicy.OPTIMISTIC},
            "Expected confirm_survivors False with optimistic",
        ),
        ({"beacon": b"b" * 32}, "Expected no commitments and no beacon for a complete graph."),
        ({"parties": 0}, "Expected parties from 1 to 2^20, got 0."),
    ],
)
def test_bad_parameters_are_refused_with_the_numbers(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        dataclasses.replace(BASE, **changes)


@given(data=st.binary(max_size=90))
def test_any_other_bytes_are_refused(data):
    with pytest.raises(RemoteProtocolError):
        RunParameters.from_bytes(data)


def test_weak_parameters_in_an_encoding_are_refused():
    data = bytearray(BASE.to_bytes())
    data[1 + 16 + 64 + 4 + 3] = 5  # the least survivors
    with pytest.raises(RemoteProtocolError, match="min_survivors from 6"):
        RunParameters.from_bytes(bytes(data))


def _policy(**changes):
    identities = tuple(bytes([n]) * 32 for n in range(10))
    return Policy(**{"identities": identities, "min_survivors": 7} | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_survivors": 8}, "Expected min_survivors >= 8, got 7."),
        ({"minimum_degree": 10}, "Expected degree >= 10, got 9."),
        ({"corrupt": 2}, "Expected corrupt >= 2, got 1."),
        ({"identities": (b"a" * 32,), "corrupt": 0}, "Expected 1 parties, got 10."),
    ],
)
def test_a_policy_refuses_weaker_parameters(changes, message):
    with pytest.raises(RemoteProtocolError, match=re.escape(message)):
        _policy(**changes).check(BASE)


def test_a_policy_against_an_active_server_refuses_rounds_without_confirmation():
    for weaker in (
        {"confirm_survivors": False},
        {"confirm_survivors": False, "dropouts": DropoutPolicy.OPTIMISTIC},
    ):
        with pytest.raises(RemoteProtocolError, match="robust dropouts with confirmed survivors"):
            _policy().check(dataclasses.replace(BASE, **weaker))
        _policy(confirm_survivors=False).check(dataclasses.replace(BASE, **weaker))


def test_duplicate_identities_are_refused():
    with pytest.raises(ValueError, match=r"Expected 3 different identities, got 2\."):
        _policy(identities=(b"a" * 32, b"b" * 32, b"a" * 32))
    with pytest.raises(ValueError, match="32 bytes"):
        _policy(identities=(b"a",))
