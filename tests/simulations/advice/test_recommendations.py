"""What is said of a model first, and of what would give a better one."""

import re

import numpy as np
import pytest

import parley
from parley.client.data.schema_inference.schema_draft import infer_schema
from parley.server.jobs.job_file import load_job
from parley.server.statements.model_shortcoming import find_shortcoming
from parley.simulations.advice.learning_remedies import describe_threshold
from parley.simulations.advice.recommendations import (
    _describe_too_few,
    _is_noise_limited,
    _list_class_weights,
)
from parley.simulations.data.experiment_loading import load_experiment
from parley.simulations.data.partitions import PartitionError
from parley.simulations.metrics.evaluation import evaluate_classifier, evaluate_targets

SCHEMA = """[columns]
age = { kind = "numeric", range = [0, 100] }
note = { kind = "ignore" }
sick = { kind = "label", positive = ["yes"], negative = ["no"] }
"""


def table(folder, *, share, sick_at, others_at, count=3000, spread=5.0):
    """A file of `count` people: the sick are about `sick_at` years old, the others `others_at`."""
    rng = np.random.default_rng(2)
    sick = rng.random(count) < share
    middle = np.where(sick, rng.choice(sick_at, count), rng.choice(others_at, count))
    age = np.clip(middle + spread * rng.standard_normal(count), 0, 100)
    lines = [f"{a:.1f},x{a:.0f},{'yes' if s else 'no'}" for a, s in zip(age, sick, strict=True)]
    (folder / "data.csv").write_text("\n".join(["age,note,sick", *lines]))
    (folder / "schema.toml").write_text(SCHEMA)
    return [f"data.source={folder / 'data.csv'}", f"data.schema={folder / 'schema.toml'}"]


def run(folder, *overrides):
    job = parley.load_job(overrides=[*overrides, "run.seed=1"])
    return parley.run(job, out=folder / "run").summary


def test_a_rare_label_that_is_ranked_is_cured_by_a_threshold(tmp_path):
    data = table(tmp_path, share=0.06, sick_at=[70], others_at=[50], spread=10)
    plain = ("privacy.epsilon=4", "model.features=none", "algorithm.rounds=10")
    summary = run(tmp_path, *data, *plain)
    assert summary.verdict.startswith("The model predicts 'no' for all of 600 held-out records")
    assert "noise is not the cause" in summary.verdict
    assert "verdict" in summary.simulation_only
    (row,) = [
        row
        for row in summary.judgement.thresholds
        if f"--threshold {row.least:g}` predicts 'yes'" in summary.verdict
    ]
    assert row.recall > 0.3
    model = parley.load_model(tmp_path / "run")
    ages = {"age": np.array([20.0, 50.0, 95.0])}
    assert model.predict(ages).tolist() == ["no"] * 3
    assert model.predict(ages, threshold=row.least).tolist() == ["no", "no", "yes"]


def test_a_curve_that_a_slope_cannot_follow_is_no_matter_of_noise_and_hats_cure_it(tmp_path):
    data = table(tmp_path, share=0.4, sick_at=[10, 90], others_at=[50])
    plain = run(tmp_path, *data, "privacy.epsilon=4", "model.features=none", "algorithm.rounds=10")
    assert "noise is not the cause" in plain.verdict
    assert "--set model.features=hats" in plain.verdict
    told = [word for word in plain.verdict.replace("`", " ").split() if "=" in word]
    (tmp_path / "cured").mkdir()
    cured = run(tmp_path / "cured", *data, "privacy.epsilon=4", *told)
    assert cured.verdict == ""
    assert cured.judgement.auc > 0.95


