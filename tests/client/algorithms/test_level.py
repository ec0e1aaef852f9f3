"""The level: what all predictions lack, learned in the last rounds with a wider clip norm."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.client.algorithms.task_codec import decode_task, describe_task
from parley.client.data.party_block import PartyBlock
from parley.client.data.schema import Schema
from parley.client.features.bins_and_splines import LinearSplines
from parley.client.models.row_quantization import prepare_rows
from parley.privacy.sampling.random_stream import Randomness
from parley.server.jobs.federation_facts import Federation
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError
from parley.server.planning.job_planner import build_algorithm, build_model, plan_release

RECORDS = 400
SCHEMA = """
[columns]
a = { kind = "numeric", range = [0, 1] }
b = { kind = "numeric", range = [0, 1] }
c = { kind = "categorical", categories = ["x", "z"] }
y = { kind = "label", range = [0, 100], centre = 5 }
"""
FEDERATION = Federation(
    parties=1, min_records=RECORDS, total_records=RECORDS, max_records=RECORDS,
    numbers=2, columns=3,
)  # fmt: skip
HATS = ("model.features=hats",)


def made(*overrides, features=4):
    job = load_job(
        overrides=[
            "model.kind=ridge",
            "model.lambda=1e-6",
            "parties.count=1",
            "privacy.noise-point=server",
            "algorithm.clip-norm=0.05",
            "algorithm.learning-rate=1",
            "algorithm.rounds=120",
            "algorithm.level-rounds=12",
            *overrides,
        ]
    )
    algorithm = build_algorithm(job, build_model(job, features=features, classes=0), FEDERATION)
    return algorithm, plan_release(job, algorithm=algorithm, federation=FEDERATION)


def block_of(rows, labels):
    return PartyBlock(features=rows, labels=labels, offsets=np.array([0, len(rows)]))


def long_tailed(*, hats):
    """Rows of two numbers and a category, and targets most of which lie below their mean, 0."""
    rng = np.random.default_rng(1)
    cells = np.zeros((RECORDS, 4))
    cells[:, :2] = rng.uniform(-1, 1, (RECORDS, 2))
    cells[np.arange(RECORDS), 2 + rng.integers(0, 2, RECORDS)] = 1
    raw = LinearSplines().bind(Schema.from_toml(SCHEMA)).compute(cells) if hats else cells
    labels = rng.exponential(0.1, RECORDS) + 0.05 * cells[:, 0]
    return block_of(prepare_rows(raw, intercept=not hats), np.clip(labels - labels.mean(), -1, 1))


def learned(algorithm, plan, block):
    """Without noise."""
    state = algorithm.init()
    for number in range(1, algorithm.rounds + 1):
        release = plan.with_round(number)
        sent = {"theta": state["theta"]}  # which is all that a party is sent
        values = algorithm.local(sent, block, release, Randomness.from_seed(1)).values
        state = algorithm.update(state, values[0])
    return algorithm.model_of(state)


@pytest.mark.parametrize("hats", [True, False])
def test_what_clipping_takes_from_all_predictions_comes_back(hats):
    block = long_tailed(hats=hats)
    asked, features = HATS * hats, block.features.shape[1] - (not hats)
    lacking = []
    for rounds in (0, 12):
        algorithm, plan = made(*asked, f"algorithm.level-rounds={rounds}", features=features)
        predicted = block.features @ learned(algorithm, plan, block)
        lacking.append((block.labels - predicted).mean())
    assert lacking[0] > 0.015  # of .1, which targets are off by
    assert abs(lacking[1]) < lacking[0] / 2


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_record_moves_the_level_no_further_than_it_moves_a_step(data):
    algorithm, plan = made()
    claim = algorithm.claim(FEDERATION.to_public_facts("uniform"))
    block, at = long_tailed(hats=False), data.draw(st.integers(0, RECORDS - 1))
    number = st.floats(-1e3, 1e3)
    theta = np.array(data.draw(st.lists(number, min_size=5, max_size=5)))
    state, plan = (
        {**algorithm.init(), "theta": theta},
        plan.with_round(data.draw(st.integers(1, 120))),
    )
    sums = []
    for sign in (1, -1):
        rows, labels = block.features.copy(), block.labels.copy()
        rows[at], labels[at] = [0, 0, 0, 0, 1], sign
        near = block_of(rows, labels)
        sums.append(algorithm.local(state, near, plan, Randomness.from_seed(1)).values[0])
    assert np.linalg.norm(sums[0] - sums[1]) <= claim.covered_sensitivity


def test_a_record_at_the_clip_norm_moves_the_level_by_all_that_is_claimed():
    algorithm, plan = made()
    claim = algorithm.claim(FEDERATION.to_public_facts("uniform"))
    state, plan = algorithm.init(), plan.with_round(110)
    sums = [
        algorithm.local(
            state,
            block_of(np.tile([0, 0, 0, 0, 1.0], (RECORDS, 1)), np.r_[sign, np.zeros(RECORDS - 1)]),
            plan,
            Randomness.from_seed(1),
        ).values[0]
        for sign in (1.0, -1.0)
    ]
    assert np.linalg.norm(sums[0] - sums[1]) == pytest.approx(claim.sensitivity, rel=1e-6)


def test_the_level_is_the_same_whole_numbers_as_steps_with_four_times_the_clip_norm():
    algorithm, plan = made()
    wide, wide_plan = made("algorithm.clip-norm=0.2", "algorithm.level-rounds=0")
    block, state = long_tailed(hats=False), algorithm.init()
    ours = algorithm.local(state, block, plan.with_round(109), Randomness.from_seed(1)).values
    theirs = wide.local(state, block, wide_plan, Randomness.from_seed(1)).values
    np.testing.assert_array_equal(4 * ours, theirs)


def test_a_tenth_of_the_rounds_by_the_rule_where_targets_have_signal(tmp_path):
    own = tmp_path / "own.py"
    own.write_text("def of(z, y):\n    return abs(z - y)\n")

    def steps(records, *keys):
        each = {"min_records": records, "total_records": 10 * records, "max_records": records}
        parties = Federation(parties=10, numbers=2, columns=3, **each)
        asked = ["model.kind=ridge", "parties.count=10", "privacy.epsilon=1", *keys]
        return load_job(overrides=asked).resolve_auto(parties, 0).algorithm

    found = steps(1000)
    assert found.level_rounds == -(-(found.rounds - found.level_rounds) // 10) > 0
    none = (
        steps(20),
        steps(1000, "model.intercept=false", "model.features=none"),
        steps(1000, "model.kind=own-residual-loss", f"model.loss={own}:of"),  # no mean's
    )
    assert [each.level_rounds for each in none] == [0, 0, 0]


def test_the_task_says_it():
    algorithm, _ = made(*HATS, features=12)
    assert (algorithm.level_rounds, algorithm.level_columns) == (12, 3)
    assert decode_task(describe_task(algorithm)) == algorithm


@pytest.mark.parametrize(
    "overrides",
    [
        ("algorithm.level-rounds=120",),
        ("model.kind=logistic",),
        ("model.kind=softmax",),
        ("model.intercept=false",),
    ],
)
def test_levels_that_mean_nothing_are_refused(overrides):
    with pytest.raises(JobError, match=r"level.rounds"):
        made(*overrides)
    algorithm, _ = made()
    with pytest.raises(ValueError, match="level_rounds"):
        replace(algorithm, level_rounds=-1)
