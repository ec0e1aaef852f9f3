"""Networks that people bring, from a job to a prediction: before anything is charged, or not."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import brought_networks
import numpy as np
import pytest

import parley
from parley.client.models.layer_checks import NetworkError
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.model_file import ModelFileError
from parley.server.planning.job_planner import build_algorithm, build_model

pytestmark = pytest.mark.filterwarnings("ignore")

FEATURES = [f"x{number}" for number in range(6)]


def brought(name: str, *more: str) -> parley.Job:
    return load_job(
        overrides=[
            f"model.kind={brought_networks.__file__}:{name}",
            "algorithm.kind=distributed-dp-sgd",
            "algorithm.rounds=1",
            "dp-sgd.local-steps=1",
            "dp-sgd.sampling-rate=0.02",
            "parties.count=2",
            "secure-aggregation.masked-check=false",
            *more,
        ]
    )


def records() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    drawn = {name: rng.uniform(-1, 1, 80).round(3) for name in FEATURES}
    return {**drawn, "sick": np.where(drawn["x0"] > 0, "yes", "no")}


@pytest.mark.parametrize(
    "name", ["Tied", "FrozenTied", "Twice", "twice_in_a_chain", "Temperature", "lazy"]
)
def test_a_network_trains_and_predicts_from_its_model_file(name: str, tmp_path: Path) -> None:
    frame = records()
    run = parley.run(brought(name), data=frame, label="sick", out=tmp_path / "run")
    kind = f"{brought_networks.__file__}:{name}"
    model = parley.load_model(run.folder, own_models=(kind,))
    whole = model.decision_function(frame)
    few = model.decision_function({key: column[:3] for key, column in frame.items()})
    np.testing.assert_allclose(whole[:3], few, rtol=1e-5, atol=1e-6)  # float32
    assert set(model.predict(frame)) <= {"yes", "no"}


@pytest.mark.parametrize(
    ("function", "is_class"), [("__main__:small", False), ("parley_objects:Small", True)]
)
def test_a_network_defined_in_python_predicts_in_a_later_process(
    function: str, is_class: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a name cannot be imported again, so the code that the user names stands for it."""
    code = (
        "from torch import nn\n"
        "def small(features, classes):\n    return nn.Linear(features, classes)\n"
        "class Small(nn.Linear):\n    pass\n"
        "def other(features, classes):\n    return nn.Linear(features, classes)\n"
    )
    (tmp_path / "net.py").write_text(code)
    main = types.ModuleType("__main__")
    exec(code, vars(main))
    monkeypatch.setitem(sys.modules, "__main__", main)
    frame = records()
    run = parley.run(
        frame,
        label="sick",
        model=main.Small if is_class else main.small,
        rounds=1,
        parties=2,
        epsilon=4,
        baseline=False,
        out=tmp_path / "run",
    )
    before = run.model.predict(frame)
    assert run.summary.model == function
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))  # a later process
    monkeypatch.delitem(sys.modules, "parley_objects", raising=False)
    with pytest.raises(ModelFileError) as refused:
        parley.load_model(run.folder)
    remedy = re.search(r"--own-model FILE\.py:(\w+)", str(refused.value))
    named = f"{tmp_path}/net.py:{remedy[1].replace('FUNCTION', 'Small')}"
    model = parley.load_model(run.folder, own_models=(named,))
    np.testing.assert_array_equal(model.predict(frame), before)
    if not is_class:  # the name is known, so other code is refused
        with pytest.raises(ModelFileError, match="small"):
            parley.load_model(run.folder, own_models=(f"{tmp_path}/net.py:other",))


@pytest.mark.parametrize("written", ["python", "job file"])
@pytest.mark.parametrize(("name", "trained"), [("LowRank", 12 + 16 + 18), ("FrozenTied", 90)])
def test_only_trainable_parameters_are_sent_and_frozen_ones_keep_their_bits(
    name: str, trained: int, written: str, tmp_path: Path
) -> None:
    module = getattr(brought_networks, name)(6, 2)
    frozen = {key: p.clone() for key, p in module.named_parameters() if not p.requires_grad}
    more = {"data": records(), "label": "sick", "out": tmp_path / "run", "baseline": False}
    if written == "python":
        run = parley.run(model=module, rounds=1, parties=2, epsilon=4, **more)
    else:
        (tmp_path / "job.toml").write_text(
            'parties.count = 2\nalgorithm.kind = "fedavg"\nalgorithm.rounds = 1\n'
            f'model.kind = "{brought_networks.__file__}:{name}"\nprivacy.epsilon = 4\n'
        )
        run = parley.run(tmp_path / "job.toml", **more)
    assert run.theta.shape == (trained,)
    learned = run.model.learned
    assert (run.theta != learned.start()).all()  # noise is on each of them
    after = {key: p for key, p in learned.module.named_parameters() if not p.requires_grad}
    assert after.keys() == frozen.keys() != set()
    if written == "python":  # they are the caller's own
        assert all(bool((after[key] == value).all()) for key, value in frozen.items())


@pytest.mark.parametrize(
    "name", [*brought_networks.REFUSED, "centred", "learned_mix", "of_large_batches"]
)
def test_a_network_that_would_fail_later_is_refused_before_a_folder_is_made(
    name: str, tmp_path: Path
) -> None:
    said = brought_networks.REFUSED.get(name, "each row by itself")
    with pytest.raises((NetworkError, JobError), match=said) as refused:
        parley.run(brought(name), data=records(), label="sick", out=tmp_path / "run")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()
    with pytest.raises((NetworkError, JobError), match=said):
        parley.plan(brought(name, "parties.min-records=40"), trust_code=True)


def test_buffers_drawn_at_random_are_the_same_whatever_the_seed_of_the_data(tmp_path: Path) -> None:
    job = brought("RandomBuffer", "data.seed=3", "parties.min-records=40")
    assert parley.plan(job, trust_code=True).dimension > 0


def test_parties_work_on_few_records_at_once_only_where_gradients_are_written_out() -> None:
    """A trial of 2,048 written-out gradients takes a minute, and finds what one of 64 finds."""
    sizes = {
        (kind, *more): build_algorithm(
            job := brought(kind, *more),
            build_model(job, features=6, classes=3),
            Federation.from_sizes(np.array([4000, 4000])),
        ).training.micro_batch
        for kind, more in (
            ("Tied", ()),
            ("lazy", ()),
            ("Tied", ("dp-sgd.micro-batch=100",)),
            ("Tied", ("privacy.unit=party",)),
        )
    }
    assert list(sizes.values()) == [64, 2048, 100, 2048]
