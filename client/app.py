"""The party as a Flower ClientApp: a request's bytes in, an answer's bytes out.

All that a party does is `parley.client.party.party_service`; this file only carries it through
Flower, and keeps three promises that Flower doesn't: a handler always returns a message (anything
else wedges a SuperNode), nothing of an exception's text leaves the party, and a handler that hangs
is given up when the request's own deadline passes.

Where the party's folder is, its owner says (`party` in the SuperNode's configuration). Only a
simulation, whose nodes have no owner, takes it from the message.
"""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from parley.client.contract.framing import CarrierError, check_names, join, part_name, split
from parley.client.contract.party_protocol import Reason, encode_frame, refusal
from parley.client.contract.strict_decoding import as_came

_log = logging.getLogger("parley.party")

_LONGEST_S = 7 * 24 * 3600.0

app = ClientApp()


def answer(request: bytes, folder: Path) -> bytes:
    """What the party whose folder it is answers; a bug of ours becomes a bare refusal."""
    try:
        from parley.client.party.party_service import PartyService  # noqa: PLC0415 - start-up: Flower's server imports this file, too, and runs no party

        with closing(PartyService.open(folder)) as party:
            return party.handle(request)
    except Exception:
        # To the party's own log, and no further.
        _log.exception("A request could not be answered.")
        return failed()


def failed() -> bytes:
    """The answer of a party that could not handle a request, for a reason it keeps: a dropout."""
    return encode_frame(refusal(Reason.ERROR))


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a message asks: the request, by when, and in a simulation where the parties are."""

    request: bytes
    timeout_s: float
    folder: str


def read_call(message: Message) -> Call:
    """The call in a message."""
    request = frame_of(message.content)
    config = message.content.config_records["call"]
    timeout, folder = config.get("timeout"), config.get("folder", "")
    if not isinstance(timeout, float) or not 0 < timeout <= _LONGEST_S:
        raise CarrierError(
            f"Expected a timeout of at most {_LONGEST_S:.0f} s, got {as_came(timeout)}."
        )
    if not isinstance(folder, str):
        raise CarrierError("Expected a folder's name, got something else.")
    return Call(request=request, timeout_s=timeout, folder=folder)


def frame_content(frame: bytes, **call: float | str) -> RecordDict:
    """A frame as the content of a message, with what else the call says.

    Every record is several requests to Flower: a short frame is one record.
    """
    first, *others = split(frame)
    records = {"call": ConfigRecord({**call, "length": len(frame), "bytes": first})}
    for index, part in enumerate(others, start=1):
        records[part_name(index)] = ConfigRecord({"bytes": part})
    return RecordDict(dict(records))


def frame_of(content: RecordDict) -> bytes:
    """The frame in a message's content."""
    names = check_names(content)
    records = [content[name] for name in names]
    if not names or not all(isinstance(record, ConfigRecord) for record in records):
        raise CarrierError("Expected a frame in records of bytes, got something else.")
    configs = content.config_records
    return join(configs["call"].get("length"), [configs[name].get("bytes") for name in names])


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
    except Exception as error:
        # Its class and no more: a message's text is the server's.
        _log.error("A message could not be read: %s.", type(error).__name__)
    return Message(frame_content(frame[0] if frame else failed()), reply_to=message)
