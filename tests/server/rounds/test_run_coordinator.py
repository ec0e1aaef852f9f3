"""Jobs among real parties' services: who vanishes, misbehaves or comes back."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from in_process import InProcessTransport
from scenes import Scene, counts

from parley.client.contract.message_frames import MessageFrame, decode_frame, encode_frame
from parley.privacy.ledger.ledger import Ledger
from parley.secure_agg.interface import DropStage
from parley.server.jobs.section_base import JobError
from parley.simulations.engine import fast_engine
from parley.simulations.engine.fast_engine import simulate
from parley.simulations.engine.fault_script import Faults


def test_a_round_is_three_stages_and_set_up_is_done_once(tmp_path):
    scene = Scene(tmp_path)
    summary = scene.run()
    assert summary.status == "complete"
    assert scene.transport.exchanges == [
        ("inspect",),
        ("join",),
        ("roster",),
        *[("round",), ("survivors",), ("confirmations",)] * 3,
        ("finish",),
    ]
    assert [line["stages"] for line in scene.lines()] == [3, 3, 3]
    for line in scene.lines():
        assert len(line["stage_seconds"]) == 3
        assert 0 < sum(line["stage_seconds"]) <= line["seconds"]
    # inspect, join, roster, finish
    assert len(summary.secure_aggregation.setup_stage_seconds) == 4
    assert summary.secure_aggregation.setup_bytes_up > 0


ALL = (5, 0, 0, 5)


@pytest.mark.parametrize(
    ("overrides", "lost", "expected"),
    [
        # Its shares of round 2 were lost with its vector of round 1. It repeats them in time.
        ((), ("round", 2, 1), [(4, 0, 1, 4), ALL, ALL]),
        ((), ("survivors", 2, 1), [(4, 0, 1, 5), ALL, ALL]),
        ((), ("confirmations", 2, 1), [(4, 0, 1, 5), ALL, ALL]),
        # Who cannot spare one tries the round again with all.
        (("parties.count=3",), ("round", 1, 1), [(3, 0, 0, 3)] * 3),
    ],
)
def test_a_party_that_falls_silent_once_is_back_later_and_pays_once(
    tmp_path, overrides, lost, expected
):
    scene = Scene(tmp_path, overrides, lost={lost})
    assert scene.run().status == "complete"
    assert [counts(line) for line in scene.lines()] == expected
    charged = [entry.entry.index for entry in scene.party_entries(lost[1])]
    assert charged == sorted(set(charged))


def test_dropouts_give_what_the_fast_engine_gives_without_those_parties(tmp_path, monkeypatch):
    sizes = ("data.partition=sizes", "data.sizes=[24, 16, 32, 20, 28]", "parties.weights=size")
    scene = Scene(tmp_path, ("algorithm.rounds=1", *sizes), lost={("round", 1)})
    scene.run()
    assert counts(scene.lines()[0]) == (4, 0, 1, 4)
    missing = Faults(declined=np.array([], np.int64), dropped={1: DropStage.BEFORE_VECTOR})
    script = SimpleNamespace(max_fraction=0.2, sample_faults=lambda **_: missing)
    monkeypatch.setattr(fast_engine, "parse_faults", lambda *_, **__: script)
    assert np.array_equal(scene.theta(), simulate(scene.job, out=tmp_path / "fast").theta)


def test_below_the_threshold_nothing_is_opened_and_nothing_is_charged(tmp_path):
    scene = Scene(tmp_path, lost={("round", party) for party in range(3)})
    summary = scene.run()
    assert (summary.status, summary.rounds_done) == ("too-few-survivors", 0)
    assert summary.primary.epsilon == 0
    with Ledger.open(scene.folder.ledger_path, read_only=True) as ledger:
        assert ledger.list_accounts()[0].spent.compute_lowest_epsilon(1e-5)[1] == 0
    assert not any("survivors" in kinds for kinds in scene.transport.exchanges)


def test_a_round_lost_to_too_few_is_tried_again_with_new_keys(tmp_path):
    scene = Scene(tmp_path, lost={("round", party, 1) for party in range(3)})
    summary = scene.run()
    assert summary.status == "complete"
    assert ("prepare",) in scene.transport.exchanges
    # Charged once, though it was computed for twice: the contribution was the same.
    assert [entry.entry.index for entry in scene.party_entries(4)] == [1, 2, 3]


def test_a_party_that_is_offline_from_the_start_is_a_dropout(tmp_path):
    scene = Scene(tmp_path, ("run.stage-timeout=1",))
    scene.transport.offline = {0}
    assert scene.run().status == "complete"
    assert [counts(line) for line in scene.lines()] == [(4, 0, 1, 4)] * 3
    assert scene.board()["party-0"] == ("offline", "")


def test_a_job_whose_cohort_exceeds_who_is_online_says_who_is_missing(tmp_path):
    scene = Scene(tmp_path, ("run.stage-timeout=1",))
    scene.transport.offline = {0, 3}
    with pytest.raises(JobError, match=r"at least 4 .* got 3: offline: party-0, party-3"):
        scene.run()
    assert not scene.folder.ledger_path.exists()


class Tampering(InProcessTransport):
    """A party (or the network) that answers something else."""

    def __init__(self, folders, change):
        super().__init__(folders)
        self.change = change

    def exchange(self, requests, *, timeout_s, largest, **more):
        kinds = {index: decode_frame(request).kind for index, request in requests.items()}
        for index, reply in super().exchange(requests, timeout_s=timeout_s, largest=largest):
            yield index, self.change(kinds[index], index, reply)


def _swapped(reply, *blobs):
    frame = decode_frame(reply)
    return encode_frame(MessageFrame(kind="answer", head=frame.head, blobs=blobs))


NO_FRAMES = (  # one function reads the frame of every kind's reply
    lambda _kind, _index, _reply: b"",
    lambda _kind, _index, _reply: b"PLY1" + bytes(100),
    lambda _kind, _index, reply: reply + b"x",
    lambda _kind, _index, reply: reply.replace(b'"status":"ok"', b'"status":"hm"'),
)


WRONG_CONTENTS = (  # what is in it, each kind's own
    lambda _kind, _index, reply: _swapped(reply),
    lambda _kind, _index, reply: _swapped(reply, *[b"\x01" * 40] * 2),
)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *(("round", change) for change in NO_FRAMES),
        *product(("inspect", "join", "roster", "round", "survivors"), WRONG_CONTENTS),
    ],
)
def test_a_party_that_answers_nonsense_is_left_out_and_the_rest_goes_on(tmp_path, kind, change):
    scene = Scene(tmp_path, ("algorithm.rounds=1",))
    transport = Tampering(
        scene.homes, lambda k, i, reply: change(k, i, reply) if (k, i) == (kind, 4) else reply
    )
    try:
        summary = scene.run(transport=transport)
    except JobError as error:
        raise AssertionError("one party stopped the run") from error
    assert summary.status == "complete"
    assert counts(scene.lines()[0])[0] == 4 + (kind == "inspect")


def test_a_party_cannot_answer_for_another(tmp_path):
    scene = Scene(tmp_path, ("algorithm.rounds=1",))
    kept = {}

    def change(kind, index, reply):
        if kind == "join" and index == 1:
            kept["advert"] = reply
        return kept["advert"] if kind == "join" and index == 2 else reply

    scene.run(transport=Tampering(scene.homes, change))
    assert counts(scene.lines()[0]) == (4, 0, 1, 4)
