"""Real parties, a real server and a fake wire that a test may tamper with."""

from types import SimpleNamespace

import numpy as np
import pytest

from parley.secure_agg.interface import DropoutPolicy
from parley.secure_agg.pairwise_party import Party
from parley.secure_agg.pairwise_server import Server
from parley.secure_agg.parameters import Policy, RunParameters
from parley.secure_agg.primitives import expand_seed, signing_public

CONTEXT = b"c" * 32


def build(
    parties=5,
    *,
    seed=b"drill",
    dimension=6,
    policy=None,
    corrupt=0,
    work=None,
    **options,
):
    """Parties before their first message, with everything a test may want to look at."""
    run = RunParameters.choose(
        parties=parties,
        min_survivors=options.pop("min_survivors", parties // 2 + 1),
        run_id=b"r" * 16,
        corrupt=corrupt,
        dropped=0,
        **options,
    )
    entropy = expand_seed(seed)
    private = [entropy(32) for _ in range(parties)]
    identities = tuple(signing_public(key) for key in private)
    policy = policy or Policy(
        identities=identities,
        min_survivors=1,
        corrupt=corrupt,
        confirm_survivors=run.confirm_survivors,
        key_exchange=run.key_exchange,
    )
    drawn = []

    def recording(count):
        drawn.append(entropy(count))
        return drawn[-1]

    members = {
        i: Party(run=run, policy=policy, index=i, identity=private[i], entropy=recording, work=work)
        for i in range(parties)
    }
    rng = np.random.default_rng(0)
    top = np.iinfo(f"uint{run.ring_bits}").max
    vectors = rng.integers(
        0, top, (parties, dimension), dtype=f"uint{run.ring_bits}", endpoint=True
    )
    return SimpleNamespace(
        run=run,
        policy=policy,
        private=private,
        identities=identities,
        parties=members,
        server=Server(run=run, identities=identities),
        vectors=vectors,
        context=CONTEXT,
        drawn=drawn,
        entropy=entropy,
    )


def joined(drill):
    """After set-up."""
    for party in drill.parties.values():
        drill.server.on_advertise(party.advertise())
    rostered(drill)
    return drill


def rostered(drill):
    """After the roster: the adverts of some parties are with the server."""
    for i, message in drill.server.roster().items():
        answer = drill.parties[i].on_roster(message)
        if answer:
            drill.server.on_encapsulated(answer)


def delivered(drill):
    """The neighbours' ciphertexts, for whoever has none."""
    for i, party in drill.parties.items():
        message = drill.server.ciphertexts(i)
        if message:
            assert party.on_ciphertexts(message) == b""


def planned(drill, number=1, participants=None):
    """After the plan: messages by party."""
    if drill.run.dropouts is DropoutPolicy.ROBUST:
        if number > 1:
            delivered(drill)
        for party in drill.parties.values():
            drill.server.on_shares(party.prepare(number), number=number)
    delivered(drill)
    return drill.server.plan(
        number,
        dimension=drill.vectors.shape[1],
        context=drill.context,
        participants=participants,
    )


def masked(drill, number=1, absent=()):
    """After the vectors: the vector messages by party, and the server's list."""
    plans = planned(drill, number)
    messages = {
        i: drill.parties[i].on_plan(plan, drill.vectors[i], context=drill.context)
        for i, plan in plans.items()
        if i not in absent
    }
    for message in messages.values():
        drill.server.on_vector(message)
    return messages, drill.server.close()


def confirmed(drill, number=1, absent=()):
    """After the confirmations: messages by party."""
    messages, listed = masked(drill, number, absent)
    for i in messages:
        drill.server.on_confirm(drill.parties[i].on_survivors(listed))
    return drill.server.confirmations()


def finished(drill, number=1, absent=(), silent=()):
    """A whole round: the total."""
    return summed(drill, planned(drill, number), absent, silent)


def summed(drill, plans, absent=(), silent=()):
    """The rest of a round, from its plans: the total."""
    for i, plan in plans.items():
        if i not in absent:
            vector = drill.parties[i].on_plan(plan, drill.vectors[i], context=drill.context)
            drill.server.on_vector(vector)
    listed = drill.server.close()
    for i in drill.server.survivors:
        drill.server.on_confirm(drill.parties[i].on_survivors(listed))
    for i, message in drill.server.confirmations().items():
        if i not in silent:
            drill.server.on_reveal(drill.parties[i].on_confirmations(message))
    return drill.server.finish()


@pytest.fixture(scope="session")
def drill():
    """The functions above, so that test modules need no import of this file."""
    return SimpleNamespace(
        build=build,
        joined=joined,
        rostered=rostered,
        delivered=delivered,
        planned=planned,
        masked=masked,
        confirmed=confirmed,
        finished=finished,
        summed=summed,
    )
