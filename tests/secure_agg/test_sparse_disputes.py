"""A false ciphertext on a graph that is not complete: its sender is blamed, and no key leaks."""

import dataclasses

import numpy as np
import pytest
from sums_expected import expected_sum

from parley.secure_agg.answers import signers_needed
from parley.secure_agg.graph import security_failure
from parley.secure_agg.interface import TooFewSurvivors
from parley.secure_agg.messages import Confirmations, decode, encode
from parley.secure_agg.outcome import pack_mask, unpack_mask
from parley.secure_agg.parameters import RunParameters, derive

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
    assert signers_needed(run) == 21
    accuser = 0
    liar, neighbour = run.neighbours[accuser].tolist()[:2]
    d.server.delivery._waiting[accuser][liar] = (bytes(1088), bytes(16))
    for i, party in d.parties.items():
        complaint = party.on_ciphertexts(d.server.ciphertexts(i))
        assert (complaint != b"") == (i == accuser)
        if complaint:
            d.server.on_complaint(complaint)
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
    d.server.delivery.show((plan, survivors, few), signers)
    assert d.server.to_prove == ()  # nor does an honest server ask by it
    d.server.delivery.show((plan, survivors, confirmations), everybody)
    assert len(d.parties[accuser].state.kem_seed) == 64

    assert d.server.to_prove == (accuser,)
    d.server.on_evidence(d.parties[accuser].prove(plan, survivors, confirmations))
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
    derived = derive(parties, corrupt=c, dropped=run.dropped, confirm_survivors=True)
    corrupt_near = min(c, 2 * t - k - 1)
    assert security_failure(parties, k, t, c, True) <= 2**-56  # that many, no more
    keys_left = k - signers_needed(run)
    assert keys_left + corrupt_near == t - 1  # and with one signature less it would be t
    if not run.sparse:  # whoever has a list that opens a sum has enough
        assert derived.confirmations - 1 >= signers_needed(run)
