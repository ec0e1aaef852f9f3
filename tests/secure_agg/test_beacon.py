"""The beacon of a graph that is not complete: nobody chooses it, and no nonce serves twice."""

import dataclasses

import numpy as np
import pytest

from parley.secure_agg.interface import LocalProtocolError, RemoteProtocolError
from parley.secure_agg.mask_graph import compute_nonce_commitment, derive_nonce
from parley.secure_agg.messages import SERVER, Nonces, decode, encode
from parley.secure_agg.predicted_outcome import pack_mask
from parley.secure_agg.protocol_parameters import ProtocolRequirements

PARTIES = 101


@pytest.fixture
def people(drill):
    """101 parties before their first message, each with its nonce."""
    return drill.sparse(b"people")


def test_everyone_comes_to_the_same_graph_which_every_nonce_changes(drill, people):
    d = drill.joined(people)
    assert d.server.run == d.run
    for i, party in d.parties.items():
        assert party.state.run == d.run
        assert party.state.neighbours == d.run.neighbours[i].tolist()
        assert party.state.nonce == b""
    beacons = {d.run.beacon}
    for i in (0, 1, 100):
        beacons.add(d.run.without_beacon.with_beacon({**d.nonces, i: bytes(32)}).beacon)
    assert len(beacons) == 4


def test_nonces_that_were_not_committed_to_are_refused_by_every_party(drill, people):
    d = drill.advertised(people)
    rosters, honest = (
        d.server.build_rosters(),
        decode(d.run, d.server.adverts.encode_nonces(), Nonces),
    )
    ground = honest.nonces[:320] + bytes(32) + honest.nonces[352:]  # party 10 tries another
    without = pack_mask(np.arange(PARTIES) != 0)
    for changes, match in (
        ({"nonces": ground}, "nonces that the parties committed to"),
        ({"nonces": honest.nonces[:-32]}, "Expected 101 nonces, got 100"),
        (
            {"committed": without, "nonces": honest.nonces[32:]},
            "the nonce of party 0 among the revealed ones",
        ),
    ):
        message = encode(d.run, dataclasses.replace(honest, **changes))
        with pytest.raises(RemoteProtocolError, match=match):
            d.parties[0].handle_roster(rosters[0], message)
    with pytest.raises(RemoteProtocolError):
        d.parties[0].handle_roster(rosters[0])
    d.parties[0].handle_roster(rosters[0], d.server.adverts.encode_nonces())


def test_a_beacon_that_the_server_fills_in_by_itself_is_not_taken(people):
    chosen = dataclasses.replace(people.run, beacon=b"x" * 32)
    assert people.party(0, run=chosen).state.run == people.run.without_beacon
    bare = dataclasses.replace(people.run, commitments=bytes(32))
    with pytest.raises(RemoteProtocolError, match="commitments to every party's nonce"):
        people.policy.check(bare)
    with pytest.raises(LocalProtocolError, match="Expected a nonce of 32 bytes"):
        people.party(0, nonce=b"")


def test_who_reveals_another_nonce_or_none_voids_the_set_up_and_is_named(drill, people):
    with pytest.raises(RemoteProtocolError, match="the nonce that party 7 committed to"):
        people.server.handle_advertise(people.party(7, nonce=bytes(32)).advertise())
    server = drill.advertised(people, range(100)).server
    assert server.adverts.unrevealed == (100,)
    with pytest.raises(LocalProtocolError, match="the set-up is void"):
        server.build_rosters()
    again = server.with_commitments(
        {i: given for i, given in people.commitments.items() if i < 100}, run_id=b"s" * 16
    )
    assert again.run.commitments != server.run.commitments
    assert again.adverts.unrevealed == tuple(range(100))


def _refuses_the_roster(drill, d, **policy):
    party = d.party(
        0, policy=ProtocolRequirements(**{"identities": d.identities, "min_survivors": 1, **policy})
    )
    party.advertise()
    rosters = drill.advertised(d).server.build_rosters()
    with pytest.raises(RemoteProtocolError, match="for these parameters and parties"):
        party.handle_roster(rosters[0], d.server.adverts.encode_nonces())


def test_a_key_signed_for_another_order_of_the_roster_is_refused(drill, people):
    first, second, third, *rest = people.identities
    _refuses_the_roster(drill, people, identities=(first, third, second, *rest))


def test_a_key_signed_for_another_deployment_is_refused(drill, people):
    """The same identities under other names are another deployment, whatever the server says."""
    _refuses_the_roster(drill, people, deployment=b"d" * 32)


def test_a_nonce_is_another_for_each_set_up_roster_and_party():
    def nonce(key=b"k" * 32, roster=b"r" * 32, count=0):
        return derive_nonce(key, roster=roster, count=count)

    assert len({nonce(), nonce(count=1), nonce(roster=b"s" * 32), nonce(b"l" * 32)}) == 4
    assert compute_nonce_commitment(0, nonce()) != compute_nonce_commitment(
        1, nonce()
    )  # nobody can commit to another's


def test_messages_of_a_complete_graph_have_no_nonces(drill):
    d = drill.advertised(drill.build())
    rosters = d.server.build_rosters()
    assert d.server.adverts.encode_nonces() == b""
    everyone = pack_mask(np.ones(5, dtype=bool))
    extra = Nonces(sender=SERVER, round_number=0, committed=everyone, nonces=bytes(160))
    with pytest.raises(RemoteProtocolError, match="no nonces for a complete graph"):
        d.parties[0].handle_roster(rosters[0], encode(d.run, extra))
