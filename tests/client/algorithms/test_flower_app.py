"""A Flower ClientApp inside a party: what it is given, what is taken of its reply, and attacks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from among_parties import among_parties
from in_process import InProcessTransport
from safetensors.numpy import load_file

from parley.client.algorithms.flower.app_loading import FlowerAppError, compute_app_digest
from parley.client.algorithms.flower.array_layout import ArrayLayout, ArrayLayoutError
from parley.client.algorithms.task_codec import decode_task, describe_task
from parley.client.contract.refusals import Declined, Reason
from parley.client.contract.strict_decoding import DecodingError
from parley.client.data.app_data_block import AppDataBlock
from parley.client.party.dataset_config import APP_DATA
from parley.client.party.dataset_loader import load_dataset
from parley.client.party.owner_policy import load_policy
from parley.client.party.party_folder import PartyFolder
from parley.client.party.run_validation import build_accepted_algorithm, get_accepted_kind
from parley.privacy.sampling.random_stream import Randomness
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.planning.job_planner import build_algorithm, build_model, plan_release
from parley.server.records.run_folder import RunFolder
from parley.server.rounds.run_coordinator import coordinate
from parley.simulations.engine.fast_engine import simulate
from parley.simulations.engine.party_folders import party_folders, prepare_parties

APPS = Path(__file__).parents[2] / "fixtures" / "flower_apps.py"
SECRET = "4711"  # in the texts, numbers and prints of the apps
PARTIES = 3
ENTROPY = Randomness.from_entropy()


def job_of(app: str, *overrides: str, file: Path = APPS):
    keys = [
        *(f"model.kind={file}:{app}", "algorithm.kind=flower", "algorithm.settings.lr=0.5"),
        *(f"parties.count={PARTIES}", "privacy.unit=party", "privacy.epsilon=8"),
        *("algorithm.rounds=2", "dp-sgd.party-clip-norm=4", *overrides),
    ]
    return load_job(overrides=keys)


def planned(app: str, *overrides: str):
    job = job_of(app, *overrides)
    federation = Federation(parties=PARTIES, min_records=1, total_records=PARTIES, max_records=1)
    algorithm = build_algorithm(job, build_model(job, features=1, classes=0), federation)
    return algorithm, plan_release(job, algorithm=algorithm, federation=federation)


def contribute(app: str, *, number: int = 1, parties: int = PARTIES):
    algorithm, plan = planned(app)
    block = AppDataBlock.create(parties, {})
    return algorithm.local(algorithm.init(), block, plan.with_round(number), ENTROPY).values


def test_an_update_is_the_reply_minus_the_given_arrays_of_each_party() -> None:
    values = contribute("app")
    expected = np.zeros((PARTIES, 9))
    expected[:, 0], expected[1, 6] = 1, -2
    np.testing.assert_allclose(values, expected, atol=1e-6)


def test_an_app_of_the_older_interface_gets_the_same_settings_and_arrays() -> None:
    # Each of 9 entries moves by 0.5: length 1.5, below the clip norm.
    np.testing.assert_allclose(contribute("legacy"), np.full((PARTIES, 9), 0.5), atol=1e-6)


@pytest.mark.parametrize("app", ["huge", "beyond", "mutating"])
def test_an_update_of_any_size_is_within_the_claimed_ball_of_whole_numbers(app: str) -> None:
    algorithm, plan = planned(app)
    claim = algorithm.claim(
        Federation(parties=3, min_records=1, total_records=3, max_records=1).to_public_facts(
            "uniform"
        )
    )
    values = algorithm.local(algorithm.init(), AppDataBlock.create(2, {}), plan, ENTROPY).values
    for row in values:
        whole = [int(x) for x in np.ldexp(row, claim.grid_bits)]
        assert np.array_equal(np.ldexp(np.array(whole, float), -claim.grid_bits), row)
        assert sum(x * x for x in whole) <= claim.lies_in.radius.l2_squared


def test_an_app_that_changes_the_arrays_it_is_given_changes_no_state_and_no_other_party() -> None:
    algorithm, plan = planned("mutating")
    state = algorithm.init()
    before = {name: value.copy() for name, value in state.items()}
    values = algorithm.local(state, AppDataBlock.create(2, {}), plan, ENTROPY).values
    assert all(np.array_equal(state[name], before[name]) for name in before)
    assert np.array_equal(values[0], values[1])


@pytest.mark.parametrize("relation", ["replace-one", "add-or-remove-one"])
def test_its_plan_is_that_of_federated_averaging_with_unit_party(relation: str) -> None:
    """So what is audited and proved of one release holds for the other."""
    related = f"privacy.neighbouring={relation}"
    _, own = planned("app", related)
    job = load_job(
        overrides=[
            *("model.kind=mlp", "model.hidden=[]", "algorithm.kind=fedavg", "privacy.unit=party"),
            *("privacy.epsilon=8", "algorithm.rounds=2", "dp-sgd.party-clip-norm=4", related),
            *(f"parties.count={PARTIES}", "parties.min-records=1", "dp-sgd.sampling-rate=1"),
        ]
    )
    federation = Federation(parties=PARTIES, min_records=1, total_records=PARTIES, max_records=1)
    job = job.resolve_auto(federation, 3)
    network = build_model(job, features=2, classes=3)  # of 9 parameters, too
    averaging = build_algorithm(job, network, federation)
    theirs = plan_release(job, algorithm=averaging, federation=federation)
    assert averaging.dimension == own.dimension == 9
    assert replace(own, algorithm=theirs.algorithm) == theirs
    moved = 8 if relation == "replace-one" else 4  # 2S, or S
    assert own.primary.sensitivity == pytest.approx(moved, rel=1e-6)


FAILURES = [
    ("nan", 1, "finite numbers"),
    ("reshaped", 2, "the 2 arrays that it was given"),
    ("transposed", 1, r"shape \[2, 3\], got float32 of shape \[3, 2\]"),
    ("texts", 1, "as numbers of shape"),
    ("raising", 1, r"ValueError \(flower_apps.py, line \d+\)"),
    ("leaving", 1, "SystemExit"),
    ("panicking", 1, r"Panic \(flower_apps.py, line \d+\)"),
]


@pytest.mark.parametrize(("app", "number", "error"), FAILURES, ids=[app for app, *_ in FAILURES])
def test_a_failed_call_stops_a_simulation_with_a_place_and_no_value(app, number, error) -> None:
    if number > 1:
        contribute(app)  # round 1 is as it should be
    with pytest.raises(FlowerAppError, match=error) as raised:
        contribute(app, number=number)
    assert SECRET not in str(raised.value)
    assert f"round {number}, party 0" in str(raised.value)


@pytest.mark.parametrize("app", ["nan", "raising", "leaving", "panicking", "transposed"])
def test_a_failed_call_of_a_real_party_is_zeros_and_noise_that_only_its_owner_sees(
    app: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = among_parties(job_of(app), tmp_path)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "complete"
    for party in party_folders(tmp_path / "parties", PARTIES):
        (failure,) = PartyFolder(path=party).list_failures().values()
        assert re.search(r"(Error|Exit|Panic) at \w+\.py:\d+", failure)
    secrets = f"patient {SECRET}".encode()
    texts = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert len(texts) > 10
    assert not any(secrets in text for text in texts)
    capfd.readouterr()


def test_nothing_of_a_reply_but_its_clipped_arrays_leaves_a_party(tmp_path: Path) -> None:
    """Metrics, numbers of examples and prints: none is in a reply, or in the server's folder."""
    job, sent = job_of("app"), []

    class Recorded(InProcessTransport):
        def exchange(self, requests, **limits):
            for index, reply in super().exchange(requests, **limits):
                sent.append(reply)
                yield index, reply

    deployment = prepare_parties(job, tmp_path / "parties")
    folder = RunFolder.create(job, tmp_path / "run")
    coordinate(
        job,
        transport=Recorded(party_folders(tmp_path / "parties", PARTIES)),
        deployment=deployment,
        folder=folder,
    )
    kept = [file.read_bytes() for file in folder.path.rglob("*") if file.is_file()]
    assert len(sent) > 20
    for word in (b"patient", b"loss", b"examples", b"metrics"):
        assert not any(word in reply for reply in sent)
    assert not any(b"patient" in text for text in kept)


