"""What a party's bytes do to whoever reads them: a frame, or `CarrierError`, and nothing else."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from parley.client.app import frame_content, frame_of
from parley.client.contract.carrier import CarrierError
from parley.deploy.flower import replies
from parley.deploy.flower.replies import ReplyGrid, object_ids, read_reply

PART = 1 << 22


@pytest.fixture(autouse=True)
def identity():
    TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1


def packed(content):
    """A message as Flower keeps it: its id, and its objects by theirs."""
    message = Message(content, 7, "query.parley")
    objects = {name: each.deflate() for name, each in get_all_nested_objects(message).items()}
    return message.object_id, objects, get_object_tree(message)


@pytest.mark.parametrize("size", [0, 5, PART, 2 * PART + 1])
def test_a_frame_comes_back_from_flowers_objects(size):
    frame = random.Random(size).randbytes(size)
    name, objects, tree = packed(frame_content(frame, timeout=3.0))
    assert set(object_ids(tree)) == set(objects)
    assert read_reply(name, objects) == frame == frame_of(frame_content(frame))


def test_equal_parts_are_one_object_and_still_the_whole_frame():
    name, objects, _ = packed(frame_content(bytes(3 * PART)))
    assert len(objects) < 5
    assert read_reply(name, objects) == bytes(3 * PART)


def npy(header):
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


HOSTILE = {
    "an npy header that Python cannot tokenise": npy(b"{'descr': '<u1', 'shape': ((((((("),
    "an npy header of 200 terabytes": npy(
        b"{'descr': '|u1', 'fortran_order': False, 'shape': (200000000000000,), }"
    ),
    "a zip that is none": b"PK\x03\x04" + b"\0" * 190,
    "a pickle": b"\x80\x04\x95",
    "an empty array": b"",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_no_parser_of_arrays_ever_sees_a_peers_bytes(what, monkeypatch):
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("numpy parsed a peer's bytes"))
    array = Array("uint8", (4,), "numpy.ndarray", HOSTILE[what])
    for content in (
        RecordDict({"frame": ArrayRecord({"bytes": array})}),
        RecordDict({"call": ConfigRecord({}), "frame": ArrayRecord({"bytes": array})}),
        RecordDict({"call": ArrayRecord({"bytes": array})}),
    ):
        name, objects, _ = packed(content)
        with pytest.raises(CarrierError):
            read_reply(name, objects)
        with pytest.raises(CarrierError):
            frame_of(content)


WRONG = {
    "no records": RecordDict(),
    "a record that is none": RecordDict({"call": MetricRecord({"length": 1})}),
    "no length": RecordDict({"call": ConfigRecord({"bytes": b"x"})}),
    "a length that is true": RecordDict({"call": ConfigRecord({"length": True, "bytes": b"x"})}),
    "a negative length": RecordDict({"call": ConfigRecord({"length": -1, "bytes": b""})}),
    "a huge length": RecordDict({"call": ConfigRecord({"length": 2**62, "bytes": b"x"})}),
    "a longer part": RecordDict({"call": ConfigRecord({"length": 1, "bytes": b"xy"})}),
    "text for bytes": RecordDict({"call": ConfigRecord({"length": 1, "bytes": "x"})}),
    "a part too many": RecordDict(
        {"call": ConfigRecord({"length": 1, "bytes": b"x"}), "part-1": ConfigRecord({"bytes": b""})}
    ),
    "a part of another name": RecordDict(
        {"call": ConfigRecord({"length": 1, "bytes": b"x"}), "part-2": ConfigRecord({"bytes": b""})}
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_frame_is_refused_by_both_readers(what):
    name, objects, _ = packed(WRONG[what])
    with pytest.raises(CarrierError):
        read_reply(name, objects)
    with pytest.raises(CarrierError):
        frame_of(WRONG[what])


def test_one_part_that_is_named_a_thousand_times_costs_no_memory():
    name, objects, _ = packed(frame_content(bytes(PART + 1)))
    many = {"call": ""} | {f"part-{index}": "" for index in range(1, 1000)}
    content = RecordDict({key: ConfigRecord({"length": 10**9, "bytes": b"x"}) for key in many})
    _, thousand, _ = packed(content)
    with pytest.raises(CarrierError):
        read_reply(next(k for k, v in thousand.items() if v.startswith(b"Message")), thousand)
    assert read_reply(name, objects) == bytes(PART + 1)


def test_a_tree_of_objects_is_bounded_in_depth_and_in_width():
    deep = ObjectTree(object_id="a", children=[ObjectTree(object_id="b")])
    for _ in range(3):
        deep = ObjectTree(object_id="c", children=[deep])
    wide = ObjectTree(
        object_id="a", children=[ObjectTree(object_id=str(index)) for index in range(10_000)]
    )
    for tree in (deep, wide):
        with pytest.raises(CarrierError):
            object_ids(tree)


def mutated(source, rng):
    """A copy with bytes changed, cut out, doubled or put in."""
    data = bytearray(source)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0 if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case 1:
                del data[at : at + rng.randint(1, 20)]
            case 2:
                data[at:at] = rng.randbytes(rng.randint(1, 12))
            case 3:
                data[at:at] = data[at : at + 40]
            case _:
                words = [b"\0", b" ", b",", b"{", b'"call"', b"[" * 3000, b"-1", b"1e999", b"\xff"]
                data[at:at] = rng.choice(words)
    return bytes(data)


def attack(messages, seed):
    """So many mutated replies; nothing but a frame or `CarrierError` may come of one."""
    rng = random.Random(seed)
    sources = [
        packed(frame_content(b"frame")),
        packed(frame_content(b"\0" * 40, timeout=3.0)),
        packed(RecordDict({"frame": ArrayRecord({"bytes": Array(np.ones(4, np.uint8))})})),
        packed(WRONG["a part too many"]),
    ]
    refused = 0
    for _ in range(messages):
        name, objects, _ = rng.choice(sources)
        victim = rng.choice(list(objects))
        try:
            frame = read_reply(name, objects | {victim: mutated(objects[victim], rng)})
        except CarrierError:
            refused += 1
        else:
            assert isinstance(frame, bytes)
    return refused


def test_mutated_replies_are_frames_or_refused():
    assert attack(20_000, seed=1) > 10_000


@pytest.mark.heavy
def test_a_hundred_thousand_mutated_replies_are_frames_or_refused():
    assert attack(150_000, seed=2) > 75_000


class Store:
    """A SuperLink's runtime as `ReplyGrid` asks it: replies by party, some never uploaded."""

    def __init__(self, contents, missing=(), fails=()):
        self.fails = list(fails)
        self.packed = [packed(content) for content in contents]
        self.objects = {}
        for index, (_, objects, _) in enumerate(self.packed):
            if index not in missing:
                self.objects |= objects
        self.announced = []

    def PullMessages(self, request):  # noqa: N802 - Flower's name
        from flwr.common.serde import message_to_proto

        protos, trees = [], []
        for index, (name, _, tree) in enumerate(self.packed):
            if f"m{index}" not in request.message_ids:
                continue
            trees.append(tree)
            self.announced.append(index)
            proto = message_to_proto(Message(RecordDict(), 1, "query.parley"))
            proto.metadata.message_id = name
            proto.metadata.src_node_id, proto.metadata.reply_to_message_id = index, f"m{index}"
            protos.append(proto)
        return SimpleNamespace(messages_list=protos, message_object_trees=trees)

    def PullObject(self, request):  # noqa: N802 - Flower's name
        if self.fails:
            raise self.fails.pop()
        content = self.objects.get(request.object_id)
        return SimpleNamespace(
            object_found=True, object_available=content is not None, object_content=content or b""
        )

    def ConfirmMessageReceived(self, _request):  # noqa: N802 - Flower's name
        return None

    def close(self):
        return None


