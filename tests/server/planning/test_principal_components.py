"""Principal components at real parties: released once, charged everywhere, as simulated."""

from __future__ import annotations

import numpy as np
import pytest
import scenes
from in_process import InProcessTransport
from safetensors.numpy import load_file, save_file
from scenes import Killed, KilledServer

from parley.client.party.owner_policy import load_policy
from parley.privacy.ledger.ledger import Ledger
from parley.secure_agg.interface import TooFewSurvivors
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.planning.principal_components import compute_components
from parley.server.records.run_folder import RunFolder
from parley.simulations.engine.fast_engine import simulate
from parley.simulations.engine.party_folders import (
    COMPONENTS,
    FINGERPRINT,
)

BASE = (
    "algorithm.kind=fedavg",
    "model.kind=pca-mlp",
    "model.components=6",
    "model.hidden=[8]",
    "algorithm.rounds=2",
    "data.records=200",
    "dp-sgd.sampling-rate=0.25",
    "run.seed=1",
)


pytestmark = pytest.mark.usefixtures("no_baseline")


class Scene(scenes.Scene):
    """Parties that components are released among, or given to."""

    def __init__(self, root, *overrides, lost=()):
        super().__init__(root, (*BASE, *overrides), lost=set(lost))
        self.folder = RunFolder.create(self.job, root / "run")
        self.path = root / "parties" / COMPONENTS

    def run(self, *, transport=None, components=None):
        fingerprint = (self.root / "parties" / FINGERPRINT).read_text().strip()
        return super().run(transport=transport, fingerprint=fingerprint, components=components)

    def model(self):
        return load_file(self.folder.path / "model.safetensors")

    def charged(self, party):
        return [(e.entry.index, e.entry.event, str(e.state)) for e in self.party_entries(party)]

    def indices(self, party):
        return [index for index, _, _ in self.charged(party)]

    def summed(self):
        return [line["parties"]["summed"] for line in self.lines()]


def facts_of(run):
    with Ledger.open(run / "ledger.sqlite", read_only=True) as ledger:
        return [(e.entry.index, e.entry.event, dict(e.entry.facts)) for e in ledger.list_entries()]


@pytest.mark.parametrize(
    "overrides",
    [
        # Replace-one: `test_engines.py::test_rows_are_projected_on_the_same_components`.
        ("privacy.neighbouring=add-or-remove-one", "parties.min-records=20"),
        ("parties.weights=size", "data.partition=sizes", "data.sizes=[20, 30, 40, 30, 40]"),
    ],
    ids=["add-or-remove-one", "size weights"],
)
def test_they_are_those_of_the_fast_engine_and_charged_alike(tmp_path, overrides) -> None:
    scene = Scene(tmp_path, *overrides)
    summary = scene.run()
    fast = simulate(scene.job, out=tmp_path / "fast")
    theirs = load_file(tmp_path / "fast" / "model.safetensors")
    assert np.array_equal(scene.model()["components"], theirs["components"])
    assert scene.model()["theta"].shape == theirs["theta"].shape
    assert facts_of(scene.folder.path) == facts_of(tmp_path / "fast")
    for key in ("guarantees", "dimension", "status"):
        assert getattr(summary, key) == getattr(fast.summary, key), key
    assert summary.components.parties == fast.summary.components.parties
    own = sum(line["bytes_up"] for line in scene.lines())
    assert summary.secure_aggregation.bytes_up == own + summary.components.bytes_up
    assert "sensitive" not in (scene.folder.path / "rounds.jsonl").read_text()
    # Every party charged itself what the server did: release 0, and both rounds.
    events = [event for _, event, _ in facts_of(scene.folder.path)]
    for party in range(5):
        assert scene.charged(party) == [(n, events[n], "committed") for n in range(3)]


def test_it_is_one_release_before_the_rounds_with_keys_of_its_own(tmp_path) -> None:
    scene = Scene(tmp_path)
    scene.run()
    release = [("round",), ("survivors",), ("confirmations",)]
    assert scene.transport.exchanges == [
        ("inspect",),
        *[("join",), ("roster",), *release, ("finish",)],
        *[("join",), ("roster",), *release * 2, ("finish",)],
    ]
    assert not list(scene.homes[0].glob("state/session-*"))


def test_a_party_lost_in_it_is_back_for_the_rounds(tmp_path) -> None:
    scene = Scene(tmp_path, lost=[("round", 2, 1)])
    summary = scene.run()
    assert summary.components.parties.to_json() == {
        "asked": 5,
        "answered": 4,
        "declined": 0,
        "dropped": 1,
        "summed": 4,
    }
    assert scene.summed() == [5, 5]


def test_too_few_parties_for_it_cost_the_server_nothing_and_the_run_goes_on_later(tmp_path) -> None:
    scene = Scene(tmp_path, lost=[("round", party) for party in range(3)])
    with pytest.raises(TooFewSurvivors, match="principal components"):
        scene.run()
    with Ledger.open(scene.folder.ledger_path, read_only=True) as ledger:
        assert ledger.list_accounts()[0].spent.releases == 0
    summary = scene.run(transport=InProcessTransport(scene.homes))
    assert summary.status == "complete"
    # Computed for twice, charged once: it was the same contribution.
    assert scene.indices(4) == [0, 1, 2]


@pytest.fixture(scope="module")
def unbroken_model(tmp_path_factory):
    whole = Scene(tmp_path_factory.mktemp("whole"))
    whole.run()
    return whole.model()


