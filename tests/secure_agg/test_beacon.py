"""The beacon of a graph that is not complete: nobody chooses it, and no nonce serves twice."""

import dataclasses

import numpy as np
import pytest

from parley.secure_agg.beacon import commitment, next_nonce, roster_digest
from parley.secure_agg.codec import decode, encode
from parley.secure_agg.flags import pack_mask
from parley.secure_agg.interface import LocalProtocolError, RemoteProtocolError
from parley.secure_agg.messages import SERVER, Nonces
from parley.secure_agg.pairwise_party import Party
from parley.secure_agg.pairwise_server import Server
from parley.secure_agg.parameters import Policy, RunParameters
from parley.secure_agg.primitives import expand_seed, signing_public

PARTIES = 101


@pytest.fixture(scope="module")
def people():
    entropy = expand_seed(b"people")
    private = [entropy(32) for _ in range(PARTIES)]
    return private, tuple(signing_public(key) for key in private)


def nonces_of(private, identities, count=0):
    roster = roster_digest(identities)
    return {i: next_nonce(key, roster=roster, count=count) for i, key in enumerate(private)}


def advertised(people, *, nonces, given=None, who=range(PARTIES)):
    """Parties and a server after the adverts of `who`."""
    private, identities = people
    given = given or {i: commitment(i, nonce) for i, nonce in nonces.items()}
    run = RunParameters.choose(
        parties=PARTIES, min_survivors=60, run_id=b"r" * 16, commitments=given
    )
    server = Server(run=run, identities=identities, commitments=given)
    policy = Policy(identities=identities, min_survivors=60)
    parties = {
        i: Party(
            run=run, policy=policy, index=i, identity=private[i], entropy=expand_seed(bytes([i])),
            nonce=nonces[i],
        )
        for i in who
    }  # fmt: skip
    for party in parties.values():
        server.on_advertise(party.advertise())
    return parties, server


def test_everyone_comes_to_the_same_graph_which_every_nonce_changes(people):
    nonces = nonces_of(*people)
    parties, server = advertised(people, nonces=nonces)
    rosters, message = server.roster(), server.adverts.nonces()
    for i in (0, 50, 100):
        parties[i].on_roster(rosters[i], message)
        assert parties[i].state.run == server.run
        assert parties[i].state.near == server.run.neighbours[i].tolist()
        assert parties[i].state.nonce == b""
    assert server.run.degree == 32
    beacons = {server.run.beacon}
    for i in (0, 1, 100):
        beacons.add(server.run.proposed.with_beacon({**nonces, i: bytes(32)}).beacon)
    assert len(beacons) == 4


def test_nonces_that_were_not_committed_to_are_refused_by_every_party(people):
    nonces = nonces_of(*people)
    parties, server = advertised(people, nonces=nonces)
    rosters, honest = server.roster(), decode(server.run, server.adverts.nonces(), Nonces)
    ground = honest.nonces[:320] + bytes(32) + honest.nonces[352:]  # party 10 tries another
    without = pack_mask(np.arange(PARTIES) != 0)
    for message, match in (
        (dataclasses.replace(honest, nonces=ground), "nonces that were committed to"),
        (dataclasses.replace(honest, nonces=honest.nonces[:-32]), "Expected 101 nonces, got 100"),
        (
            dataclasses.replace(honest, committed=without, nonces=honest.nonces[32:]),
            "the nonce of party 0 among all",
        ),
    ):
        with pytest.raises(RemoteProtocolError, match=match):
            parties[0].on_roster(rosters[0], encode(server.run, message))
    with pytest.raises(RemoteProtocolError):
        parties[0].on_roster(rosters[0])
    parties[0].on_roster(rosters[0], server.adverts.nonces())


