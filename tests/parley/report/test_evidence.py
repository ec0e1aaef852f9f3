"""The report as evidence: who learns what, public ranges, coefficients beside the noise's reach."""

import json

import numpy as np
import polars as pl
import pytest

import parley
from parley.client.algorithms.gradient_perturbation import GradientPerturbation
from parley.client.data.block import PartyBlock
from parley.client.models.linear import LinearModel
from parley.client.models.losses import Logistic, Softmax
from parley.client.models.rows import prepare_rows
from parley.report.evidence import (
    coefficients,
    parties_named,
    public_ranges,
    reach_of_momentum,
    reach_of_steps,
    who_learns_what,
)
from parley.report.page import write_report

SCHEMA = """
[columns]
age = { kind = "numeric", range = [0, 110] }
ward = { kind = "categorical", categories = ["north", "south"] }
hospital = { kind = "ignore" }
outcome = { kind = "label", positive = ["died"], negative = ["alive"] }
"""


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(2)
    age = rng.integers(20, 100, 360)
    return pl.DataFrame(
        {
            "age": age,
            "ward": rng.choice(["north", "south"], 360),
            "hospital": rng.choice(["Charité", "St <b>Mary</b>"], 360),
            "outcome": np.where(age + rng.normal(0, 20, 360) > 70, "died", "alive"),
        }
    )


def run_of(frame, folder, *overrides):
    folder.mkdir(exist_ok=True)
    (folder / "schema.toml").write_text(SCHEMA)
    frame.write_csv(folder / "rows.csv")
    job = parley.load_job(
        overrides=[
            f"data.source={folder}/rows.csv",
            f"data.schema={folder}/schema.toml",
            "data.partition=column",
            "data.partition-column=hospital",
            "parties.count=2",
            "algorithm.rounds=3",
            "secure-aggregation.masked-check=false",
            *overrides,
        ]
    )
    return parley.run(job, out=folder / "run")


def learns(result):
    (table,) = [who_learns_what(result.summary, of) for of in result.summary.guarantees]
    return {who: can for who, _, can in table.rows}


def test_each_noise_point_says_what_the_server_and_others_can_learn(frame, tmp_path):
    shared = run_of(frame, tmp_path / "share", "secure-aggregation.backend=masked")
    told = learns(shared)
    by = {row.adversary: row for row in shared.summary.primary.accounts}
    # Nobody is told less than what is proved against those who know as much.
    assert (
        f"ε = {shared.summary.primary.epsilon:.4g}" in told["the server"]
        or "= 1 " in told["the server"]
    )
    assert told["readers of the model"] != told["all other parties and the server together"]
    assert by["readers"].epsilon <= by["all-others"].epsilon
    assert "nothing about records" in told["outsiders on the network"]
    trusted = learns(run_of(frame, tmp_path / "server", "privacy.noise-point=server"))
    assert trusted["the server"] == "not bounded by any ε: it is trusted"
    assert trusted["readers of the model"].startswith("at most ε = ")
    assert "all other parties and the server together" not in trusted
    seeded = learns(run_of(frame, tmp_path / "seeded", "run.seed=1"))
    assert all("seed" in can for who, can in seeded.items() if "outsiders" not in who)


def test_the_page_has_names_ranges_and_coefficients(frame, tmp_path):
    result = run_of(frame, tmp_path)
    page = (result.folder / "report.html").read_text()
    assert result.summary.partition.parties == ("Charité", "St <b>Mary</b>")
    assert result.summary.partition.labels == ("alive", "died")
    assert "Charité" in page
    assert "<b>Mary" not in page  # names are data, never markup
    ranges = public_ranges(result.folder)
    assert ["age", "numeric", "0 to 110"] in ranges.rows
    assert ranges.rows[-1] == ["outcome", "label", "alive, died"]
    table = coefficients(result.folder, result.summary)
    assert {row[0] for row in table.rows} == {"age", "ward=north", "ward=south", "intercept"}
    assert "noise alone" in table.caption
    shown = result._repr_html_()  # as a notebook has it
    assert "ε = 1 at δ = 1e-05, per record" in shown
    assert "accuracy, held-out records (simulation only)" in shown
    assert str(result.folder / "report.html") in shown


