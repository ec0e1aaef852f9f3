"""The party as a Flower ClientApp: a request's bytes in, an answer's bytes out.

All that a party does is `parley.client.party.party_service`. This file carries it through
Flower and keeps two promises that Flower does not: a handler always returns a message, since
anything else wedges a SuperNode, and the text of an exception never leaves the party.

The owner of a party names its folder (`party` in the SuperNode's configuration). Only a simulated
node has no owner: the message names its folder.
"""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from parley.client.contract.party_protocol import Reason, WireError, build_refusal, encode_frame

_log = logging.getLogger("parley.party")

app = ClientApp()


def build_content(frame: bytes, **more: str) -> RecordDict:
    """Return a frame as the content of a message, with `more` next to it."""
    return RecordDict({"call": ConfigRecord({**more, "bytes": frame})})


def read_frame(content: RecordDict) -> bytes:
    """Return the frame in a message's content; raise WireError if it is anything else."""
    # Plain bytes: no parser of arrays, pickles or tensors ever sees what a peer sent.
    frame = content.config_records["call"].get("bytes") if list(content) == ["call"] else None
    if not isinstance(frame, bytes):
        raise WireError("Expected a frame in a record of bytes, got something else.")
    return frame


def find_party_folder(message: Message, context: Context) -> Path:
    """Return the party's folder: its owner's choice, or for a simulated node the message's."""
    owned = context.node_config.get("party")
    if owned is not None:
        return Path(str(owned))
    if "partition-id" not in context.node_config:  # a SuperNode, which has an owner
        raise WireError("Expected party, its folder, in the SuperNode's configuration, got none.")
    return Path(str(message.content.config_records["call"]["folder"]))


@app.query("parley")
def serve(message: Message, context: Context) -> Message:
    """Answer one request; whatever fails becomes a refusal without a reason, and a dropout."""
    try:
        from parley.client.party.party_service import PartyService  # noqa: PLC0415 - start-up: Flower's server imports this file, too, and runs no party

        request = read_frame(message.content)
        with closing(PartyService.open(find_party_folder(message, context))) as party:
            answer = party.handle(request)
    except (Exception, SystemExit):  # a handler that raises wedges its SuperNode
        # To the party's own log, and no further.
        _log.exception("A request could not be answered.")
        answer = encode_frame(build_refusal(Reason.ERROR))
    return Message(build_content(answer), reply_to=message)
