"""Two neighbouring holdings, asked the same: all that leaves the party is the same but releases.

`tests/fixtures/differential` has the parties and the server. Sequences that a person wrote stand
here, then some from seeds; `python -m differential --seconds 3600` (with `tests/fixtures` in
PYTHONPATH) runs more of them.
"""

from dataclasses import replace

import numpy as np
import pytest
from differential.holdings import KINDS, RECORDS
from differential.offers import offers
from differential.sequences import play
from differential.server import Session, World
from differential.twins import NOW
from safetensors.numpy import save

from parley.privacy.accounting.threat_model import NOISE_POINTS

ROWS, OF_PARTY, TABLE = (
    next(kind for kind in KINDS if kind.name == name)
    for name in ("rows record replace-one", "table party replace-one", "table record replace-one")
)
SATURATED = (1.0, 1.0, 0.0, 0.0, 0.0)
NEAR = (1.0, 1e-4, 0.0, 0.0, 0.0)
CELLS = ("30", "0.5", "0.25", "Female", "a", "p1", "no")
RARE = ("99", "0.5", "0.25", "Female", "a", "p1", "no")
MALE = ("30", "0.5", "0.25", "Male", "a", "p1", "no")


@pytest.fixture
def twins(tmp_path):
    """Worlds of twins with given holdings, all draws from seeds."""
    made = []

    def make(kind, one, two, **more):
        more.setdefault("held", (one, one))
        made.append(World(root=tmp_path, kind=kind, holdings=(one, two), **more))
        context = made[0].entropy.everywhere()
        context.__enter__()
        made.append(context)
        return made[0]

    yield make
    world, context = made
    context.__exit__(None, None, None)
    world.close()
    assert not world.twins.found, list(map(str, world.twins.found))


def asked(world, name, run, **changes):
    """A session of an offer, joined by everybody."""
    offer = offers(world.kind, world.parties)[name]()
    session = Session(
        world=world,
        offer=offer,
        run=run,
        session=f"{len(run):02x}{run.encode().hex()}".ljust(32, "0")[:32],
        plan=replace(offer.plan, **changes),
    )
    session.join()
    return session


def state(session, first):
    """A model whose first coordinate is given."""
    tensors = {name: np.zeros(shape) for name, shape in session.offer.shapes.items()}
    if tensors["theta"].size:
        tensors["theta"][0] = first
    return save(tensors)


@pytest.mark.parametrize("point", NOISE_POINTS)
@pytest.mark.parametrize("place", [0, 7])
def test_two_gradients_that_may_be_one_are_opened_in_any_two_sums(twins, point, place):
    """All margins are saturated at θ and 2θ, but for those of the record that is looked for."""
    one = [SATURATED] * RECORDS
    two = [*one[:place], NEAR, *one[place + 1 :]]
    world = twins(ROWS, one, two, parties=4)
    session = asked(world, f"gradient-perturbation {point}", "r-1")
    assert session.round(1, state(session, 1e4))
    session.opened()
    assert session.round(2, state(session, 2e4), lost=frozenset({2}))
    session.opened()


@pytest.mark.parametrize("point", ["server", "share"])
@pytest.mark.parametrize("reopened", [False, True])
def test_two_counts_that_may_be_nought_are_opened_in_any_two_sums(twins, point, reopened):
    """One party drops out by nature: the server need not lie."""
    world = twins(TABLE, [CELLS] * RECORDS, [*[CELLS] * (RECORDS - 1), RARE], parties=4)
    first = asked(world, f"query count never {point}", "r-1")
    assert first.round(1, state(first, 0.0))
    first.opened()
    if reopened:
        world.twins.open()
    second = asked(world, f"query count rare {point}", "r-2")
    assert second.round(1, state(second, 0.0), lost=frozenset({2}))
    second.opened()


@pytest.mark.parametrize(
    ("kind", "name", "one", "two"),
    [
        (ROWS, "held-out-counts server", SATURATED, NEAR),
        (ROWS, "held-out-counts share", SATURATED, NEAR),
        (TABLE, "query by-party count share", CELLS, MALE),
    ],
)
def test_a_record_held_out_or_asked_about_by_party_is_in_masked_counts_alone(
    twins, kind, name, one, two
):
    several = [one] * RECORDS, [two, *[one] * (RECORDS - 1)]
    if kind is ROWS:  # what is learned from is the same
        world = twins(kind, several[0], several[0], held=several)
    else:
        world = twins(kind, *several)
    session = asked(world, name, "r-1")
    assert session.round(1, state(session, 1.0))
    session.opened()
    assert world.twins.vectors["another"]


@pytest.mark.parametrize("name", ["inspect with sizes", "inspect without", *range(1, 25, 5)])
def test_a_party_that_is_hidden_whole_tells_nobody_how_many_records_it_has(twins, name):
    """Not for the asking, nor for any `min_records` of the server's choice."""
    world = twins(OF_PARTY, [CELLS] * 3, [CELLS] * 21)
    if not isinstance(name, int):
        data = {"run": "r", "dataset": "ward", "label": "columns", "intercept": False}
        sizes = name == "inspect with sizes"
        world.ask(0, "inspect", **data, features={}, sizes=sizes, clock=NOW)
        return
    session = asked(world, "query count share", "r-1", min_records=name)
    if session.alive and session.round(1, state(session, 0.0)):
        session.opened()


@pytest.mark.parametrize("name", ["fedavg", "distributed-dp-sgd share"])
def test_nor_does_a_party_whose_model_is_hidden_whole(twins, name):
    one = [SATURATED] * 3
    world = twins(
        next(kind for kind in KINDS if kind.name == "rows party replace-one"), one, one * 5
    )
    session = asked(world, name, "r-1")
    assert session.alive
    for step in range(1, session.plan.steps + 1):
        if session.round(1, state(session, 0.0), step=step):
            session.opened()


# A sequence takes about a second: four real parties or more, with ledgers on a disk.
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_server_that_deviates_learns_nothing_beside_releases(kind):
    sequence, found = play(1, kinds=(kind,))
    assert not found, list(map(str, found))
    assert len(sequence.world.twins.answers) > 20


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_nor_in_many_sequences(kind):
    for seed in range(1000, 1025):
        _, found = play(seed, kinds=(kind,))
        assert not found, (seed, list(map(str, found)))


def test_every_query_that_is_offered_can_be_asked():
    for kind in KINDS:
        for make in () if kind.rows else offers(kind, 4).values():
            assert make().plan.parties == 4
