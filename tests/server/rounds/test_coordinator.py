"""Jobs among real parties' services: who vanishes, declines, misbehaves or comes back."""

import json
import math
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from in_process import InProcessTransport
from safetensors.numpy import load_file

from parley.client.contract.protocol import Frame, Reason, decode_frame, encode_frame, refusal
from parley.client.party.block_session import PartyPolicy, PartySession
from parley.client.party.consent_file import load_consent, render_consent
from parley.privacy.accounting.guarantee import Unit
from parley.privacy.ledger.ledger import Ledger
from parley.privacy.sampling.randomness import Randomness
from parley.secure_agg.outcome import SECRET_BYTES
from parley.server.jobs.file import load_job
from parley.server.jobs.job import JobError
from parley.server.planning.release import algorithm_for, plan_release
from parley.server.records.run_folder import RunFolder, RunFolderError
from parley.server.rounds.coordinator import coordinate
from parley.server.rounds.inspection import served_name
from parley.simulations.data.experiment import load_experiment
from parley.simulations.data.network_experiment import NetworkExperiment
from parley.simulations.engine.fast import simulate
from parley.simulations.engine.local_parties import party_folders, prepare_parties

BASE = ("parties.count=5", "algorithm.rounds=3", "data.records=150", "run.seed=5")


@dataclass
class Scene:
    """A deployment in a folder, whose network is scripted."""

    root: Path
    overrides: tuple[str, ...] = ()
    job: object = None
    lost: set = field(default_factory=set)  # (kind, party) or (kind, party, nth time)

    def __post_init__(self):
        self.job = load_job(overrides=[*BASE, *self.overrides])
        self.deployment = prepare_parties(self.job, self.root / "parties")
        self.homes = party_folders(self.root / "parties", self.job.parties.count)
        self.asked: dict[tuple[str, int], int] = {}
        self.transport = InProcessTransport(self.homes, lost=self._lost)
        self.folder = None

    def _lost(self, kind, party):
        nth = self.asked[kind, party] = self.asked.get((kind, party), 0) + 1
        return (kind, party) in self.lost or (kind, party, nth) in self.lost

    def run(self, *, resume=False, transport=None):
        if self.folder is None:
            self.folder = RunFolder.create(self.job, self.root / "run")
        return coordinate(
            self.job,
            transport=transport or self.transport,
            deployment=self.deployment,
            folder=self.folder,
            resume=resume,
        )

    def lines(self):
        text = (self.folder.path / "rounds.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def board(self):
        content = json.loads((self.folder.path / "parties.json").read_text())
        return {p["name"]: (p["state"], p["reason"]) for p in content["parties"]}

    def theta(self):
        return load_file(self.folder.path / "model.safetensors")["theta"]

    def policy(self, party, **changes):
        path = self.homes[party] / "party.toml"
        path.write_text(render_consent(load_consent(path).model_copy(update=changes)))

    def party_entries(self, party):
        with Ledger.open(self.homes[party] / "ledger.sqlite", read_only=True) as ledger:
            assert ledger.verify() == []
            return ledger.entries()


def counts(line):
    parties = line["parties"]
    return parties["answered"], parties["declined"], parties["dropped"], parties["summed"]


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


@pytest.mark.parametrize(
    ("override", "stages"),
    [
        ("secure-aggregation.dropouts=optimistic", 1),
        ("secure-aggregation.confirm-survivors=false", 2),
    ],
)
def test_an_optimistic_round_is_one_stage_and_an_unconfirmed_one_two(tmp_path, override, stages):
    scene = Scene(tmp_path, (override,))
    scene.run()
    assert [line["stages"] for line in scene.lines()] == [stages] * 3
    assert np.array_equal(scene.theta(), simulate(scene.job, out=tmp_path / "fast").theta)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("round", (4, 0, 1, 4)),
        ("survivors", (4, 0, 1, 5)),
        ("confirmations", (4, 0, 1, 5)),
    ],
)
def test_a_party_that_falls_silent_in_one_round_is_back_in_the_one_after_the_next(
    tmp_path, kind, expected
):
    scene = Scene(tmp_path, lost={(kind, 2, 1)})
    summary = scene.run()
    assert summary.status == "complete"
    lines = [counts(line) for line in scene.lines()]
    assert lines[0] == expected
    # Its shares of round 2 were lost with its vector of round 1.
    assert lines[1] == ((4, 0, 1, 4) if kind == "round" else (5, 0, 0, 5))
    assert lines[2] == (5, 0, 0, 5)


