"""Real parties, a real server and a fake wire that a test may tamper with."""

from types import SimpleNamespace

import numpy as np
import pytest

from parley.secure_agg.ideal_sum import build_simulated_nonces, build_simulated_parameters
from parley.secure_agg.mask_graph import compute_nonce_commitment
from parley.secure_agg.messages import SERVER, Survivors, encode
from parley.secure_agg.pair_keys import CachedPairKeyComputer
from parley.secure_agg.pairwise_party import MaskingParty
from parley.secure_agg.pairwise_server import MaskingServer
from parley.secure_agg.predicted_outcome import pack_mask
from parley.secure_agg.primitives import derive_signing_public_key, expand_seed
from parley.secure_agg.protocol_parameters import ProtocolRequirements, RunParameters

CONTEXT = b"c" * 32


def made(run, *, seed, dimension, policy=None, nonces=None, work=None):
    """Parties before their first message, with everything a test may want to look at."""
    entropy, nonces, drawn = expand_seed(seed), nonces or {}, []
    private = [entropy(32) for _ in range(run.parties)]
    identities = tuple(derive_signing_public_key(key) for key in private)
    policy = policy or ProtocolRequirements(
        identities=identities,
        min_survivors=1,
        corrupt=run.corrupt,
    )

    def recording(count):
        drawn.append(entropy(count))
        return drawn[-1]

    def party(index, **given):
        usual = {
            "run": run, "policy": policy, "identity": private[index], "work": work,
            "nonce": nonces.get(index, b""), "entropy": recording,
        }  # fmt: skip
        return MaskingParty(index=index, **{**usual, **given})

    given = {i: compute_nonce_commitment(i, nonce) for i, nonce in nonces.items()}
    words = f"uint{run.ring_bits}"
    return SimpleNamespace(
        run=run,
        policy=policy,
        private=private,
        nonces=nonces,
        commitments=given,
        identities=identities,
        party=party,
        parties={i: party(i) for i in range(run.parties)},
        server=MaskingServer(run=run, identities=identities, commitments=given),
        vectors=np.random.default_rng(0).integers(
            0, np.iinfo(words).max, (run.parties, dimension), dtype=words, endpoint=True
        ),
        context=CONTEXT,
        drawn=drawn,
        entropy=entropy,
    )


def build(parties=5, *, seed=b"drill", dimension=6, policy=None, corrupt=0, work=None, **options):
    """Parties on a complete graph before their first message."""
    least = options.pop("min_survivors", parties // 2 + 1)
    run = RunParameters.choose(
        parties=parties, min_survivors=least, run_id=b"r" * 16, corrupt=corrupt, dropped=0,
        **options,
    )  # fmt: skip
    return made(run, seed=seed, dimension=dimension, policy=policy, work=work)


def sparse(seed):
    """101 parties on the graph that is derived for them."""
    run = build_simulated_parameters(parties=101, min_survivors=1)
    assert (run.degree, run.threshold, run.corrupt) == (32, 22, 10)
    nonces = build_simulated_nonces(run)
    return made(run, seed=seed, dimension=4, nonces=nonces, work=CachedPairKeyComputer())


def advertised(drill, who=None):
    """The adverts of some parties, or of all, are with the server."""
    for i in drill.parties if who is None else who:
        drill.server.handle_advertise(drill.parties[i].advertise())
    return drill


def rostered(drill):
    """After the roster: the adverts of some parties are with the server."""
    rosters, nonces = drill.server.build_rosters(), drill.server.adverts.encode_nonces()
    for i, message in rosters.items():
        drill.server.handle_encapsulated(drill.parties[i].handle_roster(message, nonces))
    return drill


def joined(drill):
    """After set-up."""
    return rostered(advertised(drill))


def prepared(drill, number=1):
    """Shares of a round are with the server."""
    for party in drill.parties.values():
        drill.server.handle_shares(party.prepare(number), number=number)
    return drill


def delivered(drill):
    """The neighbours' ciphertexts, for whoever has none."""
    for i, party in drill.parties.items():
        message = drill.server.get_ciphertexts(i)
        if message:
            assert party.handle_ciphertexts(message) == b""


def planned(drill, number=1, participants=None):
    """After the plan: messages by party."""
    if number > 1:
        delivered(drill)
    prepared(drill, number)
    delivered(drill)
    return plan(drill, number, participants)


def plan(drill, number=1, participants=None):
    """The plan alone."""
    return drill.server.plan(
        number,
        dimension=drill.vectors.shape[1],
        context=drill.context,
        participants=participants,
    )


def vector(drill, i, plan):
    """A party's vector for a plan."""
    return drill.parties[i].handle_plan(plan, drill.vectors[i], context=drill.context)


def sent(drill, plans, absent=()):
    """After the vectors: the messages by party, and the server's list."""
    messages = {i: vector(drill, i, plan) for i, plan in plans.items() if i not in absent}
    for message in messages.values():
        drill.server.handle_vector(message)
    return messages


def masked(drill, number=1, absent=()):
    """After the vectors: the vector messages by party, and the server's list."""
    return sent(drill, planned(drill, number), absent), drill.server.close()


def signed(drill, listed):
    """After the confirmations: messages by party."""
    for i in drill.server.survivors:
        drill.server.handle_confirm(drill.parties[i].handle_survivors(listed))
    return drill.server.build_confirmations()


def confirmed(drill, number=1, absent=()):
    """The same of a whole round."""
    return signed(drill, masked(drill, number, absent)[1])


def revealed(drill, confirmations, silent=()):
    """The rest of a round: the total."""
    for i, message in confirmations.items():
        if i not in silent:
            drill.server.handle_reveal(drill.parties[i].handle_confirmations(message))
    return drill.server.finish()


def summed(drill, plans, absent=(), silent=()):
    """The rest of a round, from its plans: the total."""
    sent(drill, plans, absent)
    return revealed(drill, signed(drill, drill.server.close()), silent)


def finished(drill, number=1, absent=(), silent=()):
    """A whole round: the total."""
    return summed(drill, planned(drill, number), absent, silent)


def listed(drill, parties, number=1):
    """The Survivors that a server of ill will sends."""
    flags = np.isin(np.arange(drill.run.parties), list(parties))
    message = Survivors(sender=SERVER, round_number=number, survivors=pack_mask(flags))
    return encode(drill.run, message)


@pytest.fixture(scope="session")
def drill():
    """The functions above, so that test modules need no import of this file."""
    functions = (
        build, sparse, advertised, rostered, joined, prepared, delivered, planned, plan, vector,
        sent, masked, signed, confirmed, revealed, summed, finished, listed,
    )  # fmt: skip
    return SimpleNamespace(**{each.__name__: each for each in functions})
