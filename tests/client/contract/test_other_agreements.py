"""Parties told different things, or a contribution opened in two lists: the server gets noise."""

import numpy as np
import pytest
from agreements import NETWORK, told_otherwise
from plans import with_primary
from safetensors.numpy import save

from parley.client.algorithms.task_codec import describe_task
from parley.client.contract.message_frames import decode_frame, encode_frame
from parley.client.party.owner_policy import OwnerPolicy
from parley.client.party.policy_writing import format_policy
from parley.client.party.unmasking_log import _HEAD_MARK
from parley.privacy.accounting.threat_model import Unit
from parley.privacy.ledger.ledger import Ledger


def two_names(world):
    """The same records under two names, as an owner may serve them."""
    given = {"prepared": "rows.npz", "epsilon": 50.0, "delta": 1e-5}
    text = {"lock-wait-s": 0.2, "colluders-at-least": 0, "data": {"ward": given, "ward-2": given}}
    for folder in world.folders:
        (folder / "party.toml").write_text(format_policy(OwnerPolicy.model_validate(text)))
    world.services = [world.open(i) for i in range(world.count)]


def task(world, **settings):
    described = describe_task(world.algorithm)
    return {"task": {**described, "settings": {**described["settings"], **settings}}}


def another_plan(world, **changes):
    return {"plan": with_primary(world.plan, **changes).to_json()}


LIES = {
    "nothing": (lambda w: {}, None),
    "the data set": (lambda w: {"dataset": "ward-2"}, None),
    "the label's reading": (lambda w: {"label": "network"}, None),
    "the intercept": (lambda w: {"intercept": False}, "schema"),
    "the features": (
        lambda w: {"features": {"name": "bins", "settings": {}, "digest": "0" * 64}},
        "model",
    ),
    "the schema": (lambda w: {"schema": "0" * 64}, "schema"),
    "the number of rounds": (lambda w: {"rounds": 4}, None),
    "the run": (lambda w: {"run": "r-2", "plan": w.plan.with_run_id("r-2").to_json()}, None),
    "the task": (lambda w: task(w, learning_rate=0.25), None),
    "the loss": (
        lambda w: {
            "task": {
                **describe_task(w.algorithm),
                "model": {"loss": {"kind": "huber-svm", "width": 0.5}, "features": 5},
            }
        },
        None,
    ),
    "the noise": (
        lambda w: another_plan(w, sensitivity=w.plan.primary.sensitivity * 1.5),
        "sensitivity",
    ),
    "the delta": (lambda w: another_plan(w, delta=2e-5), None),
}


@pytest.mark.parametrize("lie", LIES)
def test_who_tells_the_others_something_else_gets_noise_not_the_targets_vector(
    tmp_path, wired, lie
):
    world = wired.World(tmp_path, reopen=False)
    two_names(world)
    change, refused = LIES[lie]
    got = told_otherwise(world, wired, otherwise=change(world))
    if refused is not None:
        assert got == refused
        return
    vectors = world.encoded()
    every = [vectors[0], vectors[1] + vectors[2], sum(vectors)]
    assert [np.array_equal(got, known) for known in every] == [False, False, lie == "nothing"]


def test_a_target_whose_model_is_another_than_the_others_is_not_read(tmp_path, wired):
    # At a θ of length 10⁶ every margin is clear: nobody but the target contributes anything.
    world = wired.World(tmp_path, reopen=False)
    far = save({"theta": np.full(5, 1e6)})
    got = told_otherwise(world, wired, otherwise={}, state=far)
    assert not np.array_equal(got, world.encoded()[0])


def test_the_task_that_contributed_nothing_is_no_task(tmp_path, wired):
    # At θ = 0 ridge's gradient is −y·x, and with |y| ≤ 0 every label is 0: the others sent zeros.
    world = wired.World(tmp_path, reopen=False)
    loss = {"kind": "ridge", "radius": 1.0, "label_bound": 0.0}
    zero = {**describe_task(world.algorithm), "model": {"loss": loss, "features": 5}}
    assert told_otherwise(world, wired, otherwise={"task": zero}) == "protocol"


