"""What a party's owner limits: requests, disclosure, seeds, colluders, models."""

import fcntl
from dataclasses import replace

import pytest
from proposals import refused

from parley.client.algorithms.task_codec import describe_task
from parley.client.contract.message_frames import (
    REQUESTS,
    WIRE_VERSION,
    MessageFrame,
    encode_frame,
    parse_request,
)
from parley.client.contract.refusals import Declined, Reason
from parley.privacy.accounting.threat_model import NOISE_POINTS
from parley.privacy.sampling.random_stream import Randomness


def test_code_of_ones_own_runs_only_where_the_owner_lists_it(network_world, wired):
    task = describe_task(network_world.algorithm)
    for kind in ("os:getcwd", "tests.client.conftest:World", "pca-mlp"):
        other = {**task, "network": {**task["network"], "kind": kind}}
        assert refused(network_world, wired, task=other) == "model"
    huge = {**task, "network": {**task["network"], "hidden": [10**7, 10**7]}}
    assert refused(network_world, wired, task=huge) == "model"


def test_parameters_weaker_than_the_owner_allows_are_declined(world, wired):
    def with_parameters(**changes):
        run = world.parameters(**changes)
        return refused(world, wired, parameters=run.to_bytes().hex())

    assert with_parameters(parties=4) == "wrong-run"
    assert with_parameters(rounds=8 * (world.rounds + 1) + 1) == "protocol"
    unconfirmed = bytearray(world.parameters().to_bytes())
    unconfirmed[-2] = 0
    assert refused(world, wired, parameters=unconfirmed.hex()) == "protocol"
    assert with_parameters(session="0b" * 16) == "wrong-run"
    assert refused(world, wired, parameters="00") == "protocol"


def test_what_a_run_may_ask_beforehand(world, wired):
    assert world.inspect(sizes=False).head["records"] is None
    assert wired.reason(world.inspect(dataset="wing")) == "unknown-dataset"
    assert wired.reason(world.inspect(dataset=["ward"])) == "protocol"
    assert wired.reason(world.inspect(label="elephant")) == "model"
    assert wired.reason(world.inspect(clock=wired.NOW + 301)) == "clock-skew"
    assert wired.reason(world.inspect(clock=True)) == "protocol"
    assert wired.reason(world.inspect(clock=10**400)) == "protocol"
    assert wired.reason(world.inspect(version=WIRE_VERSION + 1)) == "version"
    assert wired.reason(world.inspect(version=True)) == "version"
    assert wired.reason(world.inspect(more=1)) == "protocol"
    assert wired.reason(world.ask(0, "survivors", [b""], session="0f" * 16)) == "unknown-session"
    assert wired.reason(world.ask(0, "survivors", [b""], session="../../etc")) == "protocol"
    assert wired.reason(world.ask(0, "finish", [b""], session="0f" * 16)) == "protocol"


def test_what_the_owner_does_not_disclose_or_serve(tmp_path, wired):
    world = wired.World(tmp_path)
    world.consent({"disclose-size": False})
    assert wired.reason(world.inspect()) == "sizes-not-disclosed"
    weighted = replace(world.plan, weights="size")
    assert refused(world, wired, plan=weighted) == "sizes-not-disclosed"
    world.consent({}, neighbouring="add-or-remove-one")
    assert wired.reason(world.inspect()) == "sizes-not-disclosed"
    world.consent({}, prepared="elsewhere.npz")
    assert wired.reason(world.inspect()) == "data-unreadable"
    world.consent({"algorithms": ["fedavg"]})
    assert refused(world, wired) == "algorithm"
    world.consent({"models": ["ridge"]})
    assert refused(world, wired) == "model"
    world.consent({"min-survivors": 3})
    assert refused(world, wired) == "cohort-too-small"
    world.consent({"min-degree": 3})
    assert refused(world, wired) == "protocol"
    world.consent(
        {"colluders-at-least": None}
    )  # of three parties one may be corrupt: the run assumes none
    assert refused(world, wired) == "protocol"
    world.consent({}, epsilon=0.001)
    assert refused(world, wired) == "budget-exhausted"
    world.consent({})
    wired.ok(world.ask(0, "join", **world.join_head()))
    world.consent({}, epsilon=51)  # a budget is fixed at its first use
    assert refused(world, wired, session="0b" * 16) == "data-unreadable"
    (world.folders[0] / "ledger.sqlite").write_bytes(b"no ledger")
    world.consent({})
    assert refused(world, wired, session="0b" * 16) == "error"


