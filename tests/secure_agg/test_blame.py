"""One party breaks the protocol: it is named at the entrance, and the others go on without it."""

import dataclasses

import numpy as np
import pytest
from sums_expected import expected_sum

from parley.secure_agg.confirmation_threshold import count_signers_needed
from parley.secure_agg.interface import RemoteProtocolError, TooFewSurvivors
from parley.secure_agg.messages import (
    Advertise,
    Confirm,
    Confirmations,
    RoundShares,
    decode,
    encode,
)
from parley.secure_agg.predicted_outcome import pack_mask, unpack_mask
from parley.secure_agg.primitives import sign
from parley.secure_agg.protocol_digests import digest_advertisement
from parley.secure_agg.protocol_parameters import (
    RunParameters,
    derive_parameters,
    is_before_pairing,
)
from parley.secure_agg.sparse_graph_bounds import bound_security_failure


def _advert(d, party, key):
    """A key that the party's own identity signs, as a party that lies would."""
    statement = digest_advertisement(d.run.fingerprint, d.policy.roster, party, key, bytes(32))
    message = Advertise(
        sender=party, round_number=0, key=key, nonce=bytes(32),
        signature=sign(d.private[party], statement),
    )  # fmt: skip
    return encode(d.run, message)


def test_a_weak_or_copied_key_is_its_senders_alone(drill):
    d = drill.build(7)
    first = d.parties[0].advertise()
    d.server.handle_advertise(first)
    copied, own = decode(d.run, first, Advertise).key, d.parties[4].advertise()
    key = decode(d.run, own, Advertise).key
    lists = [bytes(32) + key[32:], b"\x01" + bytes(31) + key[32:], copied]
    lists += [copied[:32] + key[32:], key[:32] + copied[32:]]  # one of the two is enough
    for key in lists:
        with pytest.raises(RemoteProtocolError, match="a new key of party 3"):
            d.server.handle_advertise(_advert(d, 3, key))
    d.server.handle_advertise(own)
    drill.rostered(drill.advertised(d, (1, 2, 5, 6)))
    del d.parties[3]
    assert np.array_equal(drill.finished(d), expected_sum(d))


def test_one_false_signature_of_the_list_is_left_out_and_the_round_goes_on(drill):
    d = drill.joined(drill.build(7))
    _, listed = drill.masked(d)
    for i, party in d.parties.items():
        confirm = party.handle_survivors(listed)
        if i == 2:
            bad = encode(d.run, Confirm(sender=2, round_number=1, signature=bytes(64)))
            with pytest.raises(RemoteProtocolError, match="party 2 to sign the survivors' list"):
                d.server.handle_confirm(bad)
        else:
            d.server.handle_confirm(confirm)
    total = drill.revealed(d, d.server.build_confirmations())
    assert np.array_equal(total, expected_sum(d))


def test_shares_for_rounds_that_nobody_asked_for_are_refused_and_block_nobody(drill):
    # Before: two rounds of anybody's choice filled the server's room for shares.
    d = drill.joined(drill.build(7))
    for number in (5, 9, 2):
        with pytest.raises(
            RemoteProtocolError, match=f"party 6 for round 1, got .* round {number}"
        ):
            d.server.handle_shares(_shares(d, 6, number))
    for i in range(6):
        d.server.handle_shares(d.parties[i].prepare(1))
    plans = drill.plan(d)
    assert sorted(plans) == list(range(6))


def _shares(d, party, number):
    near = len(d.parties[party].state.neighbours)
    entry = 64 if is_before_pairing(number) else 32
    message = RoundShares(
        sender=party, round_number=number, commitments=bytes(64), table=bytes(16 + entry * near),
        digests=bytes(32 * near), envelopes=bytes(80 * near),
    )  # fmt: skip
    return encode(d.run, message)


@pytest.mark.parametrize("how", ["no secret", "unopened"])
def test_a_dealer_whose_shares_are_worthless_is_convicted_and_the_next_round_is_whole(drill, how):
    d = drill.joined(drill.build(7, corrupt=1))
    for i, party in d.parties.items():
        shares = party.prepare(1)
        if i == 2:  # commits to another seed than it shared out, or seals garbage
            message = decode(d.run, shares, RoundShares)
            changed = {**vars(message)}
            if how == "no secret":
                changed["commitments"] = bytes(64)
            else:
                changed["envelopes"] = bytes(len(message.envelopes))
            shares = encode(d.run, RoundShares(**changed))
        d.server.handle_shares(shares)
    drill.delivered(d)
    plans = drill.plan(d)
    with pytest.raises(TooFewSurvivors, match="party 2"):
        drill.summed(d, plans, silent={2})
    assert d.server.blamed == {2}
    for party in d.parties.values():
        party.abort_round()
    plans = drill.planned(d, 2)
    assert 2 not in plans
    del d.parties[2]
    assert np.array_equal(drill.summed(d, plans), expected_sum(d))