def test_real_parties_give_the_sum_of_a_simulation_and_charge_their_ledgers(tmp_path) -> None:
    job = job_of("app", "run.seed=5")
    alone = simulate(job, out=tmp_path / "alone")
    folder = among_parties(job, tmp_path / "real")
    together = load_file(folder / "model.safetensors")["theta"]
    np.testing.assert_array_equal(together, alone.theta)
    arrays = load_file(folder / "arrays.safetensors")
    assert {name: (array.dtype, array.shape) for name, array in arrays.items()} == {
        "0": (np.float32, (2, 3)),
        "1": (np.float64, (3,)),
    }
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["guarantees"][0]["unit"] == "party"
    assert summary["guarantees"][0]["epsilon"] == pytest.approx(8, rel=1e-6)
    assert "min_records" not in summary  # of placeholders
    for party in party_folders(tmp_path / "real" / "parties", PARTIES):
        assert (party / "ledger.sqlite").exists()
        assert PartyFolder(path=party).list_failures() == {}


def test_a_party_with_another_version_of_the_app_declines_before_it_runs(tmp_path: Path) -> None:
    job = job_of("app")
    prepare_parties(job, tmp_path / "parties")
    home = tmp_path / "parties" / "party-0"
    other = home / APPS.name
    other.write_text(f"{APPS.read_text()}\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    policy = home / "party.toml"
    policy.write_text(policy.read_text().replace(f"{APPS}:app", f"{APPS.name}:app"))
    consent = load_policy(policy)
    algorithm, plan = planned("app")
    task = json.loads(json.dumps(describe_task(algorithm), allow_nan=False))
    built = build_accepted_algorithm(consent, task)
    with pytest.raises(Declined, match="same version") as declined:
        get_accepted_kind(consent, "flower").check(built, plan)
    assert declined.value.reason is Reason.MODEL
    assert not (tmp_path / "ran").exists()
    shutil.copy(APPS, other)
    get_accepted_kind(consent, "flower").check(build_accepted_algorithm(consent, task), plan)
    for strange in ("other.py:app", "os:getcwd"):
        task["settings"]["app"] = strange
        with pytest.raises(Declined) as declined:
            build_accepted_algorithm(consent, task)
        assert declined.value.reason is Reason.MODEL


def test_an_app_that_changes_during_a_run_is_not_called(tmp_path: Path) -> None:
    file = tmp_path / APPS.name
    shutil.copy(APPS, file)
    job = job_of("app", file=file)
    federation = Federation(parties=3, min_records=1, total_records=3, max_records=1)
    algorithm = build_algorithm(job, build_model(job, features=1, classes=0), federation)
    plan = plan_release(job, algorithm=algorithm, federation=federation)
    file.write_text("raise SystemExit\n")
    with pytest.raises(FlowerAppError, match="changed during the run"):
        algorithm.local(algorithm.init(), AppDataBlock.create(1, {}), plan, ENTROPY)


def test_the_digest_of_a_package_covers_each_of_its_python_files(tmp_path, monkeypatch) -> None:
    package = tmp_path / "quickstart_of_a_test"
    package.mkdir()
    for name in ("__init__", "client_app", "task"):
        (package / f"{name}.py").write_text(f"name = {name!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    name = "quickstart_of_a_test.client_app:app"
    before = compute_app_digest(name)
    assert before == compute_app_digest(name)
    (package / "task.py").write_text("name = 'another'\n")
    changed = compute_app_digest(name)
    assert changed != before
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "nets.py").write_text("width = 3\n")
    (package / "linked").symlink_to(tmp_path / "elsewhere")
    linked = compute_app_digest(name)
    (tmp_path / "elsewhere" / "nets.py").write_text("width = 4\n")
    assert len({changed, linked, compute_app_digest(name)}) == 3
    with pytest.raises(FlowerAppError, match="pip install"):
        compute_app_digest("no_such_package_of_a_test.client_app:app")


REFUSED = [
    ("nowhere", (), "ClientApp 'nowhere' in .*, got none of that name"),
    ("not_an_app", (), "got an object of type object"),
    ("untrained", (), "function for training"),
    ("app", ("privacy.unit=record",), "privacy.unit = 'party' with flower, got 'record'"),
    ("app", ("algorithm.initial=nowhere.py:Net",), "file at nowhere.py"),
    ("app", (f"algorithm.initial={APPS}:Model",), "Model in .*, which returns the initial arrays"),
    ("app", (f"algorithm.initial={APPS}:object",), "Model|object in"),
    ("app", (f"algorithm.initial={APPS}:ClientApp",), "no arrays, but an object of type"),
    ("app", ("parties.min-records=5",), "counts no records"),
    ("app", ("dp-sgd.learning-rate=0.5",), "dp-sgd.learning-rate"),
    ("app", ("data.test-fraction=0.5",), "data.test-fraction"),
    ("app", ("algorithm.settings.lr=[1]",), "no other types"),
    ("app", ("run.engine=ray",), "got 'ray'"),
    ("app", ("parties.per-round=0.5",), "parties.per-round"),
    ("app", ("data.source=nothing-*.npz",), "one per party"),
]


@pytest.mark.parametrize(("app", "overrides", "error"), REFUSED)
def test_a_job_that_cannot_run_is_refused_before_a_charge(app, overrides, error, tmp_path) -> None:
    with pytest.raises(ValueError, match=error):
        simulate(job_of(app, *overrides), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_missing_file_is_named() -> None:
    with pytest.raises(JobError, match=r"Flower app's file at .*nowhere\.py"):
        simulate(job_of("app", file=APPS.with_name("nowhere.py")))


def test_initial_arrays_are_real_numbers_and_repeat() -> None:
    with pytest.raises(ArrayLayoutError, match="group normalisation"):
        ArrayLayout.from_arrays({"bn.num_batches_tracked": np.zeros(1, np.int64)})
    with pytest.raises(ArrayLayoutError, match="finite"):
        ArrayLayout.from_arrays({"w": np.array([np.inf])})
    with pytest.raises(ArrayLayoutError, match="1 to"):
        ArrayLayout.from_arrays({})
    first, second = (planned("app")[0].initial for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("layout", []),
        ("layout", [["w", "float32", [10**9]]]),
        ("layout", [["w", "float32", [2]], ["w", "float32", [2]]]),
        ("layout", [["w", "object", [2]]]),
        ("layout", [["w\x1b", "float32", [2]]]),
        ("layout", [["w", "float32", [-1]]]),
        ("layout", [["w", "float32", [10**7] * 20 + [0]], ["v", "float32", [1]]]),
        ("layout", "w"),
        ("config", {"a": [1]}),
        ("config", {str(number): 0 for number in range(300)}),
        ("config", None),
        ("server", {"kind": "other", "learning_rate": 1.0, "momentum": 0.0}),
        ("settings", None),
    ],
)
def test_a_task_of_another_form_is_refused(key: str, value: object) -> None:
    task = json.loads(json.dumps(describe_task(planned("app")[0]), allow_nan=False))
    known = {"flower_apps.py:app": f"{APPS}:app"}
    assert decode_task(task, own_models=known).dimension == 9
    with pytest.raises(DecodingError):
        decode_task({**task, key: value}, own_models=known)


def test_a_layout_of_many_arrays_travels() -> None:
    layout = ArrayLayout.from_arrays({f"layer{k}": np.zeros(2, np.float32) for k in range(500)})
    assert ArrayLayout.from_json(json.loads(json.dumps(layout.to_json()))) == layout


def test_data_of_an_app_need_unit_party_and_are_identified_by_their_bytes(tmp_path: Path) -> None:
    text = '[data.own]\napp-data = "images"\nepsilon = 8.0\ndelta = 1e-5\n{more}'
    (tmp_path / "party.toml").write_text(text.format(more=""))
    with pytest.raises(Exception, match="unit = party"):
        load_policy(tmp_path / "party.toml")
    (tmp_path / "party.toml").write_text(text.format(more='unit = "party"\n'))
    own = load_policy(tmp_path / "party.toml").data["own"]

    def load(label: str = APP_DATA):
        return load_dataset(own, tmp_path, label=label, intercept=False)

    with pytest.raises(Declined, match="images"):
        load()
    (tmp_path / "images" / "a").mkdir(parents=True)
    (tmp_path / "images" / "a" / "1.png").write_bytes(b"1")
    first = load()
    assert first.facts.records is None
    assert first.to_block(None).paths == {0: str(tmp_path / "images")}
    (tmp_path / "images" / "a" / "1.png").write_bytes(b"2")
    second = load()
    assert second.contents != first.contents
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / os.fsdecode(b"caf\xe9.csv")).write_bytes(b"1")
    (tmp_path / "images" / "more").symlink_to(tmp_path / "volume")
    (tmp_path / "volume" / "around").symlink_to(tmp_path / "images")  # a loop
    third = load()
    (tmp_path / "volume" / os.fsdecode(b"caf\xe9.csv")).write_bytes(b"2")
    assert len({second.contents, third.contents, load().contents}) == 3
    for label in ("logistic", "network", "columns"):  # a job whose records Parley reads
        with pytest.raises(Declined, match="app-data") as declined:
            load(label)
        assert declined.value.reason is Reason.DATA_UNREADABLE


def test_flowers_telemetry_is_off_where_an_app_is_called(monkeypatch) -> None:
    """In a process that imports Flower only for the app; importing it would else turn it on."""
    monkeypatch.delenv("FLWR_TELEMETRY_ENABLED", raising=False)
    code = (
        "import parley.client.algorithms.flower.client_app_adapter\n"
        "from flwr.supercore.telemetry import FLWR_TELEMETRY_ENABLED\n"
        "print(FLWR_TELEMETRY_ENABLED)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"]


def test_a_job_without_an_app_does_not_import_flower(tmp_path: Path) -> None:
    """The registry names the algorithm, and only a process that calls an app imports Flower."""
    code = (
        "import sys\n"
        "import parley.client.algorithms.task_codec\n"
        "from parley.client.algorithms.registry import ALGORITHMS\n"
        "ALGORITHMS['flower']\n"
        "import parley.client.party.party_service, parley.server.rounds.run_coordinator\n"
        "print('flwr' in sys.modules, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
