"""The party's service over the wire: sums that agree to the bit, charged once, by any process."""

from dataclasses import replace

import numpy as np
import pytest
from agreements import NETWORK
from plans import with_primary

from parley.client.algorithms.output_perturbation import OutputPerturbation
from parley.client.contract.message_frames import decode_frame, encode_frame
from parley.client.party import release_charge
from parley.client.party.party_folder import PartyFolder
from parley.client.party.party_responses import ReleaseResponse
from parley.client.party.party_session import PartySession
from parley.privacy.accounting.composition import Composition
from parley.privacy.ledger.ledger import Ledger
from parley.secure_agg.messages import Survivors, decode, encode


def charged(world, party=0):
    with Ledger.open(world.folders[party] / "ledger.sqlite", read_only=True) as ledger:
        return [(r.entry.index, r.state.value, r.outcome) for r in ledger.list_entries()]


@pytest.mark.parametrize("reopen", [True, False])
def test_two_rounds_over_the_wire_give_the_plain_sum_whoever_serves_the_messages(
    tmp_path, wired, reopen
):
    world = wired.World(tmp_path, reopen=reopen)
    seen = wired.ok(world.inspect(2)).head
    assert (seen["party"], seen["features"], seen["classes"], seen["records"]) == (2, 4, 0, 60)
    world.join()
    state = world.algorithm.init()
    for number in (1, 2):
        answers = world.vectors(number, number, state=world.state(state["theta"]))
        assert [a.head["status"] for a in answers.values()] == ["ok"] * 3
        result = world.opened()
        np.testing.assert_array_equal(result, world.plain_sum(state=state, number=number))
        state = {"theta": state["theta"] + 0.125}
    for i in range(3):
        assert [(index, kind) for index, kind, _ in charged(world, i)] == [
            (1, "committed"),
            (2, "committed"),
        ]
        wired.ok(world.ask(i, "finish", session=world.session))
        assert wired.reason(world.ask(i, "finish", session=world.session)) == "unknown-session"


FIVE = (40, 50, 60, 45, 55)


def names(world, party=0):
    return [path.name for path in (world.folders[party] / "state").iterdir()]


def test_noise_inside_the_party_is_drawn_once_for_a_round(tmp_path, wired):
    world = wired.World(tmp_path, overrides=NETWORK)
    assert str(world.plan.primary.noise_point) == "party"
    world.join()

    def kept(party=0):
        (name,) = [n for n in names(world, party) if n.startswith("release-")]
        return (world.folders[party] / "state" / name).read_bytes()

    world.vectors(1)
    drawn = kept()
    world.vectors(2)
    first = world.opened()
    assert kept()[-100:] == drawn[-100:]
    world.join(session="0b" * 16)
    world.vectors(1)
    np.testing.assert_array_equal(world.opened(), first)
    assert [index for index, _, _ in charged(world)] == [1]
    world.vectors(2, 2)
    assert kept()[-100:] != drawn[-100:]
    assert [index for index, _, _ in charged(world)] == [1, 2]


def test_an_earlier_round_cannot_be_computed_again_once_the_next_was_answered(tmp_path, wired):
    world = wired.World(tmp_path)
    world.join()
    world.vectors(1, 1)
    world.vectors(2, 2)
    answers = world.vectors(3, 1)
    assert [wired.reason(a) for a in answers.values()] == ["protocol"] * 3


def test_another_model_or_plan_for_a_round_that_was_answered_is_refused(tmp_path, wired):
    world = wired.World(tmp_path)
    world.join()
    world.vectors(1)
    moved = world.state(world.algorithm.init()["theta"] + 1e-9)
    answers = world.vectors(2, state=moved, prepare=3)
    assert [wired.reason(a) for a in answers.values()] == ["plan-changed"] * 3
    # Another plan within the session, and then a whole new session with another plan.
    other = with_primary(world.plan, sensitivity=world.plan.primary.sensitivity * 2)
    world.prepare(3)
    answers = world.vectors(3, plan=other)
    assert [wired.reason(a) for a in answers.values()] == ["plan-changed"] * 3
    world.propose("privacy.epsilon=2")
    world.join(session="0b" * 16)
    answers = world.vectors(1)
    assert [wired.reason(a) for a in answers.values()] == ["plan-changed"] * 3
    assert [index for index, _, _ in charged(world)] == [1]


def test_a_budget_that_cannot_bear_all_rounds_declines_the_job_before_the_first(tmp_path, wired):
    world = wired.World(tmp_path)
    world.consent({}, party=1, epsilon=for_rounds(world, 1.5), **{"epsilon-per-job": 50.0})
    reply = world.ask(1, "join", **world.join_head())
    assert wired.reason(reply) == "budget-exhausted"
    assert charged(world, 1) == []
    world.join(rounds=1)
    assert {a.head["status"] for a in world.vectors(1).values()} == {"ok"}
    assert [index for index, _, _ in charged(world, 1)] == [1]