# One contribution, two sums.
FIVE = (40, 50, 60, 45, 55)


def summed(world, wired, *, session, serial=1, number=1, without=(), join=True, state=None):
    """One round with a list of survivors: the sum, or the reasons why there is none."""
    if join:
        world.join(session=session)
    requests = world.round_requests(serial, number, prepare=serial + 1, state=state)
    for i, request in requests.items():
        reply = wired.ok(world.raw(i, encode_frame(request)))
        world.server.handle_shares(reply.blobs[1])
        if i not in without:
            world.server.handle_vector(reply.blobs[0])
    listed, reasons = world.server.close(), []
    for i in world.server.survivors:
        reply = world.ask(i, "survivors", [listed], session=session)
        if reply.head["status"] == "ok":
            world.server.handle_confirm(reply.blobs[0])
        else:
            reasons.append(wired.reason(reply))
    if reasons:
        return reasons
    for i, message in world.server.build_confirmations().items():
        reply = wired.ok(world.ask(i, "confirmations", [message], session=session))
        world.server.handle_reveal(reply.blobs[0])
    return world.server.finish()


def spent(world, party=0):
    """The rounds that a party has charged itself, by run."""
    with Ledger.open(world.folders[party] / "ledger.sqlite", read_only=True) as ledger:
        return [(each.entry.run_id, each.entry.index) for each in ledger.list_entries()]


def kept(world):
    """Every party's contribution to the last release that it answered."""
    return [
        decode_frame(max((folder / "state").glob("release-*"), key=_age).read_bytes()).blobs[-1]
        for folder in world.folders
    ]


def _age(path):
    return path.stat().st_mtime_ns


OUTPUT = ("algorithm.kind=output-perturbation",)
SHARED = ("privacy.noise-point=share",)


@pytest.mark.parametrize("release", [(), SHARED, OUTPUT, (*OUTPUT, *SHARED)])
@pytest.mark.parametrize("how", ["another attempt", "another session"])
def test_one_release_is_not_summed_with_two_lists(tmp_path, wired, release, how):
    world = wired.World(tmp_path, overrides=release, sizes=FIVE, reopen=False)
    first = summed(world, wired, session="0a" * 16)
    assert first.any()
    # The round again, party 4 said to be silent: the difference would be its vector.
    again = {"session": "0a" * 16, "serial": 2, "join": False}
    if how == "another session":
        again = {"session": "0b" * 16}
    assert summed(world, wired, without={4}, **again) == ["other-survivors"] * 4
    said = (world.folders[0] / "party.log").read_text().splitlines()[-1]
    assert "A new run of the job" in said
    # The same list tells nothing new.
    again = {**again, "serial": again.get("serial", 1) + 1, "join": False}
    np.testing.assert_array_equal(summed(world, wired, **again), first)
    assert spent(world) == [("r-1", 1)]
    # Its own owner's leave, and the sum is opened.
    world.consent({"insist-on-one-list": False})
    world.services = [world.open(i) for i in range(world.count)]
    assert summed(world, wired, session="0c" * 16, without={4}).any()


@pytest.mark.parametrize("what", ["another round", "another run"])
def test_another_release_is_charged_by_itself_with_shares_of_its_own(tmp_path, wired, what):
    """Whatever it has in common with the one before; so it may be summed with another list."""
    world = wired.World(tmp_path, overrides=SHARED, sizes=FIVE, reopen=False)
    assert world.plan.shared_guarantee is not None
    summed(world, wired, session="0a" * 16)
    first = kept(world)
    again = {"session": "0a" * 16, "serial": 2, "number": 2, "join": False}
    if what == "another run":
        world.run = "r-2"
        world.propose(*SHARED)
        again = {"session": "0b" * 16}
    assert summed(world, wired, without={4}, **again).any()
    assert spent(world) == [("r-1", 1), (world.run, again.get("number", 1))]
    # Everybody who is in both sums has another share in the second: the gradient is the same.
    assert all(one != other for one, other in zip(first, kept(world), strict=True))