def test_a_party_that_lost_more_neighbours_than_the_least_degree_takes_no_part(drill):
    from parley.secure_agg.protocol_parameters import ProtocolRequirements

    seen = drill.build(9)
    policy = ProtocolRequirements(
        identities=seen.identities, min_survivors=1, minimum_degree=7, corrupt=0
    )
    d = drill.joined(drill.build(9, policy=policy))
    plans = drill.planned(d, participants=range(7))  # six neighbours take part
    with pytest.raises(RemoteProtocolError, match="Expected >= 7 participating neighbours, got 6"):
        d.parties[0].handle_plan(plans[0], d.vectors[0], context=d.context)
    d = drill.joined(drill.build(9, policy=policy))
    _, listed = drill.masked(d, absent=[7, 8])
    with pytest.raises(TooFewSurvivors, match="Expected >= 7 surviving neighbours, got 6"):
        d.parties[0].handle_survivors(listed)


PARTIES = 101


def _without(run, confirmations, left_out):
    """The same Confirmations as if some had not signed."""
    whole = decode(run, confirmations, Confirmations)
    signers = np.flatnonzero(unpack_mask(whole.signers, PARTIES)).tolist()
    kept = [(n, i) for n, i in enumerate(signers) if i not in left_out]
    flags = np.isin(np.arange(PARTIES), [i for _, i in kept])
    signatures = b"".join(whole.signatures[64 * n : 64 * n + 64] for n, _ in kept)
    return encode(run, dataclasses.replace(whole, signers=pack_mask(flags), signatures=signatures))


def test_its_sender_is_blamed_by_a_key_that_no_lying_server_gets_before_it_is_harmless(drill):
    d = drill.prepared(drill.joined(drill.sparse(b"disputes")))
    run = d.server.run
    assert count_signers_needed(run) == 21
    accuser = 0
    liar, neighbour = run.neighbours[accuser].tolist()[:2]
    d.server.delivery.pending[accuser][liar] = bytes(1088 + 16)
    for i, party in d.parties.items():
        complaint = party.handle_ciphertexts(d.server.get_ciphertexts(i))
        assert (complaint != b"") == (i == accuser)
        if complaint:
            d.server.handle_complaint(complaint)
    plans = drill.plan(d)
    assert set(plans) == set(range(PARTIES)) - {accuser, liar}
    assert np.array_equal(drill.summed(d, plans), expected_sum(d, [accuser, liar]))

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
    d.server.delivery.record_certificate((plan, survivors, few), signers)
    assert d.server.to_prove == ()  # nor does an honest server ask by it
    d.server.delivery.record_certificate((plan, survivors, confirmations), everybody)
    assert len(d.parties[accuser].state.kem_seed) == 64

    assert d.server.to_prove == (accuser,)
    d.server.handle_evidence(d.parties[accuser].prove(plan, survivors, confirmations))
    assert (d.server.blamed, d.server.to_prove) == ({liar}, ())
    del d.parties[accuser]  # it has left
    plans = drill.plan(drill.prepared(d, 2), 2)
    assert set(plans) == set(d.parties) - {liar}
    assert np.array_equal(drill.summed(d, plans), expected_sum(d, [liar]))


@pytest.mark.parametrize("parties", [3, 4, 5, 10, 11, 99, 100, 101, 300, 1000, 10000])
def test_who_may_prove_and_the_corrupt_hold_too_few_shares_of_anybody(parties):
    run = RunParameters.choose(
        parties=parties, min_survivors=1, run_id=bytes(16), commitments={0: bytes(32)}
        if parties > 100 else None,
    )  # fmt: skip
    k, t, c = run.degree, run.threshold, run.corrupt
    derived = derive_parameters(parties, corrupt=c, dropped=run.dropped)
    corrupt_near = min(c, 2 * t - k - 1)
    assert bound_security_failure(parties, k, t, c) <= 2**-56  # that many, no more
    keys_left = k - count_signers_needed(run)
    assert keys_left + corrupt_near == t - 1  # and with one signature less it would be t
    if not run.sparse:  # whoever has a list that opens a sum has enough
        assert derived.confirmations - 1 >= count_signers_needed(run)