def test_a_budget_that_another_job_took_since_declines_round_two(tmp_path, wired, monkeypatch):
    world = wired.World(tmp_path)
    world.consent({}, party=1, epsilon=for_rounds(world, 1.5), **{"epsilon-per-job": 50.0})
    monkeypatch.setattr(
        "parley.client.party.budget_checks.check_remaining_budget", lambda *_, **__: None
    )
    world.join()
    assert {a.head["status"] for a in world.vectors(1, 1).values()} == {"ok"}
    world.opened()
    answers = world.vectors(2, 2)
    assert [a.head["status"] for a in answers.values()] == ["ok", "refused", "ok"]
    assert wired.reason(answers[1]) == "budget-exhausted"
    assert [index for index, _, _ in charged(world, 1)] == [1]
    assert [index for index, _, _ in charged(world, 0)] == [1, 2]


def for_rounds(world, count):
    """An ε between those of ⌊count⌋ and ⌊count⌋ + 1 rounds."""
    one = world.plan.compute_event(world.plan.primary.unit)
    spent = [Composition().add(one, count=n).compute_lowest_epsilon(1e-5)[1] for n in (1, 2)]
    return spent[0] + (count - 1) * (spent[1] - spent[0])


def test_a_job_may_not_take_more_than_its_share_though_it_lied_about_its_rounds(tmp_path, wired):
    world = wired.World(tmp_path)
    limit = (
        Composition()
        .add(world.plan.compute_event(world.plan.primary.unit), count=1)
        .compute_lowest_epsilon(1e-5)[1]
        * 1.01
    )
    world.consent({}, **{"epsilon-per-job": limit})
    reply = world.ask(0, "join", **world.join_head())
    assert wired.reason(reply) == "budget-exhausted"  # it says that it wants three
    world.join(rounds=1)
    world.vectors(1)
    answers = world.vectors(2, 2)
    assert [wired.reason(a) for a in answers.values()] == ["wrong-run"] * 3
    world.join(session="0b" * 16, rounds=1, plan=world.plan.to_json())
    assert [index for index, _, _ in charged(world)] == [1]


@pytest.mark.parametrize("point", ["share", "server"])
@pytest.mark.parametrize("fault", ["raises", "exits", "blames", "is not certified"])
def test_a_computation_that_fails_is_an_answer_like_any_other(
    tmp_path, wired, monkeypatch, fault, point
):
    """Whether one fails may depend on a record: neither the server nor the log is told."""
    overrides = ("algorithm.kind=output-perturbation", f"privacy.noise-point={point}")
    world = wired.World(tmp_path, overrides=overrides, reopen=False)
    world.join()
    heard = world.round_requests(1)
    local, failures = OutputPerturbation.local, {"raises": MemoryError, "exits": SystemExit}
    failures["blames"] = KeyError  # as a cause that was never raised, so it has no line

    def unlucky(self, state, block, plan, randomness):
        given = local(self, state, block, plan, randomness)
        if fault == "blames" and randomness.party == 0:
            raise ValueError("of the 40 records") from KeyError("record 40")
        if fault in failures and randomness.party == 0:
            raise failures[fault]("of the 40 records")
        return replace(given, failed=(0,) if randomness.party == 0 else ())

    with monkeypatch.context() as patch:
        patch.setattr(OutputPerturbation, "local", unlucky)
        answers = [wired.ok(world.raw(i, encode_frame(heard[i]))) for i in range(3)]
    assert len({len(encode_frame(answer)) for answer in answers}) == 1
    logs = [(folder / "party.log").read_text().splitlines() for folder in world.folders]
    said = [[line.partition(f" site-{i}: ")[2] for line in log] for i, log in enumerate(logs)]
    assert said[0] == said[1] == said[2]
    assert charged(world, 0) == charged(world, 1)
    files = [{n: len(b) for n, b in world.files(i).items() if "state" in n} for i in range(3)]
    assert files[0] == files[1] == files[2]
    vector = np.frombuffer(kept_vector(world, 0), world.plan.encoding.dtype)
    assert vector.any() == (point == "share" or fault not in failures)  # zeros have their share
    # Its owner is told, and a repeated round gets the very same.
    (said,) = PartyFolder(path=world.folders[0]).list_failures().values()
    expected = f"{failures[fault].__name__} at " if fault in failures else "not certified"
    assert said.startswith(expected)
    assert "40" not in said
    assert PartyFolder(path=world.folders[1]).list_failures() == {}
    world.join(session="0b" * 16)
    world.vectors(1)
    assert kept_vector(world, 0) == vector.tobytes()
    assert world.opened().any()


def kept_vector(world, party):
    (file,) = (world.folders[party] / "state").glob("release-*")
    return decode_frame(file.read_bytes()).blobs[-1]


def test_nothing_that_was_computed_leaves_without_a_receipt_of_the_ledgers():
    with pytest.raises(TypeError):
        release_charge.Receipt(release=bytes(32))
    with pytest.raises(TypeError, match="another"):
        release_charge.Receipt(release=bytes(32), key=object())
    with pytest.raises(TypeError):
        ReleaseResponse(blobs=(b"",))


