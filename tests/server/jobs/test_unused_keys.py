"""A key that has no effect with the job's others is refused, with what it needs."""

from pathlib import Path

import pytest

from parley.server.jobs.job_file import load_job, render_job
from parley.server.jobs.section_base import JobError

FEDAVG = ("model.kind=mlp", "algorithm.kind=fedavg")
FILES = ("data.source='site-*.csv'", "data.schema=s.toml")
UNUSED = [
    # what the key needs, the other keys, the key
    ("data.partition = 'column'", (), "data.partition-column=hospital"),
    ("data.partition = 'column'", ("data.partition=dirichlet",), "data.partition-column=hospital"),
    ("data.partition = 'dirichlet'", (), "data.dirichlet-alpha=0.1"),
    ("data.partition = 'sizes'", (), "data.sizes=[10, 20, 30, 40, 50]"),
    ("one table", FILES, "data.partition=dirichlet"),
    ("dp-sgd.batch-size = 'auto'", (*FEDAVG, "dp-sgd.batch-size=8"), "dp-sgd.sampling-rate=0.1"),
    ("dp-sgd.local-steps = 'auto'", (*FEDAVG, "dp-sgd.local-steps=8"), "dp-sgd.local-epochs=2"),
    ("dp-sgd.optimiser = 'sgd'", (*FEDAVG, "dp-sgd.optimiser=adam"), "dp-sgd.momentum=0.9"),
    ("'momentum' or 'adam'", FEDAVG, "dp-sgd.server-momentum=0.5"),
    ("privacy.unit = 'both'", (), "privacy.record-bound=inner"),
    ("Gaussian noise", ("privacy.noise=laplace-l1",), "privacy.calibration=zcdp"),
    ("run.engine", ("run.engine=processes",), "run.evaluate-every=3"),
    ("run.engine", ("run.engine=processes",), "run.faults='drop:0.1'"),
    ("run.engine = 'ray'", (), "run.ray-address=auto"),
    ("run.engine = 'ray'", (), "run.workers=3"),
    (
        "model.pca = 'private'",
        ("model.kind=pca-mlp", "algorithm.kind=fedavg", "model.pca=public"),
        "model.pca-share=0.1",
    ),
]


@pytest.mark.parametrize(("needs", "others", "key"), UNUSED, ids=[row[2] for row in UNUSED])
def test_a_key_without_effect_is_refused_with_what_it_needs(needs, others, key):
    load_job(overrides=others)
    with pytest.raises(JobError) as refused:
        load_job(overrides=[*others, key])
    assert f"Expected {key.partition('=')[0]} = " in str(refused.value)
    assert needs in str(refused.value)


@pytest.mark.parametrize(
    "overrides",
    [
        ("data.partition=column", "data.partition-column=hospital"),
        ("data.partition=dirichlet", "data.dirichlet-alpha=0.1"),
        (*FEDAVG, "dp-sgd.server-optimiser=momentum", "dp-sgd.server-momentum=0.5"),
        ("run.engine=ray", "run.workers=3", "run.evaluate-every=2", "run.noise-shares=deal"),
        ("secure-aggregation.backend=masked", "run.noise-shares=full"),
        (*FEDAVG, "privacy.unit=both", "privacy.record-bound=inner"),
    ],
)
def test_a_key_with_its_need_is_accepted_and_a_printed_job_is_the_same(overrides, tmp_path):
    job = load_job(overrides=overrides)
    (tmp_path / "job.toml").write_text(render_job(job))
    assert load_job(tmp_path / "job.toml") == job


def test_a_schema_without_a_source_names_no_bundled_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # paths of a file are relative to it
    job = load_job(overrides=["data.schema=s.toml"])
    assert job.data.source == ""
    Path("job.toml").write_text(render_job(job))
    assert load_job("job.toml") == job
    assert load_job().data.source == "breast-cancer"