def test_dropouts_give_what_the_fast_engine_gives_without_those_parties(tmp_path):
    scene = Scene(tmp_path, ("algorithm.rounds=1",), lost={("round", 1)})
    scene.run()
    whole = simulate(scene.job, out=tmp_path / "fast")
    assert not np.array_equal(scene.theta(), whole.theta)  # one contribution is missing
    assert counts(scene.lines()[0]) == (4, 0, 1, 4)


def test_below_the_threshold_nothing_is_opened_and_nothing_is_charged(tmp_path):
    scene = Scene(tmp_path, lost={("round", party) for party in range(3)})
    summary = scene.run()
    assert (summary.status, summary.rounds_done) == ("too-few-survivors", 0)
    assert summary.primary.epsilon == 0
    with Ledger.open(scene.folder.ledger_path, read_only=True) as ledger:
        assert ledger.totals()[0].spent.epsilon(1e-5)[1] == 0
    assert not any("survivors" in kinds for kinds in scene.transport.exchanges)


def test_a_round_lost_to_too_few_is_tried_again_with_new_keys(tmp_path):
    scene = Scene(tmp_path, lost={("round", party, 1) for party in range(3)})
    summary = scene.run()
    assert summary.status == "complete"
    assert ("prepare",) in scene.transport.exchanges
    # Charged once, though it was computed for twice: the contribution was the same.
    assert [entry.entry.index for entry in scene.party_entries(4)] == [1, 2, 3]


def test_three_parties_that_cannot_spare_one_try_the_round_again_with_all(tmp_path):
    scene = Scene(tmp_path, ("parties.count=3",), lost={("round", 1, 1)})
    summary = scene.run()
    assert summary.status == "complete"
    assert [counts(line) for line in scene.lines()] == [(3, 0, 0, 3)] * 3
    assert [entry.entry.index for entry in scene.party_entries(1)] == [1, 2, 3]


def test_an_optimistic_round_is_repeated_without_the_party_that_voided_it(tmp_path):
    scene = Scene(tmp_path, ("secure-aggregation.dropouts=optimistic",), lost={("round", 3, 1)})
    scene.run()
    assert counts(scene.lines()[0]) == (4, 0, 1, 4)
    assert counts(scene.lines()[1]) == (5, 0, 0, 5)


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


def test_a_party_declines_by_its_policy_and_the_rest_goes_on(tmp_path):
    scene = Scene(tmp_path)
    scene.policy(1, laws=("laplace-l1",))
    assert scene.run().status == "complete"
    assert [counts(line) for line in scene.lines()] == [(4, 1, 0, 4)] * 3
    assert scene.lines()[0]["reasons"] == {"mechanism": 1}
    assert scene.board()["party-1"] == ("declined", "mechanism")
    assert not (scene.homes[1] / "ledger.sqlite").exists() or scene.party_entries(1) == ()


def test_a_job_run_again_without_a_party_opens_nothing_and_says_why(tmp_path):
    scene = Scene(tmp_path)
    name = served_name(scene.job)
    for party in range(5):
        own = load_consent(scene.homes[party] / "party.toml").data[name]
        scene.policy(party, data={name: own.model_copy(update={"epsilon": 10.0})})
    scene.run()
    scene.folder = RunFolder.create(scene.job, tmp_path / "another run")
    scene.lost = {("round", 4)}
    summary = scene.run()
    # Round 1 starts from the same model: the difference of both sums would be party 4's vector.
    assert summary.status == "too-few-survivors"
    assert "asked for the same contribution before" in json.dumps(summary.to_json())
    assert "epsilon" not in (scene.folder.path / "rounds.jsonl").read_text()


def test_a_party_whose_budget_bears_one_job_declines_the_second_before_its_first_round(tmp_path):
    scene = Scene(tmp_path)
    name = served_name(scene.job)
    for party, total in enumerate([3.0, 3.0, 1.2, 3.0, 3.0]):
        own = load_consent(scene.homes[party] / "party.toml").data[name]
        # The noise is seeded: both runs ask for the very same contributions, of fewer parties.
        changed = {name: own.model_copy(update={"epsilon": total})}
        scene.policy(party, data=changed, insist_on_one_list=False)
    scene.run()
    scene.folder = RunFolder.create(scene.job, tmp_path / "another run")
    scene.run()
    lines = scene.lines()
    assert [counts(line) for line in lines] == [(4, 1, 0, 4)] * 3
    assert [line["reasons"] for line in lines] == [{"budget-exhausted": 1}] * 3
    assert [entry.entry.index for entry in scene.party_entries(2)] == [1, 2, 3]
    log = (scene.homes[2] / "party.log").read_text()
    assert "1 of the 3 would fit" in log or "0 of the 3 would fit" in log


