"""Set-up over the wire on a graph that is not complete, and answers in another's name."""

import re
from dataclasses import replace

import pytest
from scenes import Scene

from parley.client.contract.message_frames import (
    WIRE_VERSION,
    MessageFrame,
    decode_frame,
    encode_frame,
)
from parley.client.contract.refusals import Declined, Reason
from parley.client.party.owner_policy import OwnerPolicy
from parley.client.party.party_service import PartyService
from parley.secure_agg import mask_graph, protocol_parameters
from parley.secure_agg.interface import TooFewSurvivors
from parley.secure_agg.mask_graph import compute_roster_digest

JOB = (
    "parties.count=12", "algorithm.rounds=2", "data.records=240", "run.seed=5",
    "secure-aggregation.corrupt=0", "secure-aggregation.min-survivors=8",
)  # fmt: skip


@pytest.fixture
def small_graphs(monkeypatch):
    """Twelve parties on four neighbours each, as only more than a hundred would be."""
    monkeypatch.setattr(mask_graph, "COMPLETE_UP_TO", 4)
    mask_graph.choose_degree.cache_clear()
    protocol_parameters.derive_parameters.cache_clear()
    yield
    mask_graph.choose_degree.cache_clear()
    protocol_parameters.derive_parameters.cache_clear()


def roster_of(deployment):
    return compute_roster_digest(deployment.identities, bytes.fromhex(deployment.id))


class Setting(Scene):
    """Twelve parties, whose replies to a kind of request a test may change."""

    def __init__(self, root, *, lost=(), tamper=None, overrides=()):
        super().__init__(root, (*JOB, *overrides), lost=set(lost))
        self.tamper = tamper

    def online(self):
        return self.transport.online()

    def exchange(self, requests, *, timeout_s, largest, **more):
        replies = dict(self.transport.exchange(requests, timeout_s=timeout_s, largest=largest))
        kind = decode_frame(next(iter(requests.values()))).kind
        yield from (self.tamper(kind, replies) if self.tamper else replies).items()

    def run(self):
        return super().run(transport=self)

    def parties(self):
        return [line["parties"] for line in self.lines()]

    def setups(self):
        name = f"setups-{roster_of(self.deployment).hex()[:32]}"
        files = [home / "state" / name for home in self.homes]
        return [int(file.read_text()) if file.exists() else 0 for file in files]


def test_parties_commit_reveal_and_count_the_set_up(tmp_path, small_graphs):
    setting = Setting(tmp_path)
    assert setting.run().status == "complete"
    assert setting.setups() == [1] * 12
    assert setting.asked["commit", 0] == 1


def test_a_nonce_that_is_kept_back_voids_the_set_up_which_goes_on_without_that_party(
    tmp_path, small_graphs
):
    setting = Setting(tmp_path, lost=[("join", 3, 1)])
    summary = setting.run()
    assert summary.status == "complete"
    assert setting.asked["commit", 0] == 2
    assert setting.asked["commit", 3] == 1
    # What was revealed for the void set-up is worth nothing in the next: everyone counted both.
    assert setting.setups() == [2, 2, 2, 0, *[2] * 8]


def test_a_party_goes_through_no_more_set_ups_than_the_bounds_allow_for(
    tmp_path, small_graphs, monkeypatch
):
    setting = Setting(tmp_path)
    service = PartyService.open(setting.homes[0])

    def commit():
        head = {"version": WIRE_VERSION, "session": "0a" * 16}
        return decode_frame(service.handle(encode_frame(MessageFrame(kind="commit", head=head))))

    first, again = commit(), commit()
    assert first.blobs == again.blobs  # asking is no set-up
    service._party_folder.increment_setups(roster_of(setting.deployment))
    assert commit().blobs != first.blobs
    monkeypatch.setattr("parley.client.party.open_session_limit.MAX_SETUPS", 1)
    assert commit().head["reason"] == "protocol"
    assert mask_graph.MAX_SETUPS == 1 << mask_graph.GRINDING_BITS


def test_an_answer_in_another_s_name_is_not_taken_and_costs_its_sender_alone(tmp_path, caplog):
    # Before: it was taken as the other's, whose own answer was then a second one, and refused.
    def steal(kind, replies):
        if kind == "join":
            replies = {1: replies[0], **{i: r for i, r in replies.items() if i != 1}}
        return replies

    setting = Setting(tmp_path, tamper=steal)
    summary = setting.run()
    assert summary.status == "complete"
    assert [each["summed"] for each in setting.parties()] == [11, 11]
    assert "party-1 broke the protocol: Expected a message of the party that" in caplog.text


def test_a_default_party_declines_a_run_that_assumes_no_colluders(tmp_path):
    setting = Setting(tmp_path)
    for party in range(12):
        setting.policy(party, colluders_at_least=None)
    assert OwnerPolicy().colluders_at_least is None
    with pytest.raises(TooFewSurvivors):
        setting.run()
    log = (setting.homes[0] / "party.log").read_text()
    assert "Expected corrupt >= 1, got 0." in log


def _with_false_ciphertext(kind, replies):
    """Party 3 encapsulates something else to party 0: one bit of the first of its ciphertexts."""
    if kind == "roster":
        frame = decode_frame(replies[3])
        false = bytearray(frame.blobs[0])
        false[18] ^= 1
        replies[3] = encode_frame(replace(frame, blobs=(bytes(false), *frame.blobs[1:])))
    return replies


def test_a_false_ciphertext_is_proved_and_its_sender_takes_no_further_part(tmp_path, caplog):
    setting = Setting(tmp_path, tamper=_with_false_ciphertext)
    summary = setting.run()
    assert summary.status == "complete"
    assert [setting.asked.get(("prove", i), 0) for i in range(12)] == [1, *[0] * 11]
    assert [each["summed"] for each in setting.parties()] == [
        11,
        10,
    ]  # without the accuser; without both
    assert setting.lines()[1]["reasons"]["protocol"] >= 1
    assert "party-3 is excluded from the run" in caplog.text


def test_logs_and_errors_name_parties_and_never_number_them(tmp_path, small_graphs, caplog):
    def forged(kind, replies):  # one party's key, with a bit of its signature changed
        if kind == "join":
            frame = decode_frame(replies[min(replies)])
            blob = bytearray(frame.blobs[0])
            blob[-1] ^= 1
            replies[min(replies)] = encode_frame(replace(frame, blobs=(bytes(blob),)))
        return replies

    setting = Setting(tmp_path, tamper=forged)
    with pytest.raises(TooFewSurvivors, match=r"got 4 set-ups in which one did not: party-3\.$"):
        setting.run()
    service = PartyService.open(setting.homes[0])

    def refuse(_frame):
        raise Declined(Reason.PROTOCOL, "Expected the key of party 5, got that of party 7.")

    service._handle_commit = refuse
    head = {"version": WIRE_VERSION, "session": "0a" * 16}
    service.handle(encode_frame(MessageFrame(kind="commit", head=head)))
    log = (setting.homes[0] / "party.log").read_text()
    assert "refused protocol: Expected the key of party-5, got that of party-7." in log
    assert "party-2 broke the protocol" in caplog.text
    assert not re.search(r"\bparty \d", caplog.text + log)
