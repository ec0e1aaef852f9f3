"""Whatever comes, the party answers with a frame, and what it must not charge it does not."""

import json
from dataclasses import replace

import numpy as np
import pytest
from agreements import NETWORK
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from parley.client.contract.message_frames import (
    WIRE_VERSION,
    MessageFrame,
    decode_frame,
    encode_frame,
)
from parley.client.contract.refusals import Reason
from parley.privacy.ledger.ledger import Ledger

SETTINGS = settings(
    max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
VALUES |= st.lists(st.integers(), max_size=3) | st.dictionaries(st.text(max_size=3), st.integers())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, wired):
    """Party 0 in the middle of a round, and every kind of request it could get now."""
    world = wired.World(tmp_path_factory.mktemp("fuzz"), reopen=False)
    world.join()
    other = {"run": "r-9", "plan": world.plan.with_run_id("r-9").to_json()}
    requests = [
        MessageFrame(kind="inspect", head=world.inspection()),
        MessageFrame(
            kind="join",
            head={"version": WIRE_VERSION, **world.join_head("0c" * 16, **other)},
            blobs=(b"",),
        ),
        world.round_requests(1, prepare=2)[0],
        MessageFrame(
            kind="prepare",
            head={"version": WIRE_VERSION, "session": world.session, "prepare": 2},
            blobs=(world.server.get_ciphertexts(0),),
        ),
        MessageFrame(kind="prove", head={"version": WIRE_VERSION, "session": world.session}),
    ]
    for kind in ("roster", "survivors", "confirmations"):
        head = {"version": WIRE_VERSION, "session": world.session}
        head |= {"prepare": 1} if kind == "roster" else {}
        requests.append(MessageFrame(kind=kind, head=head, blobs=(bytes(40),)))
    return world, requests


def answered(world, data):
    frame = decode_frame(world.services[0].handle(data))
    assert frame.kind == "answer"
    assert frame.head["status"] in ("ok", "refused")
    if frame.head["status"] != "ok":
        assert set(frame.head) == {"version", "status", "reason"}
        assert frame.head["reason"] in set(Reason)
        assert not frame.blobs
    return frame


@SETTINGS
@given(data=st.binary(max_size=300))
def test_any_bytes_are_answered(recorded, data):
    world, _ = recorded
    assert answered(world, data).head["reason"] == "protocol"
    assert answered(world, b"PLY1" + data).head["reason"] == "protocol"


@SETTINGS
@given(data=st.data())
def test_a_request_with_bytes_changed_is_answered_and_charges_nothing(recorded, data):
    world, requests = recorded
    frame = data.draw(st.sampled_from([r for r in requests if r.kind != "join"]))
    whole = bytearray(encode_frame(frame))
    blobs = sum(len(blob) for blob in frame.blobs)
    # A round's head is changed value by value below: another round to prepare is a good request.
    inside = frame.kind == "round" or (blobs and data.draw(st.booleans()))
    low = len(whole) - blobs if inside else 0
    at = data.draw(st.integers(low, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    answered(world, bytes(whole[: data.draw(st.integers(at, len(whole)))]))
    ledger = world.folders[0] / "ledger.sqlite"
    with Ledger.open(ledger, read_only=True) as opened:
        assert not opened.list_entries()


def leaves(value, path=()):
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], (*path, key))


def changed(data, head, *within):
    """The head with another value at one place, within some keys or anywhere; None: the same."""
    head = json.loads(json.dumps(head))
    path = data.draw(st.sampled_from([p for p in leaves(head) if p and p[0] in (within or head)]))
    place = head
    for key in path[:-1]:
        place = place[key]
    before, place[path[-1]] = place[path[-1]], data.draw(VALUES)
    return None if place[path[-1]] == before else head


@SETTINGS
@given(data=st.data())
def test_a_request_with_a_value_changed_is_answered_by_a_class(recorded, data):
    world, requests = recorded
    frame = data.draw(st.sampled_from([r for r in requests if r.kind != "round"]))
    if (head := changed(data, dict(frame.head))) is not None:
        reply = answered(world, encode_frame(replace(frame, head=head)))
        assert reply.head.get("reason") != "error"


@SETTINGS
@given(data=st.data())
def test_a_round_with_a_value_changed_is_never_computed(recorded, data):
    world, requests = recorded
    (frame,) = [r for r in requests if r.kind == "round"]
    if (head := changed(data, dict(frame.head), "plan")) is not None:
        reply = answered(world, encode_frame(replace(frame, head=head)))
        assert reply.head["reason"] in ("protocol", "plan-changed", "wrong-run")


def test_a_request_replayed_is_refused_or_gets_the_same_bytes(tmp_path, wired):
    world = wired.World(tmp_path)
    world.join()
    requests = world.round_requests(1, prepare=2)
    first = world.raw(0, encode_frame(requests[0]))
    assert first.head["status"] == "ok"
    assert world.raw(0, encode_frame(requests[0])) == first
    assert wired.reason(world.ask(0, "join", **world.join_head())) == "protocol"
    reply = world.ask(0, "roster", [bytes(60), b""], session=world.session, prepare=1)
    assert wired.reason(reply) == "protocol"
    reply = world.ask(0, "confirmations", [bytes(60)], session=world.session)
    assert wired.reason(reply) == "protocol"
    reply = world.ask(0, "prepare", session=world.session, prepare=10**6)
    assert wired.reason(reply) == "protocol"


@pytest.fixture(scope="module")
def network(tmp_path_factory, wired):
    return wired.World(tmp_path_factory.mktemp("network"), overrides=NETWORK, reopen=False)


@settings(SETTINGS, max_examples=80)
@given(data=st.data())
def test_a_network_with_a_value_changed_is_answered_by_a_class(network, data):
    head = {"version": WIRE_VERSION, **network.join_head()}
    if (head := changed(data, head, "task", "plan")) is not None:
        reply = answered(network, encode_frame(MessageFrame(kind="join", head=head, blobs=(b"",))))
        assert reply.head.get("reason") != "error"


THETA = np.zeros(5)
STATES = {
    "not finite": save({"theta": np.array([0, 0, np.nan, 0, 0])}),
    "another shape": save({"theta": np.zeros((5, 1))}),
    "single precision": save({"theta": np.zeros(5, np.float32)}),
    "an unknown name": save({"theta": THETA, "more": THETA}),
    "no theta": save({"velocity": THETA}),
    "too many bytes": save({"theta": THETA, "more": np.zeros(10**5)}),
    "no safetensors": b"\xff" * 64,
    "nothing": b"",
    "cut short": save({"theta": THETA})[:-8],
}


@pytest.mark.parametrize("bad", STATES)
def test_a_model_that_is_not_one_is_refused_before_anything_is_charged(recorded, bad):
    world, requests = recorded
    plan = world.plan.with_round(1)
    (message,) = [frame.blobs[0] for frame in requests if frame.kind == "round"]
    reply = world.ask(
        0,
        "round",
        [message, STATES[bad], b""],
        session=world.session,
        plan=plan.to_json(),
        prepare=2,
    )
    assert reply.head["reason"] == "protocol"
    log = (world.folders[0] / "party.log").read_text().splitlines()[-1]
    assert "theta" in log or "safetensors" in log or "state" in log
    with Ledger.open(world.folders[0] / "ledger.sqlite", read_only=True) as ledger:
        assert not ledger.list_entries()
