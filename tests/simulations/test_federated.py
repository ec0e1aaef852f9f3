"""Federated averaging with DP-SGD, whole runs: budgets, masked sums, resuming, bad input."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from quick_runs import StopAfter

from parley.client.models.layer_checks import NetworkError
from parley.privacy.calibration.noise_calibration import CalibrationError
from parley.privacy.ledger.ledger import Ledger
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.simulations.engine.fast_engine import simulate

pytestmark = pytest.mark.usefixtures("no_baseline")

BASE = [
    *("algorithm.kind=fedavg", "algorithm.rounds=2"),
    *("model.kind=mlp", "model.hidden=[8]"),
    "parties.count=3",
    *("dp-sgd.sampling-rate=0.25", "dp-sgd.local-epochs=1"),
    *("dp-sgd.learning-rate=0.5", "dp-sgd.momentum=0.9"),
    "run.seed=1",
]


ADD_OR_REMOVE = ["privacy.neighbouring=add-or-remove-one"]


def run(folder: Path, *overrides: str, **more):
    return simulate(load_job(overrides=[*BASE, *overrides]), out=folder, **more)


def test_a_run_spends_its_budget_and_says_every_partys_account(tmp_path) -> None:
    result = run(tmp_path / "r", "privacy.epsilon=2", "dp-sgd.clip-norm=1")
    summary = result.summary
    assert summary.status == "complete"
    assert 1.99 <= summary.primary.epsilon <= 2.0
    assert summary.primary.conversion == "pld"
    facts = summary.dp_sgd
    assert facts.steps_per_round == 4
    assert [party.steps for party in facts.parties] == [8, 8, 8]
    assert facts.largest["pld"] == pytest.approx(summary.primary.epsilon)
    assert facts.largest["rdp"] > facts.largest["pld"]
    with Ledger.open(tmp_path / "r" / "ledger.sqlite", read_only=True) as ledger:
        (first, _) = ledger.list_entries()
        assert first.entry.facts["sampling_rate"] == 0.25
        assert first.entry.facts["clip_norm"] == 1.0
        assert first.entry.facts["accountant"] == "dp-accounting"
        assert ledger.verify() == []


ADAM = ["algorithm.rounds=3", "dp-sgd.server-optimiser=adam", "dp-sgd.server-learning-rate=0.02"]
COUNTING = ["dp-sgd.clipped-fraction-share=0.01", "algorithm.rounds=3", "privacy.epsilon=8"]


@pytest.mark.parametrize("more", [[*ADAM, "model.kind=pca-mlp", "model.components=6"], COUNTING])
def test_a_run_that_was_killed_goes_on_where_it_was(tmp_path, more) -> None:
    whole = run(tmp_path / "whole", *more)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", *more, observer=StopAfter(1))
    resumed = simulate(None, resume=tmp_path / "cut")
    assert np.array_equal(whole.theta, resumed.theta)
    assert resumed.summary.primary.epsilon == whole.summary.primary.epsilon
    assert resumed.summary.clipped_fraction == whole.summary.clipped_fraction


def test_a_delta_that_the_sampler_takes_is_refused_without_advice_that_is_refused(tmp_path) -> None:
    with pytest.raises(CalibrationError, match=r"privacy\.delta=1e-20") as refusal:
        run(tmp_path / "r", "privacy.unit=party", "privacy.delta=1e-30")
    assert "discrete-gaussian" not in str(refusal.value)


def test_unit_party_clips_the_update_and_notes_its_own_unit(tmp_path) -> None:
    result = run(
        tmp_path / "r", "privacy.unit=party", "dp-sgd.party-clip-norm=0.5", "privacy.epsilon=4"
    )
    summary = result.summary
    assert summary.primary.unit == "party"
    assert summary.primary.conversion == "exact"
    assert summary.dp_sgd is None
    # 2S/m on the average over three parties, and the grid's share.
    assert summary.primary.noise.sensitivity == pytest.approx(2 * 0.5 / 3, rel=1e-3)
    with Ledger.open(tmp_path / "r" / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.list_accounts()[0].budget.unit == "party"


NAN_MODEL = """
import torch
class Broken(torch.nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.last = torch.nn.Linear(features, classes)
    def forward(self, x):
        scores = self.last(x)
        # Not finite on rows of multiples of 2^-16, which all real ones are; made-up ones are not,
        # but for rows of zeros and of a single 1.
        whole = (x * 2**16).frac().abs().amax(dim=-1, keepdim=True) == 0
        made_up = (x != 0).sum(dim=-1, keepdim=True) < 2
        return scores + torch.where(whole & ~made_up, float('nan'), 0.0)
"""


@pytest.mark.parametrize("unit", ["record", "party"])
def test_a_model_that_gives_nan_on_every_record_trains_on_noise_and_nothing_tells(
    tmp_path, unit: str
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(NAN_MODEL + "def net(p, k):\n    return Broken(p, k)\n")
    overrides = [f"model.kind={mine}:net", f"privacy.unit={unit}"]
    if unit == "party":
        overrides.append("dp-sgd.party-clip-norm=0.5")
    base = [text for text in BASE if not text.startswith("model.")]
    result = simulate(load_job(overrides=[*base, *overrides]), out=tmp_path / "r")
    assert result.summary.status == "complete"
    assert result.summary.reason == ""
    assert np.isfinite(result.theta).all()
    assert result.summary.loss is None  # a simulation's user is told
    assert "not finite" in result.summary.verdict


def test_own_models_run_by_file_are_named_by_digest_and_a_missing_one_is_refused(tmp_path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("import torch\ndef net(p, k):\n    return torch.nn.Linear(p, k)\n")
    base = [text for text in BASE if not text.startswith("model.")]
    result = simulate(
        load_job(overrides=[*base, f"model.kind={mine}:net", "dp-sgd.per-example-method=vmap"]),
        out=tmp_path / "r",
    )
    assert result.summary.dimension == 62
    assert result.summary.model == "mine.py:net"  # and never its place
    assert result.summary.model_digest == hashlib.sha256(mine.read_bytes()).hexdigest()
    with pytest.raises(NetworkError, match="model file at"):
        simulate(load_job(overrides=[*base, "model.kind=nowhere.py:net"]), out=tmp_path / "s")
    assert not (tmp_path / "s").exists()


CONTRADICTIONS = """
dp-sgd.sampling-rate=0 | sampling-rate
dp-sgd.sampling-rate=1.01 | sampling-rate
dp-sgd.clip-norm=0 | clip-norm
dp-sgd.clip-norm=-1 | clip-norm
privacy.delta=0 | privacy.delta > 0
algorithm.clip-norm=1.0 | algorithm.clip-norm
model.lambda=0.5 | model.lambda
model.components=3 | pca-mlp
dp-sgd.party-clip-norm=2.0 | party-clip-norm
privacy.unit=party dp-sgd.clip-norm=2.0 | dp-sgd.clip-norm
dp-sgd.clipped-fraction-share=1.0 | clipped-fraction-share
dp-sgd.clipped-fraction-share=-0.1 | clipped-fraction-share
dp-sgd.clipped-fraction-share=nan | clipped-fraction-share
privacy.unit=party dp-sgd.clipped-fraction-share=0.01 | needs privacy.unit = 'record'\\), got 0.01
privacy.unit=both dp-sgd.clipped-fraction-share=0.01 | needs privacy.unit = 'record'\\), got 0.01
privacy.unit=party privacy.neighbouring=add-or-remove-one | parties.min-records, a public number
privacy.neighbouring=add-or-remove-one parties.weights=size parties.min-records=100 | weights
privacy.neighbouring=add-or-remove-one | parties.min-records, a public number
model.kind=logistic | model.kind
algorithm.kind=gradient-perturbation model.kind=logistic | needs model.kind = 'mlp' or 'pca-mlp'
"""


@pytest.mark.parametrize("line", CONTRADICTIONS.split("\n")[1:-1])
def test_keys_that_contradict_or_do_nothing_are_refused(line) -> None:
    overrides, message = line.split(" | ")
    with pytest.raises(JobError, match=message):
        load_job(overrides=[*BASE, *overrides.split()])


def fractions(folder: Path) -> list[float]:
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    return [json.loads(line)["clipped_fraction"] for line in lines]


@pytest.mark.parametrize(
    ("more", "truth"),
    [
        (["dp-sgd.clip-norm=1e-6"], 1.0),
        (["dp-sgd.clip-norm=1e-6", "parties.weights=size"], 1.0),
        (["dp-sgd.clip-norm=100", "dp-sgd.learning-rate=0.001"], 0.0),
        (["dp-sgd.clip-norm=1e-6", *ADD_OR_REMOVE, "parties.min-records=151"], 1.0),
    ],
)
def test_the_released_fraction_is_that_of_the_clipped_gradients(tmp_path, more, truth) -> None:
    summary = run(tmp_path / "r", *COUNTING, *more).summary
    told, by_round = summary.clipped_fraction, fractions(tmp_path / "r")
    # Batches' own spread, of three parties of 151 records and 4 steps each at q = .25.
    of_batches = 0.5 * np.sqrt(0.75 / (0.25 * 151 * 4 * 3))
    spread = np.hypot(told.deviation, of_batches)
    assert 0 < told.deviation < 0.1
    for fraction in by_round:
        assert abs(fraction - truth) < 5 * spread
    assert told.last == by_round[-1]
    assert told.mean == pytest.approx(np.mean(by_round))
    assert told.mean_deviation == pytest.approx(told.deviation / np.sqrt(3))
    sigma, batches = summary.dp_sgd.noise_multiplier, 2 * 0.25 * 151 * 4 * np.sqrt(3)
    expected = sigma / np.sqrt(0.01) * np.sqrt(4) / batches
    assert told.deviation == pytest.approx(expected, rel=0.01)


def test_a_fraction_costs_no_epsilon_but_noise_and_both_modes_give_the_same(tmp_path) -> None:
    plain = run(tmp_path / "p", *COUNTING[1:]).summary
    ideal = run(tmp_path / "i", *COUNTING)
    masked = run(tmp_path / "m", *COUNTING, "secure-aggregation.backend=masked")
    assert np.array_equal(ideal.theta, masked.theta)
    assert fractions(tmp_path / "i") == fractions(tmp_path / "m")
    summary = ideal.summary
    assert summary.dimension == plain.dimension
    for key in ("epsilon", "delta"):
        assert getattr(summary.primary, key) == getattr(plain.primary, key)
    assert summary.dimension == ideal.theta.size
    own, other = summary.dp_sgd, plain.dp_sgd
    assert own.noise_multiplier == pytest.approx(other.noise_multiplier, rel=1e-9)
    larger = summary.primary.noise.scale / plain.primary.noise.scale
    assert larger == pytest.approx(1 / np.sqrt(0.99), rel=1e-9)
    assert plain.clipped_fraction is None
    with Ledger.open(tmp_path / "i" / "ledger.sqlite", read_only=True) as ledger:
        facts = ledger.list_entries()[0].entry.facts
    # It is among what was released: a coordinate more, under its own share.
    assert facts["clipped_share"] == 0.01
    assert facts["dimension"] == ideal.theta.size + 1


def test_a_fraction_of_small_parties_is_not_bent_by_the_range_it_travels_in(tmp_path) -> None:
    """One party's noise is several times the range of fractions; clamped to it, it would be .5."""
    many = ["parties.count=150", "privacy.epsilon=2", "dp-sgd.clip-norm=1e-6", "data.records=569"]
    told = run(tmp_path / "r", *COUNTING, *many).summary.clipped_fraction
    assert told.deviation * np.sqrt(150) > 5
    assert abs(told.mean - 1) < 5 * np.hypot(told.mean_deviation, 0.03)