def test_a_beacon_that_the_server_fills_in_by_itself_is_not_taken(people):
    private, identities = people
    nonces = nonces_of(*people)
    given = {i: commitment(i, nonce) for i, nonce in nonces.items()}
    run = RunParameters.choose(
        parties=PARTIES, min_survivors=60, run_id=b"r" * 16, commitments=given
    )
    chosen = dataclasses.replace(run, beacon=b"x" * 32)
    policy = Policy(identities=identities, min_survivors=60)
    party = Party(
        run=chosen, policy=policy, index=0, identity=private[0], entropy=expand_seed(b""),
        nonce=nonces[0],
    )  # fmt: skip
    assert party.state.run == run
    bare = dataclasses.replace(run, commitments=bytes(32))
    with pytest.raises(RemoteProtocolError, match="commitments to every party's nonce"):
        policy.check(bare)
    with pytest.raises(LocalProtocolError, match="Expected a nonce of 32 bytes"):
        Party(run=run, policy=policy, index=0, identity=private[0], entropy=expand_seed(b""))


def test_who_reveals_another_nonce_or_none_voids_the_set_up_and_is_named(people):
    nonces = nonces_of(*people)
    lying = {**nonces, 7: bytes(32)}
    given = {i: commitment(i, nonce) for i, nonce in nonces.items()}
    with pytest.raises(RemoteProtocolError, match="the nonce that party 7 committed to"):
        advertised(people, nonces=lying, given=given)
    _, server = advertised(people, nonces=nonces, who=range(100))
    assert server.adverts.unrevealed == (100,)
    with pytest.raises(LocalProtocolError, match="the set-up is void"):
        server.roster()
    del given[100]
    again = server.with_commitments(given, run_id=b"s" * 16)
    assert again.run.commitments != server.run.commitments
    assert again.adverts.unrevealed == tuple(range(100))


def test_a_key_signed_for_another_order_of_the_roster_is_refused(people):
    private, identities = people
    nonces = nonces_of(*people)
    _, server = advertised(people, nonces=nonces)
    swapped = (identities[0], identities[2], identities[1], *identities[3:])
    policy = Policy(identities=swapped, min_survivors=60)
    party = Party(
        run=server.run, policy=policy, index=0, identity=private[0], entropy=expand_seed(b"other"),
        nonce=nonces[0],
    )  # fmt: skip
    party.advertise()
    rosters = server.roster()
    with pytest.raises(RemoteProtocolError, match="for these parameters and parties"):
        party.on_roster(rosters[0], server.adverts.nonces())


def test_a_key_signed_for_another_deployment_is_refused(people):
    """The same identities under other names are another deployment, whatever the server says."""
    private, identities = people
    nonces = nonces_of(*people)
    _, server = advertised(people, nonces=nonces)
    policy = Policy(identities=identities, min_survivors=60, deployment=b"d" * 32)
    party = Party(
        run=server.run, policy=policy, index=0, identity=private[0], entropy=expand_seed(b"other"),
        nonce=nonces[0],
    )  # fmt: skip
    party.advertise()
    rosters = server.roster()
    with pytest.raises(RemoteProtocolError, match="for these parameters and parties"):
        party.on_roster(rosters[0], server.adverts.nonces())


def test_a_nonce_is_another_for_each_set_up_roster_and_party():
    one = next_nonce(b"k" * 32, roster=b"r" * 32, count=0)
    others = {
        next_nonce(b"k" * 32, roster=b"r" * 32, count=1),
        next_nonce(b"k" * 32, roster=b"s" * 32, count=0),
        next_nonce(b"l" * 32, roster=b"r" * 32, count=0),
    }
    assert len({one, *others}) == 4
    assert commitment(0, one) != commitment(1, one)  # nobody can commit to another's


def test_messages_of_a_complete_graph_have_no_nonces(drill):
    d = drill.build()
    for party in d.parties.values():
        d.server.on_advertise(party.advertise())
    rosters = d.server.roster()
    assert d.server.adverts.nonces() == b""
    extra = encode(
        d.run,
        Nonces(
            sender=SERVER, round_number=0, committed=pack_mask(np.ones(5, dtype=bool)),
            nonces=bytes(160),
        ),
    )  # fmt: skip
    with pytest.raises(RemoteProtocolError, match="no nonces for a complete graph"):
        d.parties[0].on_roster(rosters[0], extra)
