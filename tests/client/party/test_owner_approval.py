"""An owner's yes: what waits for it, what it holds for, and what a server gets by trying."""

import sqlite3
from datetime import UTC, datetime

import pytest

from parley.client.algorithms.task_codec import describe_task
from parley.client.contract.message_frames import encode_frame
from parley.client.party import owner_approval, owner_decisions
from parley.client.party.owner_policy import PolicyError, load_policy, parse_policy
from parley.client.party.party_folder import PartyFolder
from parley.privacy.ledger import owner_actions as ledger_owner
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.ledger.ledger_errors import LedgerConflict

DAY_S = 24 * 3600.0


class Owner:
    """Party 0's owner, beside the party: another process on the same folder."""

    def __init__(self, world):
        self.world, self.folder = world, world.folders[0]

    def ledger(self):
        return Ledger.open(self.folder / "ledger.sqlite")

    def pending(self, ledger=None):
        if ledger is None:
            with self.ledger() as ledger:
                return self.pending(ledger)
        consent = load_policy(self.folder / "party.toml")
        keeper, identities = PartyFolder(path=self.folder), self.world.deployment.identities
        found = owner_approval.OwnerApprovals(
            party_folder=keeper, ledger=ledger, policy=consent, clock=self.world.clock
        )
        return found.list_pending(identities)

    def names(self):
        return [each.id for each in self.pending()]

    def say(self, accepted, name=None, reason=""):
        consent = load_policy(self.folder / "party.toml")
        with self.ledger() as ledger:
            pending = self.pending(ledger)
            name = name or pending[0].id
            at = datetime.fromtimestamp(self.world.clock, UTC).isoformat("T", "milliseconds")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(ledger_owner, "format_now", lambda: at)
                owner_decisions.record_decision(
                    ledger, consent, pending, name, accepted=accepted, reason=reason
                )
            assert ledger.verify() == []
        return name

    def lines(self):
        with self.ledger() as ledger:
            return [each.accepted for each in ledger.list_decisions()]

    def charged(self):
        with self.ledger() as ledger:
            return [each.entry.index for each in ledger.list_entries()]


@pytest.fixture
def world(tmp_path, wired):
    made = wired.World(tmp_path)
    made.consent({}, party=0, **{"approval-above": 0.0})
    return made


@pytest.fixture
def owner(world):
    return Owner(world)


@pytest.fixture
def proposed(world, wired):
    def ask(kind="propose", **changes):
        reply = world.ask(0, kind, **world.join_head(**changes))
        return "ok" if reply.head["status"] == "ok" else wired.reason(reply)

    return ask


def test_one_yes_covers_every_round_of_a_run_in_any_session(world, owner, proposed, wired):
    assert world.inspect().head["asks"] is True
    assert world.inspect(party=1).head["asks"] is False
    assert proposed() == proposed("join") == proposed(session="0b" * 16) == "waiting-for-approval"
    assert (len(owner.names()), owner.charged()) == (1, [])
    owner.say(True)
    assert (owner.names(), owner.lines()) == ([], [True])
    assert proposed(session="0c" * 16) == "ok"
    world.join("0d" * 16)
    for number in (1, 2, 3):
        assert all(wired.ok(each) for each in world.vectors(number, number).values())
        world.opened()
    assert owner.charged() == [1, 2, 3]


def test_a_yes_that_is_replayed_holds_for_no_other_job(world, owner, proposed):
    proposed()
    name = owner.say(True)
    world.propose("privacy.epsilon=6")
    dearer, task = world.plan.to_json(), describe_task(world.algorithm)
    world.propose()
    label = {"task": task, "label": "ridge"}
    for change in (
        {"plan": dearer},
        {"rounds": 2},
        {"run": "r-2", "plan": world.plan.with_run_id("r-2").to_json()},
    ):
        assert proposed(**change) == proposed("join", **change) == "waiting-for-approval", change
    assert proposed(**label) != "ok"
    for again in owner.pending():
        assert again.id != name
    owner.say(True, name)  # once more, by its old name
    assert owner.lines() == [True]
    assert proposed(rounds=2) == "waiting-for-approval"
    assert proposed() == "ok"


def test_of_two_jobs_at_once_each_has_its_own_yes(world, owner, proposed):
    other = {"run": "r-2", "plan": world.plan.with_run_id("r-2").to_json()}
    assert proposed() == proposed(**other) == "waiting-for-approval"
    first, second = owner.names()
    owner.say(True, second)
    assert (proposed(), proposed(**other)) == ("waiting-for-approval", "ok")
    owner.say(False, first, reason="not this year")
    assert (proposed(), proposed(**other)) == ("refused-by-owner", "ok")
    assert owner.charged() == []


def test_a_party_that_restarts_still_waits_for_the_same_yes(world, owner, proposed):
    proposed()
    before = owner.names()
    world.services[0].close()
    world.services[0] = world.open(0)
    assert proposed() == "waiting-for-approval"
    assert owner.names() == before
    owner.say(True)
    world.services[0] = world.open(0)
    assert proposed("join") == "ok"


