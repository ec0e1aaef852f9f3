"""Parties' replies out of Flower's object store, by a strict reading of ours.

Flower keeps a reply as a tree of objects, each `TYPE CHILD,CHILD LENGTH` ‖ 0x00 ‖ body. Its own
reading of them trusts whoever pushed them: arrays are numpy files, a list of chunks may name one
chunk a million times, and sender and recipient are what the reply itself says. So a reply is read
here, as the only thing that a party has to send (`parley.client.app.frame_content`): a Message with
a RecordDict of ConfigRecords that hold a frame in parts. Sender and recipient are those that the
SuperLink checked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import httpx
from flwr.app import Message
from flwr.app.message import make_message
from flwr.common.serde import message_from_proto
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.recorddict_pb2 import ConfigRecord as ConfigProto
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import pull_objects
from flwr.superlink.grid.http_grid import HttpGrid

from parley.client.app import frame_content
from parley.client.contract.carrier import LARGEST_FRAME, CarrierError, check_names, join
from parley.client.contract.decoding import value_from
from parley.client.contract.protocol import strict_json

_log = logging.getLogger("parley.server")

MOST_OBJECTS = LARGEST_FRAME // (1 << 22) + 8
"""Objects of the largest reply: its parts, the records' names, the message."""

# As many as can dawdle at once before anybody waits for them; how long an upload may take.
_READERS, _UPLOAD_S, _GLANCE_S = 64, 120.0, 0.05
_LONGEST_HEAD, _LONGEST_NAMES, _DEEPEST, _MOST_FIELDS = 1 << 15, 1 << 16, 3, 8


class ReplyGrid(HttpGrid):
    """Flower's Grid, except that a reply is read by `read_reply`, beside the others.

    A reply is announced before its objects are there: whoever announces one and pushes nothing
    keeps a thread waiting, and nobody else.
    """

    _readers: ThreadPoolExecutor | None = None

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """What has come in answer to these messages; what cannot be read comes without a frame."""
        if self._readers is None:
            self._readers = ThreadPoolExecutor(max_workers=_READERS)
            self._reading: dict[Future[Message], tuple[MessageProto, ObjectTree]] = {}
        # Announced again until it is read: once is enough.
        known = {proto.metadata.reply_to_message_id for proto, _ in self._reading.values()}
        asked = PullAppMessagesRequest(message_ids=set(message_ids) - known)
        found = self._runtime_client.PullMessages(asked)
        for proto, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            self._reading[self._readers.submit(self._read, proto, tree)] = proto, tree
        done, _ = wait(self._reading, timeout=_GLANCE_S, return_when=FIRST_COMPLETED)
        replies = []
        for each in done:
            given = self._reading.pop(each)
            error = each.exception()
            if isinstance(error, httpx.TransportError):
                # The SuperLink is restarting: what it has announced is still there.
                self._reading[self._readers.submit(self._read, *given)] = given
            elif error is not None:
                raise error
            else:
                replies.append(each.result())
        return replies

    def close(self) -> None:
        """Disconnects; whatever is still being read is nobody's."""
        if self._readers is not None:
            self._readers.shutdown(wait=False, cancel_futures=True)
        super().close()

    def _read(self, proto: MessageProto, tree: ObjectTree) -> Message:
        try:
            frame = read_reply(tree.object_id, self._objects(proto, tree))
        except httpx.HTTPError:
            raise
        except Exception as error:
            _log.warning("A reply cannot be read (%s).", _said(error))
            frame = b""
        # Sender and recipient are the SuperLink's, which checked them, not the reply's own.
        return make_message(message_from_proto(proto).metadata, content=frame_content(frame))

    def _objects(self, proto: MessageProto, tree: ObjectTree) -> dict[str, bytes]:
        run = self.run.run_id
        pull = make_pull_object_fn_protobuf(self._runtime_client.PullObject, self.node, run)
        objects = pull_objects(object_ids(tree), pull, max_time=_UPLOAD_S)
        self._runtime_client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(
                node=self.node, run_id=run, message_object_id=proto.metadata.message_id
            )
        )
        return objects


