"""Parties added up by pieces: the same bits as one block's, whoever refuses or is lost."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.client.data.threaded_chunks import compute_chunk_ranges
from parley.client.party.party_session import PartySession
from parley.client.party.refusal_rules import RefusalRules
from parley.privacy.accounting.threat_model import Neighbouring
from parley.privacy.sampling.random_stream import Randomness
from parley.server.jobs.job_file import load_job
from parley.server.planning.run_stages import get_rounds_stage
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.engine.streamed_sum import SumRequest, list_pieces, sum_parties

SIZES = ("data.partition=sizes", "data.sizes=[31, 30, 47, 30, 33]")
UPDATES = (
    *("algorithm.kind=fedavg", "model.kind=mlp", "model.hidden=[3]", "privacy.epsilon=8"),
    "dp-sgd.local-steps=2",
)
WORLDS = {
    "shares": ("data.partition=iid",),
    "sizes": ("parties.weights=size", *SIZES),
    "private sizes": ("privacy.neighbouring=add-or-remove-one", "parties.min-records=30"),
    "softmax": ("model.kind=softmax", "data.source=digits", "privacy.noise-point=server"),
    "clipped": ("algorithm.clip-norm=0.3", "privacy.noise-point=server"),
    "optima": ("algorithm.kind=output-perturbation", *SIZES),
    "noise in objectives": ("algorithm.kind=objective-perturbation", "privacy.noise-point=party"),
    "updates": (*UPDATES, *SIZES, "dp-sgd.sampling-rate=0.3"),
    "sampled updates": (*UPDATES, "privacy.unit=party", "parties.per-round=0.5"),
    "a number of updates": (*UPDATES, "privacy.unit=party", "parties.per-round=3"),
    "steps": ("algorithm.kind=distributed-dp-sgd", *UPDATES[1:], "dp-sgd.sampling-rate=0.3"),
}


@pytest.fixture(scope="module", params=WORLDS)
def asked(request):
    own = (
        *("parties.count=5", "data.records=220", "run.seed=5", "run.noise-shares=full"),
        "privacy.delta=1e-4",
    )
    job = load_job(overrides=[*own, *WORLDS[request.param]])
    world = load_experiment(job)
    job = job.resolve_auto(world.federation, world.data.classes)
    algorithm, stages = world.plan_inputs.build(job)
    plan = get_rounds_stage(stages).plan.with_round(1)
    state = {**algorithm.init(), "theta": np.full(algorithm.dimension, 0.05)}

    def session():
        policy = RefusalRules(units=frozenset(plan.units), neighbouring=frozenset(Neighbouring))
        return PartySession(
            block=world.block,
            algorithm=algorithm,
            rules=policy,
            randomness=Randomness.from_seed(5),
        )

    return session, plan, state


@pytest.fixture(scope="module", autouse=True)
def rows_of_one_party():
    """Contributions are encoded and added up a party at a time, on every core."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("parley.client.data.threaded_chunks._ROWS_BYTES", 1)
        yield


@settings(max_examples=15, deadline=None)
@given(
    cuts=st.sets(st.integers(1, 4)),
    refused=st.sets(st.integers(0, 4), max_size=3),
    lost=st.sets(st.integers(0, 4), max_size=3),
    kept=st.sets(st.integers(0, 4)),
)
def test_any_cut_of_the_block_adds_up_to_the_same_bits(asked, cuts, refused, lost, kept) -> None:
    made, plan, state = asked
    whole = made().answer(plan, state, declining=np.array(sorted(refused), dtype=np.int64))
    ends = [0, *sorted(cuts), 5]
    session = made()
    pieces = sum_parties(
        session,
        SumRequest(
            plan=plan,
            state=state,
            refused=refused,
            absent=refused | lost,
            kept=np.array(sorted(kept), dtype=np.int64),
        ),
        list(pairwise(ends)),
    )
    counted = [party for party in range(5) if party not in refused | lost]
    expected = whole.encoded[counted].sum(axis=0, dtype=whole.encoded.dtype)
    assert np.array_equal(pieces.total, expected)
    assert np.array_equal(pieces.kept, whole.encoded[sorted(kept)])
    assert session.answered_releases.tolist() == [int(party not in refused) for party in range(5)]


def test_pieces_cover_the_parties_once_and_a_party_is_never_cut(asked) -> None:
    session = asked[0]()
    pieces = list_pieces(session.algorithm, session.block)
    assert [first for first, _ in pieces] == [0, *(last for _, last in pieces[:-1])]
    assert pieces[-1][1] == session.block.parties
    assert compute_chunk_ranges(np.array([0, 900, 950, 990, 1050]), 100) == [(0, 1), (1, 3), (3, 4)]


@pytest.mark.parametrize("asked", ["clipped"], indirect=True)
def test_a_repeated_release_counts_once(asked) -> None:
    made, plan, _ = asked
    session = made()
    everyone, some = slice(None), np.array([0, 1, 3])
    for number, parties in ((1, some), (1, everyone), (1, some), (2, everyone)):
        session.charge(plan.with_round(number), parties)
    session.charge(plan.with_round(3), some)
    assert session.answered_releases.tolist() == [3, 3, 2, 3, 2]