def test_a_party_declines_a_job_that_costs_more_than_it_allows_one_job(tmp_path):
    scene = Scene(tmp_path)
    name = served_name(scene.job)
    own = load_consent(scene.homes[2] / "party.toml").data[name]
    scene.policy(2, data={name: own.model_copy(update={"epsilon_per_job": 0.9})})
    scene.run()
    assert scene.lines()[0]["reasons"] == {"budget-exhausted": 1}
    assert not (scene.homes[2] / "ledger.sqlite").exists() or scene.party_entries(2) == ()


class Killed(BaseException):
    """The server's process is gone."""


class KilledServer(InProcessTransport):
    """A server that is killed as it sends the n-th request of a kind."""

    def __init__(self, folders, kind, nth):
        super().__init__(folders)
        self.fatal = [kind, nth]

    def exchange(self, requests, *, timeout_s, largest):
        kinds = {decode_frame(request).kind for request in requests.values()}
        if self.fatal[0] in kinds:
            self.fatal[1] -= 1
            if self.fatal[1] == 0:
                raise Killed
        if kinds == {"finish"} and self.fatal[1] <= 0:
            return  # who is dead says nothing
        yield from super().exchange(requests, timeout_s=timeout_s, largest=largest)


OPTIMISTIC = ("secure-aggregation.dropouts=optimistic",)


@pytest.mark.parametrize(
    ("kind", "nth", "overrides"),
    [
        *[(kind, nth, ()) for kind, nth in (("survivors", 2), ("confirmations", 2))],
        *[
            (kind, nth, overrides)
            for kind, nth in (("round", 1), ("round", 2))
            for overrides in ((), OPTIMISTIC)
        ],
        *[("join", 1, ()), ("round", 3, ())],
    ],
)
def test_a_killed_server_goes_on_and_nothing_is_paid_twice(tmp_path, kind, nth, overrides):
    scene = Scene(tmp_path, overrides)
    with pytest.raises(Killed):
        scene.run(transport=KilledServer(scene.homes, kind, nth))
    summary = scene.run(resume=True)
    assert (summary.status, summary.rounds_done) == ("complete", 3)
    whole = simulate(scene.job, out=tmp_path / "fast")
    assert np.array_equal(scene.theta(), whole.theta)
    for party in range(5):
        assert [e.entry.index for e in scene.party_entries(party)] == [1, 2, 3]
    with Ledger.open(scene.folder.ledger_path, read_only=True) as ledger:
        assert [e.entry.index for e in ledger.entries()] == [1, 2, 3]


class Tampering(InProcessTransport):
    """A party (or the network) that answers something else."""

    def __init__(self, folders, change):
        super().__init__(folders)
        self.change = change

    def exchange(self, requests, *, timeout_s, largest):
        kinds = {index: decode_frame(request).kind for index, request in requests.items()}
        for index, reply in super().exchange(requests, timeout_s=timeout_s, largest=largest):
            yield index, self.change(kinds[index], index, reply)


def _swapped(reply, *blobs):
    frame = decode_frame(reply)
    return encode_frame(Frame(kind="answer", head=frame.head, blobs=blobs))


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
    if change.__code__.co_code and kind != "inspect":
        assert scene.lines()[0]["parties"]["answered"] <= 5


def test_an_optimistic_round_goes_on_without_a_party_whose_handler_raised(tmp_path):
    scene = Scene(tmp_path, (*OPTIMISTIC, "algorithm.rounds=2"))
    raised = []

    def change(kind, index, reply):
        if (kind, index) == ("round", 3) and not raised:
            raised.append(reply)
            return encode_frame(refusal(Reason.ERROR))
        return reply

    summary = scene.run(transport=Tampering(scene.homes, change))
    assert summary.status == "complete"
    assert [counts(line)[3] for line in scene.lines()] == [4, 5]


