"""The party as a Flower ClientApp: a request's bytes in, an answer's bytes out.

All that a party does is `client.service`; this file only carries it through Flower, and keeps
three promises that Flower doesn't: a handler always returns a message (anything else wedges a
SuperNode), nothing of an exception's text leaves the party, and a handler that hangs is given up
when the request's own deadline passes.

Where the party's folder is, its owner says (`party` in the SuperNode's configuration). Only a
simulation, whose nodes have no owner, takes it from the message.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

__all__ = ["Call", "app", "failed", "frame_content", "frame_of", "read_call"]

_log = logging.getLogger("parley.party")

_SHORT = 256 * 1024

app = ClientApp()


def answer(request: bytes, folder: Path) -> bytes:
    """What the party whose folder it is answers; a bug of ours becomes a bare refusal."""
    try:
        from client.service import PartyService

        return PartyService.open(folder).handle(request)
    except Exception:
        # To the party's own log, and no further.
        _log.exception("A request could not be answered.")
        return failed()


def failed() -> bytes:
    """The answer of a party that could not handle a request, for a reason it keeps: a dropout.

    It is not the status `failed`, which is for a computation that gave nothing releasable, and
    ends the release.
    """
    from client.wire import Reason, encode_frame, refusal

    return encode_frame(refusal(Reason.ERROR))


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a message asks: the request, by when, and in a simulation where the parties are."""

    request: bytes
    timeout_s: float
    folder: str


def read_call(message: Message) -> Call:
    """The call in a message.

    Raises:
        KeyError, TypeError, ValueError: it holds no such thing.
    """
    config = message.content.config_records["call"]
    request = frame_of(message.content)
    if request is None:
        raise ValueError("Expected a frame, got none.")
    return Call(
        request=request,
        timeout_s=float(str(config["timeout"])),
        folder=str(config.get("folder", "")),
    )


def frame_content(frame: bytes, **call: float | str) -> RecordDict:
    """A frame as the content of a message, with what else the call says.

    Every record is several requests to Flower, so a short frame goes into the one that is there
    anyhow; a long one is an array, which Flower carries four times as fast.
    """
    if len(frame) <= _SHORT:
        return RecordDict({"call": ConfigRecord({**call, "frame": frame})})
    array = Array(np.frombuffer(frame, dtype=np.uint8))
    return RecordDict({"call": ConfigRecord(dict(call)), "frame": ArrayRecord({"bytes": array})})


def frame_of(content: RecordDict) -> bytes | None:
    """The frame in a message's content, None where it holds no such thing."""
    config = content.config_records.get("call")
    short = None if config is None else config.get("frame")
    if isinstance(short, bytes):
        return short
    record = content.array_records.get("frame")
    if record is None or "bytes" not in record:
        return None
    try:
        array = record["bytes"].numpy()
    except (ValueError, TypeError, OSError, EOFError):
        return None
    return array.tobytes() if array.dtype == np.uint8 and array.ndim == 1 else None


def party_folder(call: Call, context: Context) -> Path:
    """The party's folder: its owner's word, in a simulation the message's."""
    owned = context.node_config.get("party")
    if owned is not None:
        return Path(str(owned))
    return Path(call.folder) / f"party-{int(str(context.node_config['partition-id']))}"


@app.query("partition")
def partition(message: Message, context: Context) -> Message:
    """Which of a simulation's parties this node is."""
    index = int(str(context.node_config.get("partition-id", -1)))
    return Message(RecordDict({"party": ConfigRecord({"index": index})}), reply_to=message)


@app.query("parley")
def serve(message: Message, context: Context) -> Message:
    """Answers one request, within its deadline."""
    frame: list[bytes] = []

    def work(request: bytes, folder: Path) -> None:
        frame.append(answer(request, folder))

    try:
        call = read_call(message)
        folder = party_folder(call, context)
        # A daemon: one that hangs is left behind, and does not keep the process alive.
        worker = threading.Thread(target=work, args=(call.request, folder), daemon=True)
        worker.start()
        worker.join(call.timeout_s)
    except Exception:
        _log.exception("A message could not be read.")
    return Message(frame_content(frame[0] if frame else failed()), reply_to=message)