def test_what_only_refuses_is_nothing_that_a_charge_depends_on(tmp_path, wired, monkeypatch):
    """A party that takes whatever is proposed charges what it costs, and shows no more."""
    world = wired.World(tmp_path)
    for name in (
        *(
            "budget_checks.check_budget",
            "budget_checks.check_round",
            "owner_approval.OwnerApprovals.require",
        ),
        *(
            "accepted_run.check_plan",
            "query_validation.check_queries",
            "accepted_run.check_components",
        ),
    ):
        monkeypatch.setattr(f"parley.client.party.{name}", lambda *_, **__: None)
    world.join()
    assert {each.head["status"] for each in world.vectors(1).values()} == {"ok"}
    with Ledger.open(world.folders[0] / "ledger.sqlite", read_only=True) as ledger:
        (account,) = ledger.list_accounts()
        assert account.spent == Composition().add(world.plan.compute_event(account.key.unit))
    own = world.plan.primary
    weaker = replace(
        own, mechanism=replace(own.mechanism, sensitivity=own.mechanism.sensitivity / 2)
    )
    plan = replace(world.plan, guarantees=(weaker,)).to_json()
    reply = world.ask(0, "join", **world.join_head(session="0c" * 16, plan=plan))
    assert wired.reason(reply) == "sensitivity"


@pytest.mark.parametrize("found", ["lost", "of another round"])
def test_a_contribution_that_is_not_kept_is_not_made_again(tmp_path, wired, monkeypatch, found):
    """Whatever the folder gives back: one that does not say what it is of is no contribution."""
    world = wired.World(tmp_path)
    world.join()
    world.vectors(1)
    known = PartyFolder(path=world.folders[0]).load_contribution(world.plan.run_id, "ward")
    other = replace(known, head={**known.head, "release": "00" * 32})
    kept = None if found == "lost" else other
    monkeypatch.setattr(PartyFolder, "load_contribution", lambda *_: kept)
    world.join(session="0b" * 16)
    answers = world.vectors(1)
    assert {each.head["status"] for each in answers.values()} == {"refused"}


def test_what_was_opened_for_one_list_is_not_opened_for_another(tmp_path, wired):
    world = wired.World(tmp_path, sizes=FIVE)
    world.join()
    world.vectors(1)
    world.opened()
    world.join(session="0b" * 16)
    requests = world.round_requests(1)
    for i in range(4):  # the server says that party 4 fell silent
        reply = wired.ok(world.raw(i, encode_frame(requests[i])))
        world.server.handle_vector(reply.blobs[0])
    run, listed = world.server.run, world.server.close()
    for i in range(4):
        reply = world.ask(i, "survivors", [listed], session=world.session)
        assert wired.reason(reply) == "other-survivors"
        # The round is over: not even the list that it was opened for would be answered now.
        every = encode(run, replace(decode(run, listed, Survivors), survivors=b"\xf8"))
        again = world.ask(i, "survivors", [every], session=world.session)
        assert wired.reason(again) == "protocol"


@pytest.mark.parametrize("broken", ["commit_charge", "save_session", "save_contribution"])
def test_a_process_killed_anywhere_in_a_round_leaves_one_charge_and_one_contribution(
    tmp_path, wired, monkeypatch, broken
):
    world = wired.World(tmp_path, overrides=NETWORK)
    world.join()
    made = []
    computed = PartySession.answer

    def counted(*args, **options):
        made.append(1)
        return computed(*args, **options)

    def dies(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(PartySession, "answer", counted)
    with monkeypatch.context() as patch:
        patch.setattr(release_charge if broken == "commit_charge" else PartyFolder, broken, dies)
        answers = world.vectors(1)
        assert [wired.reason(a) for a in answers.values()] == ["error"] * 3
    first = {n: b for n, b in world.files(0).items() if "release-" in n}
    assert bool(first) == (broken != "save_contribution")
    world.join(session="0b" * 16)
    answers = world.vectors(1)
    assert [a.head["status"] for a in answers.values()] == ["ok"] * 3
    again = {n: b for n, b in world.files(0).items() if "release-" in n}
    assert first in ({}, again)
    # What was computed and never kept was never sent: computing it anew is no second release.
    assert len(made) == (6 if broken == "save_contribution" else 3)
    assert [(index, kind) for index, kind, _ in charged(world)] == [(1, "committed")]
    world.opened()


def test_a_party_weighs_its_own_optimum_by_its_size(tmp_path, wired):
    output = ("algorithm.kind=output-perturbation", "algorithm.rounds=1", "model.lambda=0.5")
    given = []
    for weights in ("uniform", "size"):
        (tmp_path / weights).mkdir()
        world = wired.World(tmp_path / weights, overrides=(*output, f"parties.weights={weights}"))
        encoding = world.plan.encoding
        given.append(encoding.to_float(encoding.decode(world.encoded())))
    share = np.array(world.sizes)[:, None] / np.mean(world.sizes)
    np.testing.assert_allclose(given[1], given[0] * share, atol=1e-3)
    assert np.abs(given[0]).max() > 0.05