def test_a_party_cannot_answer_for_another(tmp_path):
    scene = Scene(tmp_path, ("algorithm.rounds=1",))
    kept = {}

    def change(kind, index, reply):
        if kind == "join" and index == 1:
            kept["advert"] = reply
        return kept["advert"] if kind == "join" and index == 2 else reply

    scene.run(transport=Tampering(scene.homes, change))
    assert counts(scene.lines()[0]) == (4, 0, 1, 4)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("run.faults=drop:0.1", "run.faults"),
        ("parties.count=4", r"parties\.count = 5"),
    ],
)
def test_what_real_parties_cannot_do_is_said_before_they_are_asked(tmp_path, override, said):
    scene = Scene(tmp_path)
    scene.folder = RunFolder.create(scene.job, tmp_path / "run")
    with pytest.raises(JobError, match=said):
        coordinate(
            load_job(overrides=[*BASE, override]),
            transport=scene.transport,
            deployment=scene.deployment,
            folder=scene.folder,
            resume=False,
        )
    assert scene.transport.exchanges == []


def test_different_columns_at_the_parties_are_named(tmp_path):
    scene = Scene(tmp_path)
    path = scene.homes[3] / "records.npz"
    with np.load(path) as arrays:
        features, labels = arrays["features"], arrays["labels"]
    np.savez(path, features=features[:, 1:], labels=labels)
    with pytest.raises(JobError, match=r"same columns .* party-3: 29 features"):
        scene.run()


FEDAVG = (
    "algorithm.kind=fedavg",
    "model.kind=mlp",
    "model.hidden=[8]",
    "algorithm.rounds=2",
    "dp-sgd.sampling-rate=0.3",
    "dp-sgd.local-steps=2",
)


@pytest.mark.parametrize(
    "overrides",
    [
        FEDAVG,
        (*FEDAVG, "privacy.unit=party", "privacy.epsilon=8"),
        (*FEDAVG, "privacy.unit=both", "privacy.party-epsilon=8"),
        (
            *FEDAVG,
            "privacy.unit=both",
            "privacy.party-epsilon=8",
            "privacy.epsilon=9",
            "dp-sgd.noise-multiplier=0.6",
        ),
    ],
    ids=["unit record", "unit party", "both, inner charged", "both, outer charged"],
)
def test_networks_train_at_real_parties_under_any_unit(tmp_path, overrides):
    scene = Scene(tmp_path, overrides)
    summary = scene.run()
    assert summary.status == "complete"
    assert counts(scene.lines()[1]) == (5, 0, 0, 5)
    whole = simulate(scene.job, out=tmp_path / "fast").summary
    for key in ("guarantees", "record_bounds", "dimension"):
        assert getattr(summary, key) == getattr(whole, key)
    charged = [entry.entry for entry in scene.party_entries(0)]
    units = ["record", "party"] if "privacy.unit=both" in overrides else [summary.primary.unit]
    assert [(e.index, e.facts["unit"]) for e in charged] == [(n, u) for n in (1, 2) for u in units]


def test_a_party_keeps_a_budget_for_all_that_it_holds(tmp_path):
    both = ("privacy.unit=both", "privacy.party-epsilon=8")
    scene = Scene(tmp_path, (*FEDAVG, *both))
    name = served_name(scene.job)
    own = load_consent(scene.homes[2] / "party.toml").data[name]
    assert (own.party_epsilon, own.party_delta) == (8, own.delta)
    scene.policy(2, data={name: own.model_copy(update={"party_epsilon": 7.0})})
    scene.run()
    # The second budget can't bear both rounds: the job is declined before its first.
    assert [line["reasons"] for line in scene.lines()] == [{"budget-exhausted": 1}] * 2
    assert scene.party_entries(2) == ()


@pytest.mark.parametrize(
    ("unit", "epsilon", "delta"), [("both", None, None), ("record", 8.0, 1e-5)]
)
def test_two_budgets_take_jobs_with_two_guarantees_alone(tmp_path, unit, epsilon, delta):
    more = ("privacy.party-epsilon=8",) if unit == "both" else ()
    scene = Scene(tmp_path, (*FEDAVG, f"privacy.unit={unit}", *more))
    name = served_name(scene.job)
    own = load_consent(scene.homes[0] / "party.toml").data[name]
    changed = own.model_copy(update={"party_epsilon": epsilon, "party_delta": delta})
    scene.policy(0, data={name: changed})
    scene.run()
    assert scene.lines()[0]["reasons"] == {"unit": 1}


