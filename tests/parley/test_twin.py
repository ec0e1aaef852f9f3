"""The model without privacy is a simulation's alone: right, marked, nothing a party could do."""

import json
from dataclasses import replace

import numpy as np
import pytest
from commands import invoked
from plain_gradients import plain_gradients

import parley
from parley.client.algorithms.registry import ALGORITHMS
from parley.client.algorithms.task_codec import decode_task
from parley.client.contract.strict_decoding import DecodingError
from parley.non_private_baseline import train_non_private
from parley.prediction.model_loading import load_model
from parley.server.jobs.section_base import JobError
from parley.server.model_file import NON_PRIVATE, ModelFileError, open_model
from parley.simulations.data.bundled_datasets import BUNDLED
from parley.simulations.data.experiment_loading import load_experiment


def _job(*overrides):
    return parley.load_job(
        overrides=["data.source=synthetic", "data.records=900", "parties.count=3", *overrides]
    )


@pytest.mark.parametrize("kind", ["logistic", "softmax", "ridge"])
def test_each_twin_is_where_its_own_objective_is_flat(kind, tmp_path):
    job = _job(f"model.kind={kind}", "model.lambda=0.01")
    experiment = load_experiment(job)
    job = job.resolve_auto(experiment.federation, experiment.data.classes)
    model, block, lambda_ = experiment.model, experiment.block, job.model.regularisation

    def slope(theta, piece):
        return plain_gradients(model, theta, piece).mean(axis=0) + lambda_ * theta

    pooled = train_non_private(job, method="centralised", out=tmp_path / "c.safetensors")
    centralised = open_model(pooled.path).tensors["theta"]
    assert np.abs(slope(centralised, block)).max() < 1e-6
    assert pooled.metrics["excess loss"] == 0
    averaged = train_non_private(job, method="aggregated", out=tmp_path / "a.safetensors")
    aggregated = open_model(averaged.path).tensors["theta"]
    assert averaged.metrics["excess loss"] > 0
    own = []
    for party in range(3):
        alone = replace(experiment, block=block.slice_parties(party, party + 1))
        own.append(alone.compute_optimum())
        assert np.abs(slope(own[-1], alone.block)).max() < 1e-6
    np.testing.assert_allclose(aggregated, np.mean(own, axis=0), atol=1e-4)


def test_the_file_predicts_and_says_that_it_promises_nothing(tmp_path):
    file = tmp_path / "twin.safetensors"
    arguments = ["--method", "centralised", "--out", str(file)]
    job = ("data.source=synthetic", "data.records=900", "parties.count=3")
    sets = [word for key in job for word in ("--set", key)]
    done = invoked("twin", *arguments, *sets)
    assert done.exit_code == 0, done.output
    assert "No privacy: anyone who sees this model" in done.output
    assert done.output.count("(simulation only)") == 4
    assert [each.name for each in tmp_path.iterdir()] == ["twin.safetensors"]
    shown = invoked("show", file, "--json")
    told = json.loads(shown.output)
    assert (told["learned by"], told["epsilon"]) == ("centralised", "none")
    assert told["statement"].startswith("No privacy")
    columns = BUNDLED["synthetic"].columns("logistic", 900, 0)
    assert (load_model(file).predict({"x": columns["x"]}) == columns["y"]).mean() > 0.6
    with pytest.raises(ModelFileError, match="new file"):
        train_non_private(_job(), method="centralised", out=file)


@pytest.mark.parametrize(
    ("overrides", "method", "message"),
    [
        (["run.engine=processes"], "centralised", "Real parties are never asked"),
        (["privacy.ledger=shared.sqlite"], "aggregated", "no privacy.ledger"),
        (["model.kind=mlp", "algorithm.kind=fedavg"], "centralised", "linear model"),
        ([], "oracle", "centralised, aggregated, got 'oracle'"),
    ],
)
def test_real_parties_and_models_without_an_optimum_have_none(overrides, method, message, tmp_path):
    with pytest.raises(JobError, match=message):
        train_non_private(_job(*overrides), method=method, out=tmp_path / "never.safetensors")
    assert not list(tmp_path.iterdir())


def test_no_job_and_no_task_can_ask_a_party_for_it(tmp_path):
    made = train_non_private(_job(), method="aggregated", out=tmp_path / "a.safetensors")
    with pytest.raises(DecodingError, match="Expected a task of"):
        decode_task(open_model(made.path).description["task"])
    for name in NON_PRIVATE:
        assert name not in ALGORITHMS
        with pytest.raises(JobError, match=r"algorithm\.kind"):
            _job(f"algorithm.kind={name}")