def test_real_parties_are_named_as_they_enrolled(frame, tmp_path):
    folder = run_of(frame, tmp_path).folder
    assert "enrolled" not in (folder / "report.html").read_text()
    board = [
        {"name": "St <b>Mary</b>", "state": "unmasked", "reason": ""},
        {"name": "charite", "state": "declined", "reason": "budget-exhausted"},
    ]
    (folder / "parties.json").write_text(json.dumps({"parties": board}, allow_nan=False))
    assert parties_named(folder).rows[1] == ["charite", "declined (budget-exhausted)"]
    page = write_report(folder).read_text()
    assert "St &lt;b&gt;Mary&lt;/b&gt;" in page
    assert "declined (budget-exhausted)" in page
    (folder / "parties.json").write_text('{"parties": 3}')
    assert parties_named(folder) is None


def test_of_one_release_the_interval_is_the_laws(frame, tmp_path):
    result = run_of(frame, tmp_path, "algorithm.kind=output-perturbation", "privacy.noise=gaussian")
    (reach,) = {row[2] for row in coefficients(result.folder, result.summary).rows}
    noise = result.summary.primary.noise
    deviation = noise.scale * (noise.shares.inflation if noise.shares else 1)
    assert float(reach) == pytest.approx(2 * deviation, rel=0.05)


def test_of_gradient_steps_the_interval_holds_and_is_not_idle():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(300, 4))
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1)
    y = np.where(x @ [2.0, -1, 0, 1] + rng.normal(size=300) > 0, 1.0, -1.0)
    lambda_, rounds, deviation, draws = 0.05, 12, 0.02, 4000
    rate = 1 / (0.25 + lambda_)

    def path(noise):
        theta = np.zeros((len(noise), 4))
        for step in range(rounds):
            slope = -y / (1 + np.exp(y * (theta @ x.T)))
            theta = theta - rate * (slope @ x / len(x) + lambda_ * theta + noise[:, step])
        return theta

    noisy = path(rng.normal(0, deviation, (draws, rounds, 4)))
    still = path(np.zeros((1, rounds, 4)))
    reach = reach_of_steps(rate, lambda_, deviation, rounds)
    covered = (np.abs(noisy - still) <= reach).mean(axis=0)
    assert (covered >= 0.95).all()
    two_thirds = (np.abs(noisy - still) <= reach / 3).mean(axis=0)
    assert (two_thirds < 0.95).all()


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("outputs", [1, 3])
def test_with_momentum_and_with_classes_the_interval_holds_and_is_not_idle(nesterov, outputs):
    """The algorithm's own steps: logistic and softmax, momentum .85, last iterate and average."""
    rng = np.random.default_rng(5)
    loss = Logistic() if outputs == 1 else Softmax(classes=3)
    model = LinearModel(loss=loss, features=3)
    x = prepare_rows(rng.normal(size=(80, 3)), intercept=False)
    y = rng.integers(0, 3, 80) if outputs > 1 else rng.choice([-1.0, 1.0], 80)
    block = PartyBlock(features=x, labels=y, offsets=np.array([0, 80]))
    rounds, deviation, draws = 30, 0.01, 120
    steps = GradientPerturbation(
        model=model,
        lambda_=0.02,
        lipschitz=model.lipschitz,
        weights="uniform",
        rounds=rounds,
        learning_rate=1 / (model.smoothness + 0.02),
        momentum=0.85,
        average=outputs > 1,
        nesterov=nesterov,
    )

    def learned(noise):
        state = steps.init()
        for each in noise:
            state = steps.update(state, model.gradients(state["theta"], block)[0] + each)
        return steps.model_of(state)

    noisy = [learned(rng.normal(0, deviation, (rounds, model.dimension))) for _ in range(draws)]
    moved = np.abs(np.array(noisy) - learned(np.zeros((rounds, model.dimension))))
    reach = reach_of_momentum(
        steps.learning_rate,
        (0.02, model.smoothness + 0.02),
        deviation,
        rounds,
        momentum=0.85,
        nesterov=nesterov,
    )
    assert (moved <= reach).mean() >= 0.95
    assert (moved <= reach / 8).mean() < 0.95
    plain = (steps.learning_rate, (0.02, 0.02), deviation, rounds)
    assert reach_of_momentum(*plain, momentum=0, nesterov=False) == pytest.approx(
        reach_of_steps(steps.learning_rate, 0.02, deviation, rounds)
    )


def test_coefficients_of_classes_are_named_and_of_party_noise_they_have_their_interval(
    frame, tmp_path
):
    party = run_of(
        frame,
        tmp_path / "party",
        "algorithm.kind=output-perturbation",
        "privacy.noise=gaussian",
        "privacy.noise-point=party",
    )
    (reach,) = {row[2] for row in coefficients(party.folder, party.summary).rows}
    noise = party.summary.primary.noise
    assert float(reach) == pytest.approx(
        2 * noise.expected_norm / len(party.theta) ** 0.5, rel=0.05
    )