def test_an_account_that_is_planned_for_another_run_has_nothing_left(tmp_path, wired):
    """Its records are readable: `data-unreadable` would send the operator to look at them."""
    world = wired.World(tmp_path, certificate="plan")
    world.join()
    wired.ok(world.vectors(1)[0])
    other = {"plan": replace(world.plan, run_id="r-2"), "run": "r-2", "session": "0b" * 16}
    assert refused(world, wired, **other) == "budget-exhausted"
    assert "certificate plan" in (world.folders[0] / "party.log").read_text()


def test_a_request_that_finds_another_one_at_work_is_told_so(world, wired):
    with (world.folders[0] / "party.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert wired.reason(world.inspect()) == "busy"
    wired.ok(world.inspect())


def test_seeded_noise_is_for_who_says_so(tmp_path, wired):
    world = wired.World(tmp_path, policy={"allow-seeded-noise": True})
    seeded = replace(world.plan, seeded=True)
    wired.ok(world.ask(0, "join", **world.join_head(plan=seeded.to_json())))


@pytest.mark.parametrize(("seeded", "same"), [(True, True), (False, False)])
def test_a_partys_seed_is_for_seeded_plans_alone(tmp_path, wired, monkeypatch, seeded, same):
    drawn = []
    monkeypatch.setattr(
        Randomness, "check", lambda self, seeded: drawn.append((self.seed, self.party, seeded))
    )
    world = wired.World(tmp_path, policy={"allow-seeded-noise": True, "seed": 9})
    world.plan = replace(world.plan, seeded=seeded)
    world.join()
    world.vectors(1)
    assert drawn == [(9 if same else None, party, seeded) for party in range(world.count)]


def test_a_party_that_takes_no_servers_noise_declines_it(tmp_path, wired):
    world = wired.World(tmp_path, policy={"noise-points": ["share", "party"]}, reopen=False)
    assert world.plan.primary.noise_point is NOISE_POINTS["server"]
    assert wired.reason(world.ask(0, "join", **world.join_head())) == "mechanism"
    world.propose("privacy.noise-point=share")
    wired.ok(world.ask(0, "join", **world.join_head("0b" * 16)))


def test_a_run_that_assumes_fewer_colluders_than_the_party_is_declined_with_its_shares(
    tmp_path, wired
):
    world = wired.World(
        tmp_path,
        policy={"colluders-at-least": 1},
        overrides=("privacy.noise-point=share",),
        reopen=False,
    )
    assert world.plan.shared_guarantee.shares.colluders == 0
    assert wired.reason(world.ask(0, "join", **world.join_head())) == "protocol"


GOOD = {str: "ward", bool: True, float: 1, int: 1, object: {"any": [1]}}
GOOD[tuple[str, ...]] = ["2024"]
BAD = {
    str: [None, 1, "x" * 513],
    bool: [0, None, "true"],
    float: [True, None, "1", 1e302],
    int: [True, 1.0, 2**63],
    object: [],
    tuple[str, ...]: [None, "2024", ["2024"] * 65],
}


@pytest.mark.parametrize("kind", sorted(REQUESTS))
def test_a_value_of_another_type_is_a_breach_of_the_protocol(kind):
    hints, blobs = REQUESTS[kind]
    good = {key: GOOD[hint] for key, hint in hints.items()}

    def asked(**changed):
        head = {"version": WIRE_VERSION, **good, **changed}
        return parse_request(encode_frame(MessageFrame(kind=kind, head=head, blobs=(b"",) * blobs)))

    assert asked().head == {"version": WIRE_VERSION, **good}
    for key, hint in hints.items():
        for value in BAD[hint]:
            with pytest.raises(Declined, match=f"Expected {key} to ") as error:
                asked(**{key: value})
            assert error.value.reason is Reason.PROTOCOL