def test_a_second_yes_changes_nothing_and_a_no_ends_the_party_at_its_next_round(
    world, owner, proposed, wired
):
    proposed()
    name = owner.say(True)
    owner.say(True, name)
    assert owner.lines() == [True]
    world.join()
    world.vectors(1, 1)
    world.opened()
    owner.say(False, name)
    answers = world.vectors(2, 2)
    assert wired.reason(answers[0]) == "refused-by-owner"
    assert (owner.lines(), owner.charged()) == ([True, False], [1])
    assert proposed("join", session="0e" * 16) == "refused-by-owner"


def test_what_waits_lapses_by_the_policy_and_is_no_longer_to_be_accepted(world, owner, proposed):
    proposed()
    (name,) = owner.names()
    world.clock += 7 * DAY_S + 1
    world.services[0] = world.open(0)
    assert proposed(**{}) == "approval-lapsed"
    assert owner.names() == []
    with pytest.raises(LedgerConflict, match="none is pending"):
        owner.say(True, name)


def test_what_lapsed_hides_no_later_proposal_of_its_run(world, owner, proposed):
    proposed()
    (lapsed,) = owner.names()
    world.clock += 4 * DAY_S
    assert proposed(rounds=2) == "waiting-for-approval"
    world.clock += 4 * DAY_S
    (later,) = owner.names()
    assert later != lapsed
    owner.say(True, later)
    assert (proposed(rounds=2), proposed()) == ("ok", "approval-lapsed")


def test_a_server_that_proposes_without_end_fills_nothing(world, owner, proposed):
    def another(k):
        return proposed(run=f"r-{k}", plan=world.plan.with_run_id(f"r-{k}").to_json())

    said = [another(k) for k in range(owner_approval.MAX_PENDING_PROPOSALS + 1)]
    assert set(said[:-1]) == {"waiting-for-approval"}
    assert said[-1] == "busy"
    owner.say(False)  # what is decided makes room
    assert another(99) == "waiting-for-approval"
    assert (
        len(list((world.folders[0] / "state").glob("proposal-*")))
        == owner_approval.MAX_PENDING_PROPOSALS
    )


def test_what_is_declined_anyway_is_not_put_to_the_owner(world, owner, proposed):
    assert proposed(dataset="wing") == "unknown-dataset"
    assert proposed(task={}) == "algorithm"
    assert list((world.folders[0] / "state").glob("proposal-*")) == []


def test_small_jobs_add_up_to_what_needs_a_yes(world, owner, proposed):
    world.consent({}, party=0, **{"approval-above": 4.0})  # a job has ε = 3
    assert proposed("join") == "ok"
    world.join("0d" * 16)
    for number in (1, 2, 3):
        world.vectors(number, number)
        world.opened()
    other = {"run": "r-2", "plan": world.plan.with_run_id("r-2").to_json()}
    assert proposed(**other) == "waiting-for-approval"
    world.consent({}, party=0, **{"approval-above": 40.0})
    assert proposed(**other) == "ok"


def test_jobs_that_began_together_add_up_too(world, owner, wired):
    world.consent({}, party=0, **{"approval-above": 4.0})  # each has ε = 3
    world.join("0d" * 16)
    first = {name: getattr(world, name) for name in ("run", "plan", "session", "server")}
    first["agreement"] = world.agreement
    world.run, world.plan = "r-2", world.plan.with_run_id("r-2")
    world.join("0e" * 16)
    for number in (1, 2, 3):
        world.vectors(number, number)
        world.opened()
    vars(world).update(first)
    request = encode_frame(world.round_requests(1, 1, prepare=2)[0])
    assert wired.reason(world.raw(0, request)) == "waiting-for-approval"
    assert (len(owner.charged()), len(owner.names())) == (3, 1)
    owner.say(True)
    assert wired.ok(world.raw(0, request))
    assert len(owner.charged()) == 4


def test_a_yes_that_was_written_into_the_file_is_no_yes(world, owner, proposed):
    proposed()
    owner.say(False)
    with sqlite3.connect(owner.folder / "ledger.sqlite") as file:
        changed = file.execute(
            "UPDATE parley_ledger_records SET body = replace(body, ?, ?)",
            ('"accepted":false', '"accepted":true'),
        )
        assert changed.rowcount
    assert proposed() == proposed("join") == "error"


def test_no_server_finds_another_proposal_of_the_name_that_an_owner_was_shown():
    # 10 digits are 2^20 proposals and 2^40 pairs of them: one more beside it, before the yes.
    assert 4 * len(owner_approval.compute_proposal_id(["00" * 32])) >= 128


def test_a_data_set_that_asks_nobody_is_not_charged_to_one_whose_owner_is_asked():
    """A server would choose the one that does not ask."""
    one = '[data.%s]\nprepared = "r.npz"\nepsilon = 1\ndelta = 1e-5\n'
    asked = f"{one % 'w'}approval-above = 0.0\n"
    with pytest.raises(PolicyError, match="with the same totals and approval-above"):
        parse_policy(f'{asked}{one % "v"}account = "w"\n', source="party.toml")
    parse_policy(f'{asked}{one % "v"}account = "w"\napproval-above = 0\n', source="party.toml")