def _said(error: Exception) -> str:
    # Our own messages carry nothing that a peer sent; others' do.
    return str(error) if isinstance(error, CarrierError) else type(error).__name__


def object_ids(tree: ObjectTree) -> list[str]:
    """The objects of a reply, each once.

    Raises:
        CarrierError: more, or deeper, than those of the largest frame.
    """
    found: dict[str, None] = {}
    level = [tree]
    for _ in range(_DEEPEST):
        found |= dict.fromkeys(node.object_id for node in level)
        level = [child for node in level for child in node.children]
        if len(found) > MOST_OBJECTS or len(level) > MOST_OBJECTS:
            raise CarrierError(f"Expected at most {MOST_OBJECTS} objects, got more.")
    if level:
        raise CarrierError(f"Expected objects {_DEEPEST} deep, got deeper ones.")
    return list(found)


def read_reply(message: str, objects: Mapping[str, bytes]) -> bytes:
    """The frame in a reply.

    Args:
        message: the id of the reply's message.
        objects: by their ids.

    Raises:
        CarrierError: anything but a frame as `parley.client.app.frame_content` packs it.
    """
    (content,), _ = _object(objects, message, "Message", children=1)
    children, body = _object(objects, content, "RecordDict")
    names = _names(body, set(children))
    fields = [_fields(objects, names[name]) for name in check_names(names)]
    if not fields:
        raise CarrierError("Expected a frame in a reply, got none.")
    return join(fields[0].get("length"), [each.get("bytes") for each in fields])


def _object(
    objects: Mapping[str, bytes], name: str, kind: str, *, children: int | None = None
) -> tuple[list[str], bytes]:
    """An object's children and its body."""
    content = objects.get(name)
    if content is None:
        raise CarrierError("Expected every object of a reply, got one less.")
    end = content.find(b"\x00", 0, _LONGEST_HEAD)
    # Three fields and no more: `split` gives no empty list.
    head = content[: max(end, 0)].split(b" ")
    if end < 0 or len(head) != 3 or head[0] != kind.encode():
        raise CarrierError(f"Expected an object of kind {kind}, got {head[0][:16]!a}.")
    body = content[end + 1 :]
    if head[2] != b"%d" % len(body):
        raise CarrierError(f"Expected a {kind} as long as it says, got {len(body)} bytes.")
    named = head[1].decode("ascii", "replace").split(",") if head[1] else []
    if children is not None and len(named) != children:
        raise CarrierError(f"Expected {children} children of a {kind}, got {len(named)}.")
    return named, body


def _names(body: bytes, children: set[str]) -> dict[str, str]:
    """The records of a RecordDict, by name."""
    if len(body) > _LONGEST_NAMES:
        raise CarrierError(f"Expected at most {_LONGEST_NAMES} bytes of names, got {len(body)}.")
    try:
        names: dict[str, str] = value_from(Mapping[str, str], strict_json(body), "names")
    except ValueError as error:
        raise CarrierError(str(error)) from None
    if not set(names.values()) <= children:
        raise CarrierError("Expected the records that belong to the reply, got others.")
    return names


def _fields(objects: Mapping[str, bytes], name: str) -> dict[str, object]:
    """`length` and `bytes` of a record, where they are an integer and bytes."""
    _, body = _object(objects, name, "ConfigRecord", children=0)
    proto = ConfigProto()
    try:
        proto.ParseFromString(body)
    except Exception as error:  # google's DecodeError is only one of what it may raise
        raise CarrierError("Expected a record, got something else.") from error
    found: dict[str, object] = {}
    if len(proto.items) > _MOST_FIELDS:
        raise CarrierError(f"Expected at most {_MOST_FIELDS} fields of a record, got more.")
    for item in proto.items:
        kind = item.value.WhichOneof("value")
        if item.key == "length" and kind == "sint64":
            found["length"] = int(item.value.sint64)
        elif item.key == "bytes" and kind == "bytes":
            found["bytes"] = bytes(item.value.bytes)
    return found
