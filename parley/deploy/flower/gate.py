"""The two doors of a SuperLink: parties' by roster key, the operator's on this machine by secret.

Flower's SuperLink answers whoever reaches its port: it lists nodes and runs, starts and stops runs,
and reads a whole body before it looks at a signature. So it gets no port. `Gate` is what
listens for parties: of Flower's routes those that a party needs, to keys of the roster alone, and a
body is only read, up to a limit, once its sender's key and signature are known. `Desk` listens on
127.0.0.1 for the operator's commands and for the server's own executor: the Control API wants a
secret that lies in the server's folder, the Runtime API has its own tokens.

Both are plain ASGI around Flower's app, and hand on what they let through unchanged.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any

from flwr.common.constant import SUPERLINK_NODE_ID, TIMESTAMP_HEADER
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER

from parley.client.contract.roster import Deployment
from parley.deploy.node_keys import node_key, signs_as_node

_log = logging.getLogger("parley.gate")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CONTROL_HEADER = "parley-control"
"""Header with the secret that lets a command of this machine use the Control API."""

HELLO = "/parley/hello"
"""Where a party asks whether its key is known."""

_SMALL, _TREE, _OBJECT = 1 << 16, 1 << 20, (1 << 22) + (1 << 17)
_ROUTES = {
    "/v1/fleet/activate-node": _SMALL,
    "/v1/fleet/deactivate-node": _SMALL,
    "/v1/fleet/send-node-heartbeat": _SMALL,
    "/v1/fleet/pull-messages": _SMALL,
    "/v1/fleet/push-messages": _TREE,
    "/v1/fleet/push-object": _OBJECT,
    "/v1/fleet/pull-object": _SMALL,
    "/v1/fleet/confirm-message-received": _SMALL,
    "/v1/fleet/get-run": _SMALL,
    "/v1/fleet/get-fab": _SMALL,
    HELLO: 0,
}
"""What a party may ask for, and the bytes of its longest body."""

_SKEW_S = 300.0
_BODY_S = 60.0
_LOG_EVERY_S = 10.0
_LONGEST_HEADER = 1024


class Refused(Exception):
    """What is not let through: a status of HTTP, and what its sender is told."""

    def __init__(self, status: int, said: str) -> None:
        self.status = status
        super().__init__(said)


class Gate:
    """Lets parties of a deployment through to a SuperLink, and nobody else."""

    def __init__(
        self, app: App, deployment: Deployment, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._app, self._clock, self._id = app, clock, deployment.id
        self._keys = {
            node_key(party.node): (party.name, party.node) for party in deployment.parties
        }
        self._said = -_LOG_EVERY_S

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return  # no lifespan, no socket: nobody asked for one
        try:
            # In this order: nothing of a body is read for whom is not known.
            path = str(scope["path"])
            limit = _ROUTES.get(path)
            if limit is None:
                raise Refused(404, "There is nothing for parties here.")
            headers = _headers(scope)
            name = self._party(headers)
            body = await _body(headers, receive, limit)
            if path == "/v1/fleet/push-messages":
                _check_reply(body)
        except Refused as refused:
            self._note(refused, scope)
            await _answer(send, refused.status, {"detail": str(refused)})
            return
        if path == HELLO:
            await _answer(send, 200, {"party": name, "deployment": self._id})
        else:
            await self._app(scope, _replay(body, receive), send)

    def _party(self, headers: Mapping[bytes, bytes]) -> str:
        """Whose signature it is."""
        try:
            key = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER.encode()], validate=True)
            signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER.encode()], validate=True)
            stamp = headers[TIMESTAMP_HEADER.encode()]
            signed = datetime.fromisoformat(stamp.decode("ascii"))
        except (KeyError, ValueError) as error:
            raise Refused(401, "Expected a party's signature, got none.") from error
        if key not in self._keys:
            raise Refused(401, "Expected a key of the deployment's roster, got an unknown one.")
        name, line = self._keys[key]
        if not signs_as_node(line, signature, stamp):
            raise Refused(401, "Expected the signature of that key, got one that does not verify.")
        zone = signed if signed.tzinfo else signed.replace(tzinfo=UTC)
        if not abs(self._clock() - zone.timestamp()) < _SKEW_S:
            raise Refused(401, f"Expected a clock within {_SKEW_S:.0f} s of the server's.")
        return name

    def _note(self, refused: Refused, scope: Scope) -> None:
        # One line now and then: strangers must not fill the disk.
        now = time.monotonic()
        if now - self._said >= _LOG_EVERY_S:
            self._said = now
            who = (scope.get("client") or ("?",))[0]
            _log.warning("Refused a request from %s: %s", who, refused)


class Desk:
    """The SuperLink for this machine: Control by a secret, Runtime by its own tokens."""

    def __init__(self, app: App, *, secret: str) -> None:
        self._app, self._secret = app, secret.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, or hands on the server's start and end."""
        if scope["type"] == "http":
            path = str(scope["path"])
            if path.startswith("/v1/control/"):
                given = dict(scope["headers"]).get(CONTROL_HEADER.encode(), b"")
                if not hmac.compare_digest(given, self._secret):
                    said = "Expected the secret of the server's folder."
                    await _answer(send, 401, {"detail": said})
                    return
            elif not path.startswith("/v1/runtime/"):
                await _answer(send, 404, {"detail": "There is nothing here."})
                return
        elif scope["type"] != "lifespan":
            return
        await self._app(scope, receive, send)


def _headers(scope: Scope) -> dict[bytes, bytes]:
    """The headers, each once."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in found or len(value) > _LONGEST_HEADER:
            raise Refused(400, "Expected every header once, and short.")
        found[name] = value
    if scope["method"] not in {"POST", "GET"}:
        raise Refused(405, "Expected POST.")
    return found


async def _body(headers: Mapping[bytes, bytes], receive: Receive, limit: int) -> bytes:
    """The whole body."""
    said = headers.get(b"content-length", b"0")
    if not said.isdigit() or len(said) > 12 or int(said) > limit:
        raise Refused(413, f"Expected a body of at most {limit} bytes.")
    parts, size = [], 0
    try:
        async with asyncio.timeout(_BODY_S):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise Refused(400, "Expected a whole body.")
                part = message.get("body", b"")
                size += len(part)
                if size > limit:
                    raise Refused(413, f"Expected a body of at most {limit} bytes.")
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError as error:
        raise Refused(408, f"Expected a whole body within {_BODY_S:.0f} s.") from error


def _check_reply(body: bytes) -> None:
    """That what is pushed is one reply, in its sender's own name, to the server."""
    request = PushMessagesRequest()
    try:
        request.ParseFromString(body)
    except Exception as error:  # google's DecodeError is only one of what it may raise
        raise Refused(400, "Expected a reply, got something else.") from error
    if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
        raise Refused(400, "Expected one reply at a time.")
    metadata = request.messages_list[0].metadata
    # Flower checks that `node` is whose key signed, not that the reply is that node's.
    own = metadata.src_node_id == request.node.node_id
    if not own or metadata.dst_node_id != SUPERLINK_NODE_ID or not metadata.reply_to_message_id:
        raise Refused(403, "Expected a reply to the server in the party's own name.")


def _replay(body: bytes, receive: Receive) -> Receive:
    """A body that was read, for the app to read again."""
    left = [body]

    async def again() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return again


async def _answer(send: Send, status: int, content: Mapping[str, str]) -> None:
    body = json.dumps(dict(content), allow_nan=False).encode()
    # Closed: what else the sender has to say is not read.
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