def test_hats_that_the_rule_withholds_are_advised_with_the_epsilon_that_pays_for_them(tmp_path):
    data = table(tmp_path, share=0.4, sick_at=[10, 90], others_at=[50], count=1000)
    verdict = run(tmp_path, *data, "privacy.epsilon=0.05").verdict
    assert "noise is not the cause" in verdict
    assert "features=hats" not in verdict
    (told,) = [word for word in verdict.replace("`", " ").split() if "epsilon=" in word]
    (tmp_path / "cured").mkdir()
    cured = run(tmp_path / "cured", *data, told.rstrip("."))
    assert cured.features.startswith("hats")


def test_columns_that_tell_nothing_lead_to_the_schema(tmp_path):
    data = table(tmp_path, share=0.4, sick_at=[50], others_at=[50])
    steps = ("model.features=hats", "algorithm.rounds=auto")
    summary = run(tmp_path, *data, *steps, "privacy.epsilon=4")
    assert "noise is not the cause" in summary.verdict
    assert "as the schema reads them" in summary.verdict
    assert "'note'" in summary.verdict
    assert "--set" not in summary.verdict


def test_a_model_that_the_noise_drowns_is_cured_by_the_epsilon_that_is_named(tmp_path):
    data = table(tmp_path, share=0.2, sick_at=[10, 90], others_at=[50], count=1500)
    steps = ("model.features=hats", "algorithm.rounds=auto")
    summary = run(tmp_path, *data, *steps, "privacy.epsilon=0.01")
    assert "The non-private model is better" in summary.verdict
    assert "is too large for 1,200 records" in summary.verdict
    told = summary.verdict.rpartition("--set ")[2].partition("`")[0]
    (tmp_path / "cured").mkdir()
    cured = run(tmp_path / "cured", *data, *steps, told)
    assert cured.judgement.auc > 0.95
    assert "The noise of" not in cured.verdict


def test_the_ways_are_those_of_the_plan(tmp_path):
    steps = ("algorithm.rounds=10", "model.features=none", "privacy.epsilon=0.05")
    ways = next(line for line in run(tmp_path, *steps).advice if "`parley plan`" in line)
    job = load_job(overrides=[*steps, "parties.min-records=91"])
    twice = load_job(values=job.to_values(), overrides=["privacy.epsilon=0.1"])
    lengths = [parley.plan(each).primary.noise.expected_norm for each in (job, twice)]
    assert f"{lengths[0] / lengths[1]:.2g} times with twice ε" in ways


@pytest.mark.parametrize("kind", ["gradient-perturbation", "output-perturbation"])
def test_steps_by_the_rule_are_advised_where_there_is_a_rule(kind, tmp_path):
    asked = (f"algorithm.kind={kind}", "model.lambda=0.1", "algorithm.rounds=40")
    advice = " ".join(run(tmp_path, *asked, "privacy.epsilon=0.1").advice)
    assert "formulas of `parley plan`" in advice
    assert ("algorithm.rounds=auto" in advice) == (kind == "gradient-perturbation")


def test_a_good_model_has_no_verdict(tmp_path):
    assert run(tmp_path, "privacy.epsilon=4").verdict == ""


@pytest.mark.parametrize(
    ("chances", "labels", "said"),
    [
        ([0.1, 0.2, 0.3, 0.4], [0, 0, 0, 1], "predicts 'no' for all of 4 rows (accuracy 0.7500)"),
        ([0.9, 0.2, 0.3, 0.4], [0, 0, 0, 1], "always predicting 'no' has 0.7500"),
        ([0.1, 0.2, 0.3, 0.9], [0, 0, 0, 1], ""),
    ],
)
def test_what_is_wrong_with_a_classifier_is_said_by_its_confusion_matrix(chances, labels, said):
    found = evaluate_classifier(np.array(chances), np.array(labels), names=("no", "yes"))
    told = find_shortcoming(found, records="rows")
    assert said in told
    assert bool(said) == bool(told)


