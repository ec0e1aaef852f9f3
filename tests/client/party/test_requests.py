"""Every field of every request is typed at the door."""

import pytest

from parley.client.contract.protocol import (
    REQUESTS,
    WIRE_VERSION,
    Declined,
    Frame,
    Reason,
    encode_frame,
    request_from,
)

GOOD = {str: "ward", bool: True, float: 1, int: 1, int | None: None, object: {"any": [1]}}
GOOD[tuple[str, ...]] = ["2024"]
BAD = {
    str: [None, 1, "x" * 513],
    bool: [0, None, "true"],
    float: [True, None, "1", 1e302],
    int: [True, 1.0, 2**63],
    int | None: [True, 1.0, "1"],
    object: [],
    tuple[str, ...]: [None, "2024", ["2024"] * 65],
}


@pytest.mark.parametrize("kind", sorted(REQUESTS))
def test_a_value_of_another_type_is_a_breach_of_the_protocol(kind):
    hints, blobs = REQUESTS[kind]
    good = {key: GOOD[hint] for key, hint in hints.items()}

    def asked(**changed):
        head = {"version": WIRE_VERSION, **good, **changed}
        return request_from(encode_frame(Frame(kind=kind, head=head, blobs=(b"",) * blobs)))

    assert asked().head == {"version": WIRE_VERSION, **good}
    for key, hint in hints.items():
        for value in BAD[hint]:
            with pytest.raises(Declined, match=f"Expected {key} to ") as error:
                asked(**{key: value})
            assert error.value.reason is Reason.PROTOCOL
