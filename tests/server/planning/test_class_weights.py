"""A job's class weights: in plan, noise, agreement, model file and report."""

import numpy as np
import pytest
import tomli_w

import parley
from parley.prediction.model_loading import load_model
from parley.server.jobs.job_file import load_job
from parley.server.jobs.section_base import JobError

QUICK = (
    "parties.count=3",
    "algorithm.rounds=2",
    "run.seed=5",
    "secure-aggregation.masked-check=false",
)


def test_the_plan_pays_for_the_heaviest_label():
    plain = parley.plan(load_job(overrides=QUICK))
    heavy = parley.plan(load_job(overrides=[*QUICK, "model.class-weights=[1, 8]"]))
    assert heavy.class_weights == (1.0, 8.0)
    assert heavy.lipschitz == 8 * plain.lipschitz
    assert heavy.primary.noise.scale == pytest.approx(8 * plain.primary.noise.scale, rel=1e-3)
    assert heavy.primary.epsilon == pytest.approx(plain.primary.epsilon, rel=1e-3)


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm.kind=gradient-perturbation"],
        ["algorithm.kind=output-perturbation", "algorithm.rounds=1"],
        ["model.kind=huber-svm"],
        ["model.kind=mlp", "model.hidden=[4]", "algorithm.kind=fedavg", "dp-sgd.local-epochs=1"],
    ],
    ids=lambda keys: keys[0],
)
def test_a_run_learns_with_them_and_says_so(overrides, tmp_path):
    job = load_job(
        overrides=[*QUICK, *overrides, "model.class-weights=[1, 4]", f"run.out={tmp_path}"]
    )
    result = parley.run(job)
    assert result.summary.class_weights == (1.0, 4.0)
    assert "1 : 4 (public" in (result.folder / "report.html").read_text()
    assert load_model(result.folder).class_weights == (1.0, 4.0)
    assert not np.isnan(result.theta).any()


def test_unusable_weights_are_refused(tmp_path):
    for keys, said in (
        (["model.class-weights=[1, 2, 3]"], "Expected 2 class weights"),
        (["model.class-weights=[1, 0]"], "class-weights"),
        (["model.kind=ridge", "model.class-weights=[1, 2]"], "class-weights"),
        (["model.class-weights=[1, nan]"], "class-weights"),
    ):
        with pytest.raises(JobError, match=said):
            parley.plan(load_job(overrides=[*QUICK, *keys]))
    written = tomli_w.dumps({"model": {"class-weights": "balanced"}})
    (tmp_path / "job.toml").write_text(written)
    with pytest.raises(JobError, match="class-weights"):
        load_job(tmp_path / "job.toml")