def test_a_rare_label_that_is_hardly_answered_is_said_with_its_counts():
    labels = np.array([0] * 90 + [1] * 30)
    chances = np.where(labels, 0.4, 0.2) + np.linspace(0, 0.06, 120)
    said = find_shortcoming(
        evaluate_classifier(chances, labels, names=("no", "yes")), records="rows"
    )
    assert "predicts 'no' for all of 120 rows" in said
    chances[-3:] = 0.6
    said = find_shortcoming(
        evaluate_classifier(chances, labels, names=("no", "yes")), records="rows"
    )
    assert said.startswith("The model predicts 'yes' for 3 of 120 rows; 30 of them are")


def test_few_held_out_records_are_said_to_be_few():
    labels = np.arange(12) % 2
    for right, few in ((8, True), (12, False)):
        found = evaluate_classifier(
            np.where(np.arange(12) < right, labels, 1 - labels), labels, names=("n", "y")
        )
        assert few == ("12 held-out records are too few" in _describe_too_few(found))


def test_many_columns_of_few_records_are_cured_by_fewer(tmp_path):
    rng = np.random.default_rng(3)
    cells = rng.standard_normal((1500, 60)).round(3)
    names = [f"c{k}" for k in range(60)]
    rows = [",".join([*map(str, row), "yes" if row[:3].sum() > 0 else "no"]) for row in cells]
    (tmp_path / "d.csv").write_text("\n".join([",".join([*names, "sick"]), *rows]))
    data = f"data.source={tmp_path / 'd.csv'}", f"data.schema={tmp_path / 's.toml'}"
    text = infer_schema(tmp_path / "d.csv").text
    (tmp_path / "s.toml").write_text(text)
    wide = run(tmp_path, *data, "privacy.epsilon=0.4")
    said = wide.verdict.partition("Of 60 columns keep the most informative ones ")[2]
    kept = int(said.partition("with ")[2].split()[0])
    lines = text.splitlines()
    left = [line.partition(" = ")[0] + ' = { kind = "ignore" }' for line in lines]
    at = [k for k, line in enumerate(lines) if line.split(" = ")[0] in names[kept:]]
    (tmp_path / "s.toml").write_text(
        "\n".join(left[k] if k in at else line for k, line in enumerate(lines))
    )
    (tmp_path / "cured").mkdir()
    cured = run(tmp_path / "cured", *data, "privacy.epsilon=0.4")
    assert cured.verdict == ""
    assert cured.judgement.auc > wide.judgement.auc + 0.1


def test_a_class_that_is_never_answered_gets_a_weight():
    truth = np.repeat([0, 1, 2], [80, 100, 6])
    answered = np.eye(3)[np.minimum(truth, 1)]
    found = evaluate_classifier(answered, truth, names=("a", "b", "c"))
    job = load_job(overrides=["model.kind=softmax", "data.source=synthetic"])
    world = load_experiment(job)
    job = job.resolve_auto(world.federation, 3)
    (said,) = _list_class_weights(found, job, world)
    assert "It never predicts 'c'" in said
    key = said.partition("--set '")[2].partition("'")[0]
    assert key == "model.class-weights=[1,1,4]"
    weighted = load_job(values=job.to_values(), overrides=[key])
    assert _list_class_weights(found, weighted, world) == []
    assert (
        _list_class_weights(
            evaluate_classifier(np.eye(3)[truth], truth, names=("a", "b", "c")), job, world
        )
        == []
    )


def test_what_class_weights_give_up_on_purpose_is_no_shortcoming():
    found = evaluate_classifier(
        np.array([0.6, 0.2, 0.3, 0.9]), np.array([0, 0, 0, 1]), names=("no", "yes")
    )
    assert find_shortcoming(found, records="rows", weighted=True) == ""
    assert find_shortcoming(found, records="rows") != ""