@pytest.mark.parametrize(
    ("kind", "nth"),
    [("round", 1), ("confirmations", 1), ("join", 2)],
)
def test_a_server_killed_around_it_comes_back_to_the_same_model(
    tmp_path, unbroken_model, kind, nth
) -> None:
    scene = Scene(tmp_path)
    with pytest.raises(Killed):
        scene.run(transport=KilledServer(scene.homes, kind, nth))
    scene.run()
    for name, tensor in unbroken_model.items():
        assert np.array_equal(scene.model()[name], tensor), name
    for party in range(5):
        assert scene.indices(party) == [0, 1, 2]


def test_the_job_limit_of_a_party_holds_for_components_and_rounds_together(tmp_path) -> None:
    scene = Scene(tmp_path)
    consent = load_policy(scene.homes[1] / "party.toml")
    (name,) = consent.data
    # Enough for either alone, as each asks to join; not for the rounds after the components.
    own = consent.data[name].model_copy(
        update={"epsilon_per_job": scene.job.privacy.epsilon * 0.97}
    )
    scene.policy(1, data={name: own})
    summary = scene.run()
    assert summary.components.parties.summed == 5
    assert [line["reasons"] for line in scene.lines()] == [{"budget-exhausted": 1}] * 2
    assert scene.indices(1) == [0]


def test_a_party_that_does_not_accept_the_release_declines_it_alone(tmp_path) -> None:
    scene = Scene(tmp_path)
    scene.policy(3, algorithms=("fedavg",))
    summary = scene.run()
    assert summary.components.reasons == {"algorithm": 1}
    assert scene.summed() == [5, 5]
    assert scene.indices(3) == [1, 2]


def test_public_components_are_given_to_the_parties_and_charge_nothing(tmp_path) -> None:
    """Of unit record as of any engine: `tests/conformance/test_engines.py`."""
    more = ("privacy.unit=party", "privacy.epsilon=8", "parties.min-records=20")
    scene = Scene(tmp_path, "model.pca=public", *more)
    given = load_file(scene.path)["components"]
    summary = scene.run(components=given)
    fast = simulate(scene.job, out=tmp_path / "fast")
    assert np.array_equal(scene.model()["components"], given)
    theirs = load_file(tmp_path / "fast" / "model.safetensors")["components"]
    assert np.array_equal(given, theirs)
    assert summary.primary.epsilon == fast.summary.primary.epsilon
    assert summary.components is None
    assert scene.indices(0) == [1, 2]


def test_components_of_a_file_serve_every_engine(tmp_path) -> None:
    earlier = Scene(tmp_path / "earlier")
    earlier.run()
    path = earlier.folder.path / "model.safetensors"
    own = ("model.pca=public", f"model.pca-file={path}")
    scene = Scene(tmp_path / "later", *own)
    scene.run()
    assert np.array_equal(scene.model()["components"], earlier.model()["components"])
    fast = simulate(scene.job, out=tmp_path / "fast")
    assert load_file(fast.folder / "model.safetensors").keys() == {"theta", "components"}
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(JobError, match="changed or damaged"):
        Scene(tmp_path / "damaged", *own).run()


def test_a_file_that_holds_no_such_components_is_refused_by_name(tmp_path) -> None:
    scene = Scene(tmp_path, "model.pca=public")
    with pytest.raises(JobError, match=r"Expected model\.pca-file"):
        scene.run()
    assert not scene.folder.ledger_path.exists()
    path = tmp_path / "own.safetensors"

    def refused(match):
        job = load_job(overrides=[*BASE, "model.pca=public", f"model.pca-file={path}"])
        with pytest.raises(JobError, match=match):
            simulate(job, out=tmp_path / "never")
        assert not (tmp_path / "never").exists()

    refused("No model found at")
    path.write_bytes(b"no tensors")
    refused("own.safetensors")
    save_file({"theta": np.zeros(3)}, path)
    refused("tensor `components`")
    save_file({"components": np.full((30, 6), np.inf)}, path)
    refused("finite")
    save_file({"components": np.ones((8, 6))}, path)
    refused(r"of 30 features.*got 8 features|of \d+ features")
    with pytest.raises(JobError, match="pca-file"):
        load_job(overrides=[*BASE, f"model.pca-file={path}"])


def test_a_run_goes_on_with_the_components_it_began_with_alone(tmp_path) -> None:
    path = tmp_path / "own.safetensors"
    earlier = Scene(tmp_path / "earlier")
    earlier.run()
    components = earlier.model()["components"]
    save_file({"components": components}, path)
    scene = Scene(tmp_path / "later", "model.pca=public", f"model.pca-file={path}")
    with pytest.raises(Killed):
        scene.run(transport=KilledServer(scene.homes, "round", 2))
    save_file({"components": np.ascontiguousarray(-components)}, path)
    with pytest.raises(JobError, match="components that the run"):
        scene.run()
    save_file({"components": components}, path)
    assert scene.run().status == "complete"


def test_the_leading_directions_do_not_depend_on_the_scale_of_the_sum() -> None:
    half = np.random.default_rng(4).normal(size=(40, 9))
    moments = half.T @ half
    first, second = compute_components(moments, 4), compute_components(moments * 1e6, 4)
    assert np.allclose(first, second, rtol=1e-9)
    assert first.shape == (9, 4)
    values = np.linalg.eigvalsh(moments)[::-1][:4]
    lengths = np.linalg.norm(first, axis=0)
    assert np.allclose(lengths**4 * values, (lengths**4 * values)[0])
    assert (values * lengths**2).sum() == pytest.approx(values.sum())