def test_noise_beyond_what_can_be_drawn_is_refused_before_the_run(tmp_path) -> None:
    with pytest.raises(JobError, match=r"2\^40 .*clipped-fraction-share 1e-20"):
        run(tmp_path / "r", "dp-sgd.clipped-fraction-share=1e-20")
    assert not (tmp_path / "r").exists()


def test_a_batch_larger_than_a_party_is_refused_with_the_numbers(tmp_path) -> None:
    with pytest.raises(JobError, match=r"at most 151.*got 152"):
        run(tmp_path / "r", "dp-sgd.batch-size=152", "dp-sgd.sampling-rate=auto")
    result = run(tmp_path / "s", "dp-sgd.batch-size=50", "dp-sgd.sampling-rate=auto")
    assert result.summary.dp_sgd.sampling_rate == pytest.approx(50 / 151)


def test_dropouts_and_skew_are_survived_and_each_party_keeps_its_own_account(tmp_path) -> None:
    result = run(
        tmp_path / "r",
        "data.source=digits",
        "data.partition=dirichlet",
        "parties.count=10",
        "algorithm.rounds=3",
        "run.faults=decline:0.2",
    )
    releases = [party.releases for party in result.summary.dp_sgd.parties]
    assert min(releases) < 3
    assert max(releases) == 3
    lines = [json.loads(x) for x in (tmp_path / "r" / "rounds.jsonl").read_text().splitlines()]
    assert sum(line["parties"]["declined"] for line in lines) == 30 - sum(releases)


def test_with_private_sizes_nothing_public_depends_on_one(tmp_path) -> None:
    # 455 training records for 3 parties: 152, 152, 151. Where a record may be removed, a party
    # that is below the public number must not stand out by refusing, nor the plan tell its size.
    sets = [*ADD_OR_REMOVE, "parties.min-records=152"]
    result = run(tmp_path / "r", *sets)
    assert result.summary.status == "complete"
    line = json.loads((tmp_path / "r" / "rounds.jsonl").read_text().splitlines()[0])
    assert line["parties"]["declined"] == 0
    smaller = run(tmp_path / "s", *sets, "data.records=560")
    facts = []
    for folder in ("r", "s"):
        with Ledger.open(tmp_path / folder / "ledger.sqlite", read_only=True) as ledger:
            facts.append(ledger.list_entries()[0].entry.facts)
    assert smaller.summary.records_by_party != result.summary.records_by_party
    assert facts[0] == facts[1]