def test_a_rare_label_that_noise_hides_is_its_matter_and_no_threshold_that_finds_none_is_named():
    labels = np.array([0] * 197 + [1] * 3)
    hidden = np.append(np.linspace(0.01, 0.3, 197), [0.12, 0.2, 0.28])
    found, twin = (
        evaluate_classifier(chances, labels, names=("no", "yes"))
        for chances in (hidden, labels * 0.1 + 0.1)
    )
    assert found.auc > 0.6
    assert len(twin.predicted_labels) == 1
    assert _is_noise_limited(found, twin, weighted=False)
    assert not _is_noise_limited(twin, twin, weighted=False)
    named = float(describe_threshold(found).split("--threshold ")[1].split("`")[0])
    assert (hidden[-3:] >= named).any()


def test_where_no_epsilon_is_enough_the_records_that_would_be_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr("parley.simulations.advice.sufficient_epsilon.MAX_EPSILON", 0.02)
    data = table(tmp_path, share=0.2, sick_at=[10, 90], others_at=[50], count=1500)
    steps = ("model.features=hats", "algorithm.rounds=auto", "privacy.epsilon=0.01")
    summary = run(tmp_path, *data, *steps)
    assert "No ε up to 0.02" in summary.verdict
    assert summary.verdict.endswith("times as many per party would be, at ε = 0.02.")


def test_a_regression_is_held_against_the_mean():
    targets = np.array([0.1, 0.2, 0.3])
    assert "than their mean" in find_shortcoming(
        evaluate_targets(targets[::-1], targets), records="rows"
    )
    assert find_shortcoming(evaluate_targets(targets, targets), records="rows") == ""
    assert find_shortcoming(None, records="rows") == ""


def test_a_network_whose_steps_lead_nowhere_is_cured_by_those_of_the_rule(tmp_path):
    network = ("model.kind=mlp", "model.hidden=[8]", "algorithm.kind=distributed-dp-sgd")
    asked = (*network, "privacy.epsilon=8", "data.test-fraction=0.2")
    slow = run(tmp_path, *asked, "algorithm.rounds=4", "dp-sgd.learning-rate=1e-6")
    told = [word for word in slow.verdict.replace("`", " ").split() if "=" in word]
    assert told == ["algorithm.rounds=auto", "dp-sgd.learning-rate=auto"]
    (tmp_path / "cured").mkdir()
    cured = run(tmp_path / "cured", *asked, *told)
    assert cured.verdict == ""
    assert cured.accuracy > 0.9


def test_a_party_of_few_records_is_named_with_what_helps(tmp_path):
    rows = [f"{'B' if k < 3 else 'AC'[k % 2]},{k % 10},{'yes' if k % 10 > 4 else 'no'}"
            for k in range(603)]  # fmt: skip
    (tmp_path / "d.csv").write_text("\n".join(["ward,x,sick", *rows]))
    (tmp_path / "s.toml").write_text("""
    [columns]
    ward = { kind = "ignore" }
    x = { kind = "numeric", range = [0, 9] }
    sick = { kind = "label", positive = "yes", negative = "no" }
    """)
    data = (
        f"data.source={tmp_path / 'd.csv'}", f"data.schema={tmp_path / 's.toml'}",
        "data.partition=column", "data.partition-column=ward", "parties.count=3",
    )  # fmt: skip
    tiny = run(tmp_path, *data, "privacy.epsilon=0.05")
    said = " ".join([tiny.verdict, *tiny.advice])
    held = int(re.search(r"Party 'B' holds (\d) record", said)[1])
    typed = re.findall(r"--set (parties\.\S+?)`", said)
    assert typed[0] == "parties.weights=size"
    assert "leave its records out" in said
    with pytest.raises(PartitionError, match=rf"got {held} in party 1 \('B'\)") as refused:
        run(tmp_path / "refused", *data, "parties.min-records=100")
    (lower,) = re.findall(r"--set (parties\.\S+?)`", str(refused.value))
    assert lower == f"parties.min-records={held}"
    for number, told in enumerate((lower, typed[0])):
        (tmp_path / str(number)).mkdir()
        helped = run(tmp_path / str(number), *data, "privacy.epsilon=0.05", told)
    weighed = helped
    assert "Party 'B' holds" not in " ".join([weighed.verdict, *weighed.advice])