def replies_of(store, seconds=5.0, count=1):
    grid = ReplyGrid("127.0.0.1:1", True, token="t")
    grid._client = store
    grid.set_run(Run.create_empty(1))
    found, until = {}, time.monotonic() + seconds
    try:
        while len(found) < count and time.monotonic() < until:
            pending = [f"m{i}" for i in range(len(store.packed)) if f"m{i}" not in found]
            try:
                for message in grid.pull_messages(pending):
                    found[message.metadata.reply_to_message_id] = message
            except httpx.TransportError:
                continue
    finally:
        grid.close()
    return found


def test_one_partys_unreadable_reply_costs_no_other_its_own(caplog):
    hostile = RecordDict({"frame": ArrayRecord({"bytes": Array(np.ones(4))})})
    found = replies_of(Store([frame_content(b"a"), hostile, frame_content(b"c")]), count=3)
    assert {name: frame_of(reply.content) for name, reply in found.items()} == {
        "m0": b"a",
        "m1": b"",
        "m2": b"c",
    }
    assert [found[f"m{i}"].metadata.src_node_id for i in range(3)] == [0, 1, 2]
    assert "cannot be read (Expected objects" in caplog.text


def test_a_reply_that_is_announced_and_never_sent_holds_nobody_up(monkeypatch):
    monkeypatch.setattr(replies, "_UPLOAD_S", 3.0)
    store = Store([frame_content(b"a"), frame_content(b"never sent")], missing={1})
    assert list(replies_of(store, seconds=2.0)) == ["m0"]
    assert store.announced == [0, 1]


def test_a_superlink_that_restarts_while_a_reply_is_read_loses_none():
    fails = [httpx.ConnectError("gone"), httpx.ConnectError("gone")]
    store = Store([frame_content(b"a")], fails=fails)
    assert frame_of(replies_of(store)["m0"].content) == b"a"
