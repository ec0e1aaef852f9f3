"""The party as a Flower ClientApp: request bytes in, response bytes out.

`parley.client.party.party_service` does all of a party's work. This file connects it to Flower and
adds two guarantees that Flower does not give. A handler always returns a message, because anything
else blocks a SuperNode. The text of an exception never leaves the party.

The party's owner sets the party's folder (`party` in the SuperNode's configuration). Only a
simulated node has no owner. Its folder comes with the message.
"""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from parley.client.contract.message_frames import WireError, build_refusal, encode_frame
from parley.client.contract.refusals import Reason

_log = logging.getLogger("parley.party")

app = ClientApp()


def build_content(frame: bytes, **more: str) -> RecordDict:
    """Return a frame as a message's content, together with the texts in `more`."""
    return RecordDict({"call": ConfigRecord({**more, "bytes": frame})})


def read_frame(content: RecordDict) -> bytes:
    """Return the frame in a message's content.

    Raises:
        WireError: the content is anything else.
    """
    # A frame is plain bytes. No parser of arrays, pickles or tensors ever sees what a peer sent.
    frame = content.config_records["call"].get("bytes") if list(content) == ["call"] else None
    if not isinstance(frame, bytes):
        raise WireError("Expected a frame in a record of bytes, got something else.")
    return frame


def find_party_folder(message: Message, context: Context) -> Path:
    """Return the party's folder: the owner's setting or, for a simulated node, the message's."""
    owned = context.node_config.get("party")
    if owned is not None:
        return Path(str(owned))
    if "partition-id" not in context.node_config:  # a SuperNode, which has an owner
        raise WireError("Expected party, its folder, in the SuperNode's configuration, got none.")
    return Path(str(message.content.config_records["call"]["folder"]))


@app.query("parley")
def serve(message: Message, context: Context) -> Message:
    """Answer one request. Any failure becomes a refusal without a reason, and so a dropout."""
    try:
        from parley.client.party.party_service import PartyService  # noqa: PLC0415 - start-up: Flower's server imports this file, too, and runs no party

        request = read_frame(message.content)
        with closing(PartyService.open(find_party_folder(message, context))) as party:
            answer = party.handle(request)
    except (Exception, SystemExit):  # a handler that raises wedges its SuperNode
        # The exception goes only to the party's own log.
        _log.exception("A request could not be answered.")
        answer = encode_frame(build_refusal(Reason.ERROR))
    return Message(build_content(answer), reply_to=message)
