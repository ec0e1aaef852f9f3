"""A false ciphertext on a graph that is not complete: its sender is blamed, and no key leaks."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from parley.secure_agg.beacon import commitment
from parley.secure_agg.codec import decode, encode
from parley.secure_agg.disputes import signers_needed
from parley.secure_agg.edges import SharedEdgeWork
from parley.secure_agg.flags import pack_mask, unpack_mask
from parley.secure_agg.graph import security_failure
from parley.secure_agg.ideal import simulated_nonces, simulated_parameters
from parley.secure_agg.interface import TooFewSurvivors
from parley.secure_agg.messages import Confirmations
from parley.secure_agg.pairwise_party import Party
from parley.secure_agg.pairwise_server import Server
from parley.secure_agg.parameters import Policy, RunParameters, derive
from parley.secure_agg.primitives import expand_seed, signing_public
from parley.secure_agg.state import Phase

PARTIES, CONTEXT = 101, b"c" * 32


def _dealt():
    """101 parties after the roster; their shares of round 1 are with the server."""
    run = simulated_parameters(parties=PARTIES, min_survivors=1)
    nonces, entropy = simulated_nonces(run), expand_seed(b"disputes")
    private = [entropy(32) for _ in range(PARTIES)]
    identities = tuple(signing_public(key) for key in private)
    policy, work = Policy(identities=identities, min_survivors=1), SharedEdgeWork()
    given = {i: commitment(i, nonce) for i, nonce in nonces.items()}
    server = Server(run=run, identities=identities, commitments=given)
    parties = {
        i: Party(
            run=run, policy=policy, index=i, identity=private[i], entropy=entropy,
            nonce=nonces[i], work=work,
        )
        for i in range(PARTIES)
    }  # fmt: skip
    for party in parties.values():
        server.on_advertise(party.advertise())
    rosters, message = server.roster(), server.adverts.nonces()
    for i, party in parties.items():
        server.on_encapsulated(party.on_roster(rosters[i], message))
        server.on_shares(party.prepare(1))
    vectors = np.random.default_rng(0).integers(0, 2**32, (PARTIES, 4), dtype=np.uint32)
    return SimpleNamespace(server=server, parties=parties, vectors=vectors)


def _round(d, number, *, silent=()):
    """A whole round; who was asked, and the sum."""
    for party in d.parties.values():
        if number > 1 and party.state.phase is not Phase.LEFT:
            d.server.on_shares(party.prepare(number), number=number)
    plans = d.server.plan(number, dimension=4, context=CONTEXT)
    for i, plan in plans.items():
        if i not in silent:
            d.server.on_vector(d.parties[i].on_plan(plan, d.vectors[i], context=CONTEXT))
    listed = d.server.close()
    for i in d.server.survivors:
        d.server.on_confirm(d.parties[i].on_survivors(listed))
    for i, message in d.server.confirmations().items():
        d.server.on_reveal(d.parties[i].on_confirmations(message))
    return set(plans), d.server.finish()


def _without(run, confirmations, left_out):
    """The same Confirmations as if some had not signed."""
    whole = decode(run, confirmations, Confirmations)
    signers = np.flatnonzero(unpack_mask(whole.signers, PARTIES)).tolist()
    kept = [(n, i) for n, i in enumerate(signers) if i not in left_out]
    flags = np.isin(np.arange(PARTIES), [i for _, i in kept])
    signatures = b"".join(whole.signatures[64 * n : 64 * n + 64] for n, _ in kept)
    return encode(run, dataclasses.replace(whole, signers=pack_mask(flags), signatures=signatures))


def test_its_sender_is_blamed_by_a_key_that_no_lying_server_gets_before_it_is_harmless():
    d = _dealt()
    run = d.server.run
    assert (run.degree, run.threshold, signers_needed(run)) == (32, 22, 21)
    accuser = 0
    liar, neighbour = run.neighbours[accuser].tolist()[:2]
    d.server.delivery._waiting[accuser][liar] = (bytes(1088), bytes(16))
    for i, party in d.parties.items():
        complaint = party.on_ciphertexts(d.server.ciphertexts(i))
        assert (complaint != b"") == (i == accuser)
        if complaint:
            d.server.on_complaint(complaint)
    asked, total = _round(d, 1)
    assert asked == set(range(PARTIES)) - {accuser, liar}
    assert np.array_equal(total, d.vectors[sorted(asked)].sum(axis=0, dtype=np.uint32))

    # Enough signed for a sum, and for a proof on a complete graph; but so few around one neighbour
    # that those who did not could give the server t of its shares.
    plan, survivors, confirmations = d.server.delivery.certificate
    everybody = unpack_mask(decode(run, confirmations, Confirmations).signers, PARTIES)
    around = [j for j in run.neighbours[neighbour].tolist() if j != accuser]
    few = _without(run, confirmations, around[:11])
    signers = unpack_mask(decode(run, few, Confirmations).signers, PARTIES)
    assert signers.sum() > (PARTIES + run.corrupt) / 2
    with pytest.raises(TooFewSurvivors, match=r">= 21 neighbours of each neighbour .* got 20"):
        d.parties[accuser].prove(plan, survivors, few)
    d.server.delivery.show((plan, survivors, few), signers)
    assert d.server.to_prove == ()  # nor does an honest server ask by it
    d.server.delivery.show((plan, survivors, confirmations), everybody)
    assert len(d.parties[accuser].state.kem_seed) == 64

    assert d.server.to_prove == (accuser,)
    d.server.on_evidence(d.parties[accuser].prove(plan, survivors, confirmations))
    assert (d.server.blamed, d.server.to_prove) == ({liar}, ())
    asked, total = _round(d, 2)
    assert asked == set(range(PARTIES)) - {accuser, liar}
    assert np.array_equal(total, d.vectors[sorted(asked)].sum(axis=0, dtype=np.uint32))


@pytest.mark.parametrize("parties", [3, 4, 5, 10, 11, 99, 100, 101, 300, 1000, 10000])
def test_who_may_prove_and_the_corrupt_hold_too_few_shares_of_anybody(parties):
    run = RunParameters.choose(
        parties=parties, min_survivors=1, run_id=bytes(16), commitments={0: bytes(32)}
        if parties > 100 else None,
    )  # fmt: skip
    k, t, c = run.degree, run.threshold, run.corrupt
    derived = derive(parties, corrupt=c, dropped=run.dropped, confirm_survivors=True)
    corrupt_near = min(c, 2 * t - k - 1)
    assert security_failure(parties, k, t, c, True) <= 2**-56  # that many, no more
    keys_left = k - signers_needed(run)
    assert keys_left + corrupt_near == t - 1  # and with one signature less it would be t
    if not run.sparse:  # whoever has a list that opens a sum has enough
        assert derived.confirmations - 1 >= signers_needed(run)
