"""The protocol number: it changes with the messages, and names which side to update."""

from __future__ import annotations

import pytest
from wire_contract import FILE, describe_wire

from parley.client.contract.message_frames import WIRE_VERSION, MessageFrame, encode_frame
from parley.client.contract.refusals import Reason
from parley.deploy.stream.grpc_server import describe_version_difference
from parley.server.rounds.party_requests import _decode_reply


def test_messages_of_a_protocol_number_never_change() -> None:
    """Else parties one minor version apart would fail in the middle of a run."""
    assert describe_wire() == FILE.read_text(encoding="utf-8"), (
        "Messages changed: add one to WIRE_VERSION, then run tests/vectors/wire_contract.py"
    )


@pytest.mark.parametrize(
    ("theirs", "advice"),
    [("6", "Update the party."), ("8", "Update the server."), ("?", "Install the same version")],
)
def test_of_two_protocol_numbers_the_smaller_side_is_updated(theirs: str, advice: str) -> None:
    said = describe_version_difference("1.1.0", "1.0.0", own_wire=7, their_wire=theirs)
    assert said.startswith("the server runs Parley 1.1.0 (protocol 7), this party Parley 1.0.0 (")
    assert advice in said


def test_an_answer_of_another_protocol_is_reported_as_such() -> None:
    for version, reason in ((WIRE_VERSION + 1, Reason.VERSION), (True, Reason.PROTOCOL)):
        head = {"version": version, "status": "ok"}
        data = encode_frame(MessageFrame(kind="answer", head=head))
        assert _decode_reply(3, data).reason is reason