@pytest.mark.parametrize(
    "again",
    [(), ("privacy.epsilon=2",), ("privacy.noise=laplace-l1",), ("parties.weights=size",)],
)
def test_one_job_run_twice_is_two_releases_whatever_their_noise(tmp_path, wired, again):
    world = wired.World(tmp_path, overrides=OUTPUT, sizes=FIVE, reopen=False)
    summed(world, wired, session="0a" * 16)
    world.run = "r-2"
    world.propose(*OUTPUT, *again)
    # Output perturbation starts from nothing: another model is the same contribution, too.
    moved = world.state(np.full(5, 0.5))
    assert summed(world, wired, session="0b" * 16, without={4}, state=moved).any()
    assert spent(world) == [("r-1", 1), ("r-2", 1)]


@pytest.mark.parametrize("point", ["share", "server"])
def test_no_refusal_tells_whether_two_vectors_are_equal(tmp_path, wired, point):
    """θ, then 2θ over another list: every slope is the same but that of the record looked for."""
    heard = []
    for there in (True, False):
        root = tmp_path / str(there)
        root.mkdir()
        world = wired.World(
            root, overrides=(f"privacy.noise-point={point}",), sizes=FIVE, reopen=False
        )
        for folder in world.folders:  # margins of ±1800: slopes of exactly 0 and 1
            rows = np.zeros((40, 5))
            rows[:, 0] = np.where(np.arange(40) % 3, 0.9, -0.9)
            rows[0] = 0.0, 0.9, 0.0, 0.0, 0.0  # margin 0 at θ and at 2θ
            if not there and folder == world.folders[0]:
                rows[0, 0] = 1e-4
            np.savez(folder / "rows.npz", features=rows, labels=np.ones(40))
        theta = np.array([2000.0, 0.0, 0.0, 0.0, 0.0])
        summed(world, wired, session="0a" * 16, state=world.state(theta))
        again = {"session": "0a" * 16, "serial": 2, "number": 2, "join": False}
        state = world.state(2 * theta)
        given = summed(world, wired, without={4}, state=state, **again)
        heard.append(given if isinstance(given, list) else "a sum")
    assert heard == ["a sum", "a sum"]


def test_noise_of_the_partys_own_covers_any_number_of_sums(tmp_path, wired):
    world = wired.World(tmp_path, overrides=NETWORK, sizes=FIVE, reopen=False)
    first = summed(world, wired, session="0a" * 16)
    second = summed(world, wired, session="0a" * 16, serial=2, number=2, without={4}, join=False)
    assert first.any()
    assert second.any()
    # Of releases nothing is remembered: only the ledger's end is in it.
    content = (world.folders[0] / "openings").read_bytes()
    assert all(content[at:].startswith(_HEAD_MARK) for at in range(0, len(content), 64))


def test_records_are_not_charged_by_noise_that_only_the_server_adds(tmp_path, wired):
    outer = (*NETWORK, "privacy.unit=both", "privacy.epsilon=9", "privacy.party-epsilon=1")
    outer += ("dp-sgd.noise-multiplier=0.6", "dp-sgd.sampling-rate=0.01")
    data = {"party-epsilon": 50.0, "party-delta": 1e-5}
    world = wired.World(tmp_path, overrides=outer, reopen=False, **data)
    assert world.plan.get_charging_guarantee(Unit.RECORD) is world.plan.get_guarantee(Unit.PARTY)
    assert wired.reason(world.ask(0, "join", **world.join_head())) == "record-bound"
    world.propose(*outer, "privacy.record-bound=inner")
    assert world.plan.get_charging_guarantee(Unit.RECORD) is world.plan.primary
    wired.ok(world.ask(0, "join", **world.join_head("0b" * 16)))
    world.consent({"insist-on-inner": False}, **data)
    world.services = [world.open(i) for i in range(world.count)]
    world.propose(*outer)
    wired.ok(world.ask(0, "join", **world.join_head("0c" * 16)))
