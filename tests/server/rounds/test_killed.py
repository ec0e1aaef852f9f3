"""A server that is killed goes on, pays nothing twice and asks for nothing again."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scenes import BASE, Killed, KilledServer, Scene

from parley.client.contract.message_frames import decode_frame, encode_frame
from parley.privacy.ledger.ledger import Ledger
from parley.secure_agg.predicted_outcome import SECRET_BYTES
from parley.server.jobs.job_file import load_job
from parley.server.records.run_folder import RunFolderError
from parley.simulations.data.network_experiment import NetworkExperiment
from parley.simulations.engine.fast_engine import simulate


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The model that a job, by its overrides, gives in one process that nothing befalls."""

    @cache
    def theta(overrides):
        job = load_job(overrides=[*BASE, *overrides])
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(
                NetworkExperiment, "compute_optimum", lambda self: self.algorithm.model.start()
            )
            return simulate(job, out=tmp_path_factory.mktemp("alone") / "run").theta

    return theta


@pytest.mark.parametrize(
    ("kind", "nth"),
    [("join", 1), ("round", 1), ("round", 2), ("round", 3), ("survivors", 2), ("confirmations", 2)],
)
def test_a_killed_server_goes_on_and_nothing_is_paid_twice(tmp_path, alone, kind, nth):
    scene = Scene(tmp_path)
    with pytest.raises(Killed):
        scene.run(transport=KilledServer(scene.homes, kind, nth))
    summary = scene.run()
    assert (summary.status, summary.rounds_done) == ("complete", 3)
    assert np.array_equal(scene.theta(), alone(scene.overrides))
    for party in range(5):
        assert [e.entry.index for e in scene.party_entries(party)] == [1, 2, 3]
    with Ledger.open(scene.folder.ledger_path, read_only=True) as ledger:
        assert [e.entry.index for e in ledger.list_entries()] == [1, 2, 3]


class KilledAfterReveals(KilledServer):
    """A server that never sees one party's vector, and is killed once the others revealed."""

    def __init__(self, folders, absent):
        super().__init__(folders, "never", 1)
        self._lost = lambda kind, party: kind == "round" and party == absent

    def exchange(self, requests, *, timeout_s, largest, **more):
        replies = list(super().exchange(requests, timeout_s=timeout_s, largest=largest, **more))
        if "confirmations" in self.exchanges[-1]:
            raise Killed
        if self.exchanges[-1] != ("finish",):
            yield from replies


def test_a_release_that_was_unmasked_without_a_party_is_repeated_without_it(tmp_path):
    scene = Scene(tmp_path)
    with pytest.raises(Killed):
        scene.run(transport=KilledAfterReveals(scene.homes, absent=4))
    assert scene.run().status == "complete"  # all five are back
    first, *others = scene.lines()
    assert first["absent"] == [scene.deployment.parties[4].name]
    assert all(line["absent"] == [] for line in others)
    assert [e.entry.index for e in scene.party_entries(0)] == [1, 2, 3]


def test_a_run_goes_on_with_the_roster_it_was_begun_with_alone(tmp_path):
    scene = Scene(tmp_path, ("algorithm.rounds=1",))
    summary = scene.run()
    assert summary.deployment == scene.deployment.id
    other = replace(scene.deployment.parties[0], identity=b"\x07" * 32)
    scene.deployment = replace(scene.deployment, parties=(other, *scene.deployment.parties[1:]))
    with pytest.raises(RunFolderError, match=r"a party or its keys changed. Submit the job again"):
        scene.run()


# Blocks of steps.
DISTRIBUTED = (
    "algorithm.kind=distributed-dp-sgd",
    "model.kind=mlp",
    "model.hidden=[4]",
    "parties.count=3",
    "algorithm.rounds=2",
    "dp-sgd.sampling-rate=0.3",
    "dp-sgd.local-steps=3",
    "privacy.epsilon=8",
    "run.noise-shares=full",
)


@pytest.mark.parametrize(("kind", "nth"), [("round", 2), ("round", 5), ("confirmations", 2)])
def test_a_server_killed_within_a_block_goes_on_after_its_last_sum(tmp_path, alone, kind, nth):
    scene = Scene(tmp_path, DISTRIBUTED)
    with pytest.raises(Killed):
        scene.run(transport=KilledServer(scene.homes, kind, nth))
    summary = scene.run()
    assert (summary.status, summary.rounds_done) == ("complete", 2)
    assert np.array_equal(scene.theta(), alone(DISTRIBUTED))
    for party in range(3):
        assert [e.entry.index for e in scene.party_entries(party)] == [1, 2]


class Replaying(KilledServer):
    """A server that asks for one sum of a block again, from another model."""

    def __init__(self, folders, step):
        super().__init__(folders, "never", 1)
        self.step, self.reasons = step, []

    def exchange(self, requests, *, timeout_s, **more):
        frame = decode_frame(requests[0]) if 0 in requests else None
        if frame is not None and frame.kind == "round" and frame.head["plan"]["step"] == 3:
            head = {**frame.head, "plan": {**frame.head["plan"], "step": self.step}}
            again = {0: encode_frame(replace(frame, head=head))}
            for _, reply in super().exchange(again, timeout_s=timeout_s, **more):
                self.reasons.append(decode_frame(reply).head.get("reason"))
        yield from super().exchange(requests, timeout_s=timeout_s, **more)


@pytest.mark.parametrize("step", [1, 4])
def test_a_party_answers_no_sum_of_a_block_again_nor_more_than_it_paid_for(tmp_path, step):
    scene = Scene(tmp_path, DISTRIBUTED)
    transport = Replaying(scene.homes, step)
    scene.run(transport=transport)
    assert transport.reasons
    assert all(transport.reasons)  # every one was refused, with a reason
    assert [e.entry.index for e in scene.party_entries(0)] == [1, 2]


class Measured(KilledServer):
    """Notes how long the answers to each plan are: by (round, step), one length a party."""

    def __init__(self, folders):
        super().__init__(folders, "never", 1)
        self.lengths: dict[tuple[int, int], list[int]] = {}

    def exchange(self, requests, *, timeout_s, **more):
        asked = {party: decode_frame(request) for party, request in requests.items()}
        for party, reply in super().exchange(requests, timeout_s=timeout_s, **more):
            if asked[party].kind == "round":
                plan = asked[party].head["plan"]
                self.lengths.setdefault((plan["round_number"], plan["step"]), []).append(len(reply))
            yield party, reply


def test_messages_are_as_long_whatever_a_party_drew(tmp_path):
    scene = Scene(tmp_path, DISTRIBUTED)
    measured = Measured(scene.homes)
    scene.run(transport=measured)
    first, *later = (measured.lengths[step] for step in sorted(measured.lengths))
    assert [len(first), *map(len, later)] == [3] * 6  # two rounds of three steps, three parties
    # Behind the first vector of a hybrid run come a party's halves, one for each neighbour.
    assert len(set(first)) == 1
    assert {size for sizes in later for size in sizes} == {first[0] - 2 * SECRET_BYTES}