def test_real_parties_tell_the_clipped_fraction_that_their_own_steps_give(tmp_path):
    scene = Scene(tmp_path, (*FEDAVG, "dp-sgd.clipped-fraction-share=0.1", "privacy.epsilon=8"))
    summary = scene.run()
    job = scene.job
    whole = simulate(job, out=tmp_path / "fast").summary
    for key in ("guarantees", "dimension"):
        assert getattr(summary, key) == getattr(whole, key)
    told = summary.clipped_fraction
    assert told.last == scene.lines()[1]["clipped_fraction"]
    assert told.deviation == whole.clipped_fraction.deviation
    # Every party by itself, as the fast engine computes a block of one.
    experiment = load_experiment(job)
    algorithm = algorithm_for(job, experiment.model, experiment.federation)
    plan = plan_release(job, algorithm=algorithm, federation=experiment.federation)
    start = algorithm.init()
    encoded = [
        PartySession(
            block=experiment.block.take(np.array([party])),
            algorithm=algorithm,
            policy=PartyPolicy(budgets={Unit.RECORD: (math.inf, 1e-5)}),
            randomness=Randomness.from_seed(5, party=party),
        )
        .answer(plan, start)
        .encoded[0]
        for party in range(5)
    ]
    average = plan.encoding.to_float(plan.encoding.decode(sum(encoded))) / 5
    told = algorithm.released(algorithm.update(start, average))
    assert told == {"clipped_fraction": scene.lines()[0]["clipped_fraction"]}
    facts = scene.party_entries(0)[0].entry.facts
    assert facts["clipped_share"] == 0.1


def test_parties_read_their_own_files_by_their_own_schemas(tmp_path):
    rows = np.random.default_rng(1).normal(size=(150, 2))
    schema = (
        '[columns]\na = { kind = "numeric", range = [-3, 3] }\n'
        'b = { kind = "numeric", range = [-3, 3] }\n'
        'sick = { kind = "label", positive = "yes", negative = "no" }\n'
    )
    (tmp_path / "schema.toml").write_text(schema)
    for party in range(5):
        own = rows[party * 30 : party * 30 + 30]
        lines = [f"{a:.6f},{b:.6f},{'yes' if a + b > 0 else 'no'}" for a, b in own]
        (tmp_path / f"site-{party}.csv").write_text("a,b,sick\n" + "\n".join(lines) + "\n")
    source = (
        f"data.source={tmp_path}/site-*.csv",
        f"data.schema={tmp_path}/schema.toml",
        "data.records=0",
        "data.test-fraction=0",
    )
    scene = Scene(tmp_path, source)
    name = served_name(scene.job)
    for party in range(5):
        own = load_consent(scene.homes[party] / "party.toml").data[name]
        raw = {
            "prepared": "",
            "path": str(tmp_path / f"site-{party}.csv"),
            "data_schema": str(tmp_path / "schema.toml"),
        }
        scene.policy(party, data={name: own.model_copy(update=raw)})
    scene.run()
    assert np.array_equal(scene.theta(), simulate(scene.job, out=tmp_path / "fast").theta)


def test_a_data_file_that_is_gone_is_one_partys_trouble(tmp_path):
    scene = Scene(tmp_path)
    (scene.homes[0] / "records.npz").unlink()
    scene.run()
    assert scene.lines()[0]["reasons"] == {"data-unreadable": 1}
    assert "records.npz" in (scene.homes[0] / "party.log").read_text()


def test_a_run_goes_on_with_the_roster_it_was_begun_with_alone(tmp_path):
    scene = Scene(tmp_path, ("algorithm.rounds=1",))
    summary = scene.run()
    assert summary.deployment == scene.deployment.id
    other = replace(scene.deployment.parties[0], identity=b"\x07" * 32)
    scene.deployment = replace(scene.deployment, parties=(other, *scene.deployment.parties[1:]))
    with pytest.raises(RunFolderError, match=r"changed since. Submit the job anew"):
        scene.run(resume=True)


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
def test_a_server_killed_within_a_block_goes_on_after_its_last_sum(
    tmp_path, monkeypatch, kind, nth
):
    scene = Scene(tmp_path, DISTRIBUTED)
    with pytest.raises(Killed):
        scene.run(transport=KilledServer(scene.homes, kind, nth))
    summary = scene.run(resume=True)
    assert (summary.status, summary.rounds_done) == ("complete", 2)
    monkeypatch.setattr(NetworkExperiment, "optimum", lambda self: self.algorithm.model.start())
    whole = simulate(scene.job, out=tmp_path / "fast")
    assert np.array_equal(scene.theta(), whole.theta)
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
