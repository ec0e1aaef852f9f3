"""Who reaches a SuperLink, by which door, and what is read of whom."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree
from flwr.proto.node_pb2 import Node

from parley.client.contract.roster import RosterParty, new_deployment
from parley.deploy.flower.gate import HELLO, Desk, Gate
from parley.deploy.node_keys import make_node_key, node_key

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONTROL = [
    f"/v1/control/{call}"
    for call in (
        "list-nodes",
        "list-runs",
        "start-run",
        "stop-run",
        "unregister-node",
        "stream-logs",
    )
]


class Flower:
    """The app behind the doors: what reached it."""

    def __init__(self):
        self.heard = []

    async def __call__(self, scope, receive, send):
        body = (await receive())["body"] if scope["type"] == "http" else b""
        self.heard.append((scope.get("path"), body))
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})


class World:
    def __init__(self, folder):
        self.keys, parties = {}, []
        for index, name in enumerate(("north", "south", "stranger")):
            line = make_node_key(folder / name, comment=name)
            private = serialization.load_ssh_private_key((folder / name).read_bytes(), None)
            self.keys[name] = private, node_key(line)
            if name != "stranger":
                parties.append(RosterParty(name=name, identity=bytes([index]) * 32, node=line))
        self.deployment = new_deployment(server_address="", parties=parties)
        self.flower = Flower()
        self.gate = Gate(self.flower, self.deployment, clock=NOW.timestamp)

    def signed(self, name, *, at=NOW, public=None):
        private, own = self.keys[name]
        stamp = at.isoformat()
        signature = private.sign(stamp.encode(), ec.ECDSA(hashes.SHA256()))
        return [
            (b"flwr-public-key", base64.b64encode(public or own)),
            (b"flwr-timestamp", stamp.encode()),
            (b"flwr-signature", base64.b64encode(signature)),
        ]

    def ask(self, path, headers=(), body=b"", *, door=None, method="POST", pieces=None):
        """The status, the answer, and how many pieces of the body were read."""
        parts = [body] if pieces is None else pieces
        read, said = [], {}

        async def receive():
            read.append(len(read))
            more = len(read) < len(parts)
            return {"type": "http.request", "body": parts[len(read) - 1], "more_body": more}

        async def send(message):
            said.update(message)

        scope = {
            "type": "http",
            "path": path,
            "method": method,
            "headers": [*headers],
            "client": ("9.9.9.9", 1),
        }
        asyncio.run((door or self.gate)(scope, receive, send))
        return said["status"], said["body"], len(read)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return World(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def world(made):
    made.flower.heard.clear()
    return made


@pytest.mark.parametrize("path", [*CONTROL, "/v1/runtime/acquire-task", "/docs", "/health", "/"])
@pytest.mark.parametrize("who", ["nobody", "stranger", "north"])
def test_no_control_and_no_runtime_at_the_parties_door_for_whoever_knocks(world, path, who):
    headers = [] if who == "nobody" else world.signed(who)
    assert world.ask(path, headers, b"x") == (
        404,
        b'{"detail": "There is nothing for parties here."}',
        0,
    )
    assert world.flower.heard == []


@pytest.mark.parametrize("call", ["register-node", "unregister-node"])
def test_nobody_registers_or_unregisters_a_node_at_the_parties_door(world, call):
    assert world.ask(f"/v1/fleet/{call}", world.signed("north"))[0] == 404
    assert world.flower.heard == []


def test_a_party_of_the_roster_reaches_flower_with_its_body_unchanged(world):
    assert world.ask("/v1/fleet/pull-messages", world.signed("north"), b"abc")[0] == 200
    assert world.flower.heard == [("/v1/fleet/pull-messages", b"abc")]


UNKNOWN = {
    "no signature": lambda w: [],
    "a key of no roster": lambda w: w.signed("stranger"),
    "another's key with an own signature": lambda w: w.signed(
        "stranger", public=w.keys["north"][1]
    ),
    "an old signature": lambda w: w.signed("north", at=NOW - timedelta(minutes=6)),
    "a signature of tomorrow": lambda w: w.signed("north", at=NOW + timedelta(days=1)),
    "a key that is none": lambda w: [(b"flwr-public-key", b"!!"), *w.signed("north")[1:]],
    "a signature that is none": lambda w: [*w.signed("north")[:2], (b"flwr-signature", b"AAAA")],
    "a time that is none": lambda w: [(b"flwr-timestamp", b"nan"), *w.signed("north")[::2]],
    "two keys": lambda w: [*w.signed("north"), *w.signed("south")[:1]],
}


@pytest.mark.parametrize("how", UNKNOWN)
def test_nothing_of_a_body_is_read_for_whom_is_not_known(world, how):
    status, _, read = world.ask(
        "/v1/fleet/push-object", UNKNOWN[how](world), pieces=[bytes(1 << 20)] * 600
    )
    assert status in {400, 401}
    assert read == 0
    assert world.flower.heard == []


@pytest.mark.parametrize("said", [b"629145600", b"-1", b"1e3", b"9" * 30])
def test_a_long_body_is_refused_before_it_is_read_even_of_a_party(world, said):
    headers = [*world.signed("north"), (b"content-length", said)]
    status, _, read = world.ask("/v1/fleet/push-object", headers, pieces=[bytes(1 << 20)] * 600)
    assert (status, read) == (413, 0)


def test_a_body_without_a_length_is_read_up_to_the_limit(world):
    status, _, read = world.ask(
        "/v1/fleet/push-object", world.signed("north"), pieces=[bytes(1 << 20)] * 600
    )
    assert status == 413
    assert read < 8
    assert world.flower.heard == []


def push(**change):
    own = {"src_node_id": 7, "dst_node_id": 1, "reply_to_message_id": "m", "message_id": "r"}
    return PushMessagesRequest(
        node=Node(node_id=7),
        messages_list=[Message(metadata=Metadata(**(own | change)))],
        message_object_trees=[ObjectTree(object_id="r")],
    )


def test_a_reply_is_pushed_in_the_partys_own_name_and_to_the_server_alone(world):
    path = "/v1/fleet/push-messages"
    assert world.ask(path, world.signed("north"), push().SerializeToString())[0] == 200
    forged = [
        push(src_node_id=8),  # in another party's name
        push(dst_node_id=8),  # to another party
        push(reply_to_message_id=""),  # a request, as if of the server
    ]
    for request in forged:
        assert world.ask(path, world.signed("north"), request.SerializeToString())[0] == 403
    two = push()
    two.messages_list.append(push(src_node_id=8).messages_list[0])
    assert world.ask(path, world.signed("north"), two.SerializeToString())[0] == 400
    assert world.ask(path, world.signed("north"), b"\xff" * 30)[0] == 400
    assert len(world.flower.heard) == 1


def test_a_party_asks_whether_its_key_is_known_and_hears_whose_it_is(world):
    status, body, _ = world.ask(HELLO, world.signed("south"), method="GET")
    said = json.loads(body)
    assert (status, said) == (200, {"party": "south", "deployment": world.deployment.id})
    assert world.ask(HELLO, world.signed("stranger"), method="GET")[0] == 401
    assert world.flower.heard == []


def test_the_desk_opens_to_the_secret_alone_and_only_for_this_machines_calls(world):
    desk = Desk(world.flower, secret="ab" * 32)
    right = [(b"parley-control", b"ab" * 32)]
    for headers in ([], [(b"parley-control", b"")], [(b"parley-control", b"ac" * 32)]):
        for path in CONTROL:
            assert world.ask(path, headers, door=desk)[0] == 401
    for path in ("/v1/fleet/push-object", "/docs", "/v2/control/list-runs"):
        assert world.ask(path, right, door=desk)[0] == 404
    assert world.flower.heard == []
    assert world.ask(CONTROL[0], right, door=desk)[0] == 200
    assert world.ask("/v1/runtime/acquire-task", door=desk)[0] == 200


def attack(world, requests, seed):
    """So many requests with mutated paths, headers and bodies: answered, and none let through."""
    rng = random.Random(seed)
    good = world.signed("north")
    whole = push(src_node_id=8).SerializeToString()
    paths = ["/v1/fleet/push-messages", "/v1/fleet/push-messages/", HELLO + "/", *CONTROL]
    statuses = set()
    for _ in range(requests):
        headers = [list(pair) for pair in good]
        for _ in range(rng.randrange(3)):
            pair = rng.choice(headers)
            value = bytearray(pair[1])
            at = rng.randrange(len(value))
            value[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
            pair[1] = bytes(value)
        body = bytearray(whole)
        for _ in range(rng.randrange(3)):
            body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
        path = rng.choice(paths)
        # The one that a flipped bit gives its own name back is no attack.
        given = PushMessagesRequest()
        try:
            given.ParseFromString(bytes(body))
            own = given.messages_list[0].metadata.src_node_id == given.node.node_id
        except Exception:
            own = False
        status, _, _ = world.ask(path, [tuple(pair) for pair in headers], bytes(body))
        assert status in {400, 401, 403, 404, 405, 413} or own
        statuses.add(status)
    return statuses


def test_mutated_requests_are_answered_and_reach_nothing(world):
    assert attack(world, 1_500, seed=1) >= {400, 401, 403, 404}


@pytest.mark.heavy
def test_a_hundred_thousand_mutated_requests_are_answered_and_reach_nothing(world):
    assert attack(world, 100_000, seed=2) >= {400, 401, 403, 404}


def test_an_unregistered_party_of_the_roster_is_admitted_again_and_others_are_shut_out(
    world, tmp_path
):
    from flwr.server.superlink.linkstate import LinkStateFactory
    from flwr.supercore.object_store import ObjectStoreFactory
    from flwr.superlink.federation.noop_federation_manager import NoOpFederationManager

    from parley.deploy.flower.superlink_process import admit

    database = str(tmp_path / "state.db")
    factory = LinkStateFactory(database, NoOpFederationManager(), ObjectStoreFactory(database))
    state = factory.state()
    north, south, stranger = (world.keys[name][1] for name in ("north", "south", "stranger"))
    own = "<id:none>"
    state.create_node(own, "none", stranger, 0)
    admit(state, world.deployment)
    first = state.get_node_id_by_public_key(north)
    assert state.get_node_id_by_public_key(stranger) is None
    assert state.activate_node(first, 30)
    state.delete_node(own, first)
    assert state.get_node_id_by_public_key(north) is None
    with pytest.raises(ValueError, match="already in use"):  # what Flower itself would do
        state.create_node(own, "none", north, 0)
    for _ in range(2):
        admit(state, world.deployment)
        assert state.get_node_id_by_public_key(north) == first
        assert state.get_node_id_by_public_key(south) is not None
    assert state.activate_node(first, 30)
