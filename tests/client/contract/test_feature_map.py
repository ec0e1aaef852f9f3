"""What a request may say of a map: strictly parsed."""

import pytest

from parley.client.contract.feature_map import features_from
from parley.client.contract.protocol import Declined, Reason

GOOD = {"name": "bins", "settings": {"bins": 4}, "digest": "0a" * 32}


def test_what_was_agreed_on_is_read_as_it_was_sent():
    assert features_from(GOOD, agreed=True) == GOOD
    asked = {"name": "bins", "settings": {}}
    assert features_from(asked, agreed=False) == asked
    assert features_from({}, agreed=True) == {}


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "bins",
        {"name": "bins", "settings": {}},
        GOOD | {"more": 1},
        GOOD | {"name": 7},
        GOOD | {"name": ""},
        GOOD | {"name": "x" * 513},
        GOOD | {"settings": []},
        GOOD | {"settings": {"scale": float("inf")}},
        GOOD | {"settings": {"long": "x" * (1 << 14)}},
        GOOD | {"digest": "0A" * 32},
        GOOD | {"digest": "0a" * 31},
        GOOD | {"digest": None},
    ],
    ids=lambda value: repr(value)[:50],
)
def test_anything_else_is_refused_as_a_fault_of_the_protocol(value):
    with pytest.raises(Declined) as declined:
        features_from(value, agreed=True)
    assert declined.value.reason is Reason.PROTOCOL
