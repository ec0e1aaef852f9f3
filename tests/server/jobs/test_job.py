"""Job files: what is read, what is refused and with which words."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.server.jobs.job_file import load_job, parse_override, render_job
from parley.server.jobs.section_base import JobError


def test_the_printed_job_reads_back_as_the_same_job():
    job = load_job(overrides=["parties.count=7", "privacy.noise=auto", "run.seed=3"])
    text = render_job(job)
    assert load_job(values=tomllib.loads(text)) == job
    keys = [line for line in text.splitlines() if " = " in line and not line.startswith("#")]
    assert all(text.splitlines()[text.splitlines().index(k) - 1].startswith("#") for k in keys)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("privacy.epsilon=0", "privacy.epsilon to be greater than 0, got 0"),
        ("privacy.epsilon=-1", "got -1"),
        ("privacy.epsilon=inf", "finite"),
        ("privacy.delta=1", "less than 1, got 1"),
        ("privacy.delta=-0.1", "got -0.1"),
        ("privacy.delta=0", "δ = 0"),
        ("algorithm.rounds=0", "got 0"),
        ("parties.count=0", "got 0"),
        ("parties.count=many", "got 'many'"),
        ("parties.min-records=0", "min-records to be greater than or equal to 1, or 'auto', got 0"),
        ("model.lambda=0", "got 0"),
        ("model.kind=tree", "'logistic'"),
        ("privacy.epsilom=1", "Did you mean privacy.epsilon?"),
        ("privcy.epsilon=1", "Did you mean privacy"),
        ("privacy.noise=discrete-gaussian", "zcdp or cks20"),
        ("secure-aggregation.ring-bits=17", "16, 32 or 64"),
        ("secure-aggregation.min-survivors=9", "<= parties.count = 5, got 9"),
        ("data.partition=column", "partition-column"),
        ("data.partition=sizes", "sizes = [n1"),
        ("parties.count=true", "parties.count to be a number, no truth value, got True"),
        ("privacy.epsilon=true", "privacy.epsilon to be a number, no truth value, got True"),
        ("epsilon=1", "section.key=value"),
        ("privacy.epsilon", "section.key=value"),
        ("privacy=1", "section.key=value"),
        ("model.radius=2", "model.radius = 'auto' (it needs model.kind = 'ridge'), got 2"),
        ("model.hidden=[5]", "[1000] (it needs model.kind = 'mlp' or 'pca-mlp'), got [5]"),
        (
            "algorithm.settings={a=1}",
            "(it needs algorithm.kind = 'file.py:Class' or 'flower'), got",
        ),
        (
            "algorithm.relative-tolerance=1",
            "needs algorithm.kind = 'output-perturbation' or 'objective",
        ),
        ("algorithm.kind=tree", "'file.py:Class', 'flower', 'gradient-perturbation', 'fedavg'"),
        ("algorithm.kind=3", "'random-features', got 3"),
        ("dp-sgd.clip-norm=2", "dp-sgd.clip-norm = 'auto' (it needs algorithm.kind = 'fedavg')"),
        ("model.radus=1", "Unknown key model.radus. Did you mean model.radius?"),
        (
            "model.kind=mlp",
            "'own-residual-loss' with algorithm.kind = 'gradient-perturbation', got 'mlp'",
        ),
    ],
)
def test_a_bad_value_is_refused_and_named(override, words):
    with pytest.raises(JobError) as refusal:
        load_job(overrides=[override])
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("kind", "model", "remedy"),
    [
        ("gradient-perturbation", "logistic", "privacy.noise=laplace-l1"),
        ("fedavg", "mlp", "privacy.delta=1e-05"),
        ("distributed-dp-sgd", "mlp", "privacy.delta=1e-05"),
        ("marginals", "table", "privacy.delta=1e-05"),
    ],
)
def test_a_delta_of_zero_is_refused_with_a_remedy_that_works(kind, model, remedy):
    sets = [f"algorithm.kind={kind}", f"model.kind={model}", "privacy.delta=0"]
    with pytest.raises(JobError, match=r"Expected privacy\.delta > 0") as refused:
        load_job(overrides=sets)
    assert remedy in str(refused.value).replace(" = '", "=")
    load_job(overrides=[*sets, remedy])


def test_a_missing_or_broken_file_is_named(tmp_path):
    with pytest.raises(JobError, match=r"Cannot read job file .*nowhere\.toml"):
        load_job(tmp_path / "nowhere.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[privacy\nepsilon = 1")
    with pytest.raises(JobError, match=r"is not TOML") as refused:
        load_job(broken)
    assert "TABLE" not in str(refused.value)  # no advice that cannot work
    (tmp_path / "table.csv").write_text("age,sick\n3,1\n")
    with pytest.raises(JobError, match=r"is not TOML.*data\.source=TABLE"):
        load_job(tmp_path / "table.csv")
    broken.write_text("[columns]\nage = { kind = 'ignore' }")
    with pytest.raises(JobError, match=r"a schema, not a job\. Use --set data\.schema="):
        load_job(broken)


def test_overrides_win_over_the_file(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text("[privacy]\nepsilon = 3\ndelta = 1e-6\n")
    job = load_job(path, overrides=["privacy.epsilon=2"])
    assert (job.privacy.epsilon, job.privacy.delta) == (2.0, 1e-6)


def test_a_key_of_the_chosen_form_is_named_without_the_form():
    with pytest.raises(
        JobError, match=r"^Expected model.radius to be greater than 0, or 'auto', got -1"
    ):
        load_job(overrides=["model.kind=ridge", "model.radius=-1"])
    with pytest.raises(JobError, match=r"^Expected algorithm.clip-norm to be .*, or 'auto', got "):
        load_job(overrides=["algorithm.clip-norm=small"])
    with pytest.raises(JobError, match=r"model.pca-file = '' \(it needs model.pca = 'public'\)"):
        load_job(overrides=["algorithm.kind=fedavg", "model.kind=pca-mlp", "model.pca-file=a.st"])


def test_a_section_that_is_none_is_refused(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text("model = 3\n")
    with pytest.raises(JobError, match=r"^Expected \[model\] to be a section, got 3.$"):
        load_job(path)


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm.kind=output-perturbation", "model.kind=huber-svm", "model.huber-width=0.2"],
        ["algorithm.kind=fedavg", "model.kind=pca-mlp", "model.components=7"],
        ["algorithm.kind=fedavg", "model.kind=wards.models:net", "privacy.unit=both"],
        ["algorithm.kind=a.py:A", "model.kind=none", "algorithm.settings.most=3"],
    ],
)
def test_every_form_is_printed_whole_and_reads_back(overrides):
    job = load_job(overrides=overrides)
    tree = tomllib.loads(render_job(job, every_form=True))
    assert load_job(values=tree) == job
    usual = tomllib.loads(render_job(load_job(), every_form=True))
    assert {name: set(keys) for name, keys in tree.items()} == {
        name: set(keys) for name, keys in usual.items()
    }
    own = tomllib.loads(render_job(job))
    assert load_job(values=own) == job
    assert set(own["algorithm"]) < set(tree["algorithm"])


def test_a_job_with_steps_can_be_run_by_output_perturbation_too():
    steps = ["algorithm.learning-rate=2", "algorithm.momentum=0.5", "algorithm.rounds=40"]
    job = load_job(overrides=[*steps, "algorithm.kind=output-perturbation"])
    assert job.rounds == 1
    with pytest.raises(JobError, match=r"clip-norm = 'auto' .* got 0.5"):
        load_job(overrides=["algorithm.clip-norm=0.5", "algorithm.kind=output-perturbation"])


def test_ridge_output_perturbation_is_refused_with_the_way_out():
    with pytest.raises(JobError, match="Use gradient-perturbation"):
        load_job(
            overrides=[
                "algorithm.kind=output-perturbation",
                "model.kind=ridge",
                "data.source=synthetic",
            ]
        )


@given(st.text(max_size=40))
def test_any_override_text_parses_or_is_a_job_error(text):
    try:
        keys, _ = parse_override(text)
    except JobError:
        return
    assert len(keys) >= 2


def test_a_job_that_names_no_model_learns_what_the_label_of_its_schema_is_for(tmp_path):
    def kind(label, *more):
        (tmp_path / "s.toml").write_text(f'[columns]\nx = {{ kind = "ignore" }}\ny = {label}\n')
        return load_job(overrides=[f"data.schema={tmp_path / 's.toml'}", *more]).model.kind

    classes = '{ kind = "label", classes = ["a", "b", "c"] }'
    assert kind(classes) == "softmax"
    assert kind(classes, "model.lambda=0.1") == "softmax"
    assert kind(classes, "model.kind=logistic") == "logistic"
    assert kind('{ kind = "label", range = [0, 9] }') == "ridge"
    assert kind('{ kind = "label", positive = [1], negative = [0], range = [0, 1] }') == "logistic"
    assert kind("no TOML") == "logistic"  # refused where records are read by it
