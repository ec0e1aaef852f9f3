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
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

__all__ = ["answer", "app", "failed", "party_folder", "read_request", "reply_content"]

_log = logging.getLogger("parley.party")

app = ClientApp()


def answer(request: bytes, folder: Path) -> bytes:
    """What the party whose folder it is answers; a bug of ours becomes a bare `failed`."""
    try:
        from client.service import PartyService

        return PartyService.open(folder).handle(request)
    except Exception:
        # To the party's own log, and no further.
        _log.exception("A request could not be answered.")
        return failed()


def failed() -> bytes:
    """The answer of a party that computed nothing it may release, for a reason it keeps."""
    from client.wire import Frame, encode_frame

    head = {"version": 1, "status": "failed", "reason": "error"}
    return encode_frame(Frame(kind="answer", head=head, blobs=()))


def read_request(message: Message) -> tuple[bytes, float]:
    """The request in a message, and the seconds within which its sender wants an answer."""
    config = message.content["call"]
    if not isinstance(config, ConfigRecord):
        raise TypeError("Expected a ConfigRecord named call.")
    record = message.content["frame"]
    if not isinstance(record, ArrayRecord):
        raise TypeError("Expected an ArrayRecord named frame.")
    return record["bytes"].numpy().tobytes(), float(str(config["timeout"]))


def reply_content(frame: bytes) -> RecordDict:
    """A frame as the content of a message."""
    array = Array(np.frombuffer(frame, dtype=np.uint8))
    return RecordDict({"frame": ArrayRecord({"bytes": array})})


def party_folder(message: Message, context: Context) -> Path:
    """The party's folder: its owner's word, in a simulation the message's."""
    owned = context.node_config.get("party")
    if owned is not None:
        return Path(str(owned))
    config = message.content["call"]
    if not isinstance(config, ConfigRecord):
        raise TypeError("Expected a ConfigRecord named call.")
    partition = int(str(context.node_config["partition-id"]))
    return Path(str(config["folder"])) / f"party-{partition}"


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
        request, timeout_s = read_request(message)
        folder = party_folder(message, context)
        # A daemon: one that hangs is left behind, and does not keep the process alive.
        worker = threading.Thread(target=work, args=(request, folder), daemon=True)
        worker.start()
        worker.join(timeout_s)
    except Exception:
        _log.exception("A message could not be read.")
    return Message(reply_content(frame[0] if frame else failed()), reply_to=message)
